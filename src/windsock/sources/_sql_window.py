"""What the SQL source remembers of the rows it has announced: a position, and a window behind it.

Rows come in the order of the cursor column and then the primary key, and ``last`` is the position of the last
one announced. That alone would miss rows that appear *behind* it: a transaction stamps its rows when it
writes them, but they can be seen only when it commits, and until then others may have passed. So the rows
between ``floor`` and ``last`` are looked at again at each poll, and a row there that is not remembered is
late and announced. The floor follows: a position is given up ``lookback`` seconds after a row at or beyond it
was first seen, measured with this process's own clock, so that it holds for numbers as well as for times in
whatever zone. It is also given up when 100,000 rows have come since, which bounds memory.

::

      floor                     last
    ───┴──○──○──●──○──○──○──────┴────▶  cursor column, primary key
          remembered │ not remembered: late

In the cursor the remembered rows are 256 sums of their digests, some three kilobytes however many there are.
After a restart the window is read once: rows whose sum is as it was are known; the others (one in 256 for
each row that came, went or changed meanwhile) are announced again under the same id, duplicates to the log.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import hashlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from windsock.events import SourceError
from windsock.sources.base import Cursor

__all__ = ["Position", "Window", "plain", "revive"]

Position = tuple[Any, ...]
"""The cursor column's value, then those of the primary key, as the driver gave them."""

MAX_ROWS = 100_000
_SUMS = 256
_TAGS: dict[str, Callable[[str], Any]] = {
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "bytes": bytes.fromhex,
}


def plain(value: Any) -> Any:
    """A value of a position as JSON; :func:`revive` makes the same parameter of it again."""
    if isinstance(value, dt.datetime):
        return {"datetime": (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat()}
    if isinstance(value, dt.date | dt.time):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, str | int | float):
        return value
    raise SourceError(
        f"a cursor column or primary key holds a {type(value).__name__}, which cannot be a position: "
        "choose columns of numbers, times or text"
    )


def revive(value: Any) -> Any:
    """The value behind what :func:`plain` returned."""
    if isinstance(value, dict):
        ((tag, text),) = value.items()
        return _TAGS[tag](text)
    return value


def digest(position: Position) -> int:
    """64 bits that stand for one version of one row."""
    text = msgspec.json.encode([plain(value) for value in position])
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass
class _Page:
    """Rows that were announced together."""

    read: float
    position: Position
    rows: set[int]


class Window:
    """See the module's docstring. Not for two threads at once."""

    def __init__(
        self,
        cursor: Cursor | None = None,
        *,
        lookback: float,
        max_rows: int = MAX_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last: Position | None = None
        self.floor: Position | None = None
        self._pages: deque[_Page] = deque()
        self._known: set[int] = set()
        self._sums = [0] * _SUMS
        self._looked: float | None = None
        self._lookback = lookback
        self._max_rows = max_rows
        self._clock = clock
        self._stored: list[int] | None = None
        if cursor is not None:
            self._restore(cursor)

    @property
    def unsure(self) -> bool:
        """Whether :meth:`recall` has to be given the rows between floor and last, after a restart."""
        return self._stored is not None

    def recall(self, window: Iterable[Position]) -> None:
        """Take the rows between floor and last as known, as far as the cursor's sums agree."""
        stored, self._stored = self._stored or [0] * _SUMS, None
        groups: dict[int, set[int]] = {}
        for row in map(digest, window):
            groups.setdefault(row % _SUMS, set()).add(row)
        known = {row for group, rows in groups.items() if _sum(rows) == stored[group] for row in rows}
        if self.last is not None:
            self._remember(_Page(self._clock(), self.last, known))

    def start_at(self, position: Position | None) -> None:
        """Begin behind this position."""
        self.last = self.floor = position

    def passed(self, page: Sequence[Position]) -> list[int]:
        """Take note of rows read beyond ``last``; the indexes of those that were not announced before."""
        rows = [digest(position) for position in page]
        fresh = [index for index, row in enumerate(rows) if row not in self._known]
        if page[-1] == self.last:
            raise SourceError(
                "reading does not get past a row whose cursor column or primary key holds more digits than "
                "its driver returns: use a view that casts it to a type without loss, such as microseconds"
            )
        self.last = page[-1]
        if self._lookback:
            self._remember(_Page(self._clock(), self.last, {rows[index] for index in fresh}))
        else:
            self.floor = self.last
        return fresh

    def look(self) -> bool:
        """Begin another look at the window, after moving its floor; whether there is anything to look at."""
        if self._looked is not None:
            while self._pages and self._pages[0].read <= self._looked - self._lookback:
                self._forget()
        self._looked = self._clock()
        return bool(self._pages)

    def late(self, page: Sequence[Position]) -> list[Position]:
        """Those rows of the window that are not known; they are from now on."""
        found = [position for position in page if digest(position) not in self._known]
        for row in map(digest, found):
            # With the newest page, which is forgotten last.
            self._pages[-1].rows.add(row)
            self._known.add(row)
            self._sums[row % _SUMS] ^= row
        return found

    def cursor(self) -> Cursor:
        """All that a new window needs to go on from here."""
        made: Cursor = {"last": _stored(self.last)}
        if self._pages:
            sums = b"".join(number.to_bytes(8, "big") for number in self._sums)
            made |= {"floor": _stored(self.floor), "sums": base64.b64encode(sums).decode()}
        return made

    def _restore(self, cursor: Cursor) -> None:
        self.last = self.floor = _revived(cursor["last"])
        if "sums" in cursor:
            self.floor = _revived(cursor["floor"])
            sums = base64.b64decode(cursor["sums"])
            self._stored = [int.from_bytes(sums[at : at + 8], "big") for at in range(0, len(sums), 8)]

    def _remember(self, page: _Page) -> None:
        self._pages.append(page)
        self._known |= page.rows
        for row in page.rows:
            self._sums[row % _SUMS] ^= row
        while len(self._known) > self._max_rows and len(self._pages) > 1:
            self._forget()

    def _forget(self) -> None:
        page = self._pages.popleft()
        self.floor = page.position
        self._known -= page.rows
        for row in page.rows:
            self._sums[row % _SUMS] ^= row


def _sum(rows: Iterable[int]) -> int:
    total = 0
    for row in rows:
        total ^= row
    return total


def _stored(position: Position | None) -> list[Any] | None:
    return None if position is None else [plain(value) for value in position]


def _revived(position: list[Any] | None) -> Position | None:
    return None if position is None else tuple(revive(value) for value in position)
