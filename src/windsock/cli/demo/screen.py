"""What the demo shows: a live table on a terminal, one line per step anywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from windsock.cli.demo.trail import Row
from windsock.cli.terminal import clock, short_run
from windsock.log.records import State

__all__ = ["LiveScreen", "PlainScreen", "Screen", "make_screen"]

_COLOURS = {State.DONE: "green", State.DEAD: "red", State.CLAIMED: "yellow"}
_FEWEST_ROWS = 6
_AROUND_THE_TABLE = 4
"""Lines that the table's head and frame, the line below it and the cursor take."""

_COLUMNS = {"received": 8, "door": 7, "event": 20, "Dag": 8, "run": 13, "state": 0, "secs": 5}
"""How wide a column is; `state` gets the rest, and needs little in a terminal of 80 columns."""

_SHORTEST_STATE = len("claimed")


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
        self._live = Live(console=console, refresh_per_second=8)
        self._said = 0

    @property
    def rows(self) -> int:
        return max(self._console.height - self._said - _AROUND_THE_TABLE, _FEWEST_ROWS)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str = "", *, style: str = "") -> None:
        self._said += 1 + len(text) // self._console.width
        self._console.print(text, style=style or None, markup=False, soft_wrap=True)

    def waiting(self, what: str, parts: Mapping[str, bool]) -> None:
        line = Text(f"{what}  ")
        for part, there in parts.items():
            line.append(f"{'✓' if there else '·'} {part}  ", style="green" if there else "dim")
        self._live.update(Spinner("dots", line))

    def show(self, rows: Sequence[Row], below: str) -> None:
        last = Text(below, style="dim")
        self._live.update(Group(self._table(rows), last) if rows else last)

    def _table(self, rows: Sequence[Row]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
        )
        room = self._console.width - 2 * (len(_COLUMNS) - 1)
        for column, width in _COLUMNS.items():
            table.add_column(column, no_wrap=True, justify="right" if column == "secs" else "left")
            room -= width
        for row in rows:
            state = Text(describe(row), style=_COLOURS.get(row.state, ""))
            state.truncate(max(room, _SHORTEST_STATE), overflow="ellipsis")
            name = Text(row.name)
            name.truncate(_COLUMNS["event"], overflow="ellipsis")
            table.add_row(
                clock(row.received_at),
                row.door,
                name,
                row.dag_id or "",
                short_run(row.run_id),
                state,
                "" if row.seconds is None else f"{row.seconds:.1f}",
            )
        return table
