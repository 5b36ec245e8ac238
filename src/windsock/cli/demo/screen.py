"""What the demo shows: a live table on a terminal, one line per step anywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from windsock.cli.demo.trail import Row
from windsock.cli.terminal import clock, short_run
from windsock.log.base import State

__all__ = ["LiveScreen", "PlainScreen", "Screen", "make_screen"]

_COLOURS = {State.DONE: "green", State.DEAD: "red", State.CLAIMED: "yellow"}
_FEWEST_ROWS = 6
_AROUND_THE_TABLE = 6
"""Lines that the table's title, head and frame, and the line below it, take."""


class Screen(Protocol):
    """Where the demo speaks. A context manager: inside it, the screen is the demo's."""

    @property
    def rows(self) -> int:
        """How many events it can show."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str = "", *, style: str = "") -> None:
        """A line that stays; never wrapped by us, so that it can be copied."""

    def waiting(self, what: str, parts: Mapping[str, bool]) -> None:
        """Something takes a while: which of its parts are there."""

    def show(self, rows: Sequence[Row], below: str) -> None:
        """The events, newest first, and a line about all of them."""


def make_screen(*, stderr: bool) -> Screen:
    """The screen for where the output goes."""
    console = Console(stderr=stderr, highlight=False)
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


def describe(row: Row) -> str:
    """How an event is, in a few words."""
    if row.state == State.DEAD:
        return f"dead: {row.reason}" if row.reason else "dead"
    if row.state == State.PENDING and row.attempts:
        return f"pending, run {row.attempts} failed"
    if row.state == State.OPEN:
        return "open: its batch is filling"
    return str(row.state)


class PlainScreen:
    """Lines, each said once."""

    rows = 1000

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: set[str] = set()
        self._seen: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str = "", *, style: str = "") -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def waiting(self, what: str, parts: Mapping[str, bool]) -> None:
        for part, there in parts.items():
            if there and part not in self._said:
                self._said.add(part)
                self.say(f"  {part} is ready")

    def show(self, rows: Sequence[Row], below: str) -> None:
        for row in reversed(rows):
            state = describe(row)
            if self._seen.get(row.seq) == state:
                continue
            self._seen[row.seq] = state
            run = f"  {row.dag_id} {short_run(row.run_id)}" if row.run_id else ""
            took = f"  {row.seconds:.1f} s" if row.seconds is not None else ""
            self.say(f"{clock(time.time())}  {row.door:<7}  {row.name}{run}  {state}{took}")


class LiveScreen:
    """A table that follows the events, below the lines that stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._inside = ExitStack()

    @property
    def rows(self) -> int:
        return max(self._console.height - _AROUND_THE_TABLE, _FEWEST_ROWS)

    def __enter__(self) -> Self:
        live: AbstractContextManager[Live] = self._live
        self._inside.enter_context(live)
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    def say(self, text: str = "", *, style: str = "") -> None:
        self._console.print(text, style=style or None, markup=False, soft_wrap=True)

    def waiting(self, what: str, parts: Mapping[str, bool]) -> None:
        line = Text(f"{what}  ")
        for part, there in parts.items():
            line.append(f"{'✓' if there else '·'} {part}  ", style="green" if there else "dim")
        self._live.update(Spinner("dots", line))

    def show(self, rows: Sequence[Row], below: str) -> None:
        self._live.update(Group(self._table(rows), Text(below, style="dim")) if rows else Text(below))

    def _table(self, rows: Sequence[Row]) -> RenderableType:
        table = Table(header_style="bold", expand=False)
        table.add_column("received", no_wrap=True)
        table.add_column("door", no_wrap=True)
        table.add_column("event", no_wrap=True)
        table.add_column("Dag", no_wrap=True)
        table.add_column("run", no_wrap=True)
        table.add_column("how it is", no_wrap=True, overflow="ellipsis")
        table.add_column("seconds", no_wrap=True, justify="right")
        for row in rows:
            table.add_row(
                clock(row.received_at),
                row.door,
                Text(row.name),
                row.dag_id or "",
                short_run(row.run_id),
                Text(describe(row), style=_COLOURS.get(row.state, "")),
                "" if row.seconds is None else f"{row.seconds:.1f}",
            )
        return table
