"""How commands talk: a table on a terminal, JSON in a pipe, an error in one line."""

from __future__ import annotations

import datetime as dt
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from windsock.events import WindsockError

__all__ = ["AsJson", "ago", "clock", "fail", "plain_errors", "print_json", "print_table", "short_run"]

AsJson = Annotated[
    bool | None,
    typer.Option("--json/--table", help="JSON or a table; by default a table on a terminal, else JSON."),
]

_PIPED_WIDTH = 160
_RUN = re.compile(
    r"(?P<kind>\w+?)__(?P<day>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)\S*?(?P<tail>[^_.:+]{0,4})$"
)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What goes wrong for a known reason ends the command with one line and exit code 2."""
    try:
        yield
    except (WindsockError, ImportError) as error:
        fail(str(error))


def fail(message: str, *, code: int = 2) -> NoReturn:
    """End the command with a message in one line."""
    warn(message)
    raise typer.Exit(code)


def warn(message: str) -> None:
    """Say something in one line where it does not get into a pipe."""
    typer.echo(f"windsock: {' '.join(message.split())}", err=True)


def wants_json(choice: bool | None) -> bool:
    """What was chosen, else JSON unless somebody looks at a terminal."""
    return not sys.stdout.isatty() if choice is None else choice


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str, empty: str) -> None:
    """A table on standard output, or one sentence if there is nothing in it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column.startswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    if table.row_count:
        console.print(table)
    else:
        console.print(empty, markup=False, highlight=False)


def iso(moment: float | None) -> str | None:
    """Epoch seconds as ISO 8601 in UTC, for JSON."""
    return None if moment is None else dt.datetime.fromtimestamp(moment, dt.UTC).isoformat()


def clock(moment: float) -> str:
    """Epoch seconds as local time of day, with the date if that is not today."""
    local = dt.datetime.fromtimestamp(moment).astimezone()
    today = local.date() == dt.datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def ago(moment: float | None) -> str:
    """How long ago that was, in words that fit a table."""
    if moment is None:
        return "never"
    seconds = max(time.time() - moment, 0.0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def short_run(run_id: str | None) -> str:
    """A run id that fits a table: its time of day and its last characters tell it from its neighbours."""
    if run_id is None:
        return ""
    found = _RUN.match(run_id)
    return f"{found['time']}…{found['tail']}" if found else run_id
