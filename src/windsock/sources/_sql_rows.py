"""Mode ``rows`` of the SQL source: new and changed rows behind a watermark."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import unreadable
from windsock.sources._sql_database import Database
from windsock.sources._sql_session import Session
from windsock.sources._sql_statements import Statement
from windsock.sources._sql_window import Position, Window
from windsock.sources.base import Cursor, Delivery
from windsock.values import scalar_text

if TYPE_CHECKING:
    from windsock.sources.sql import SqlConfig

__all__ = ["Rows"]

_LONGEST_ID = 500
Row = tuple[Position, dict[str, Any]]


class Rows(Session):
    """At each poll what came late, then what is new."""

    def __init__(self, options: SqlConfig, database: Database) -> None:
        super().__init__(options, database)
        column = options.cursor_column or ""
        self.order = (column, *(name for name in options.primary_key if name != column))
        self._window = Window(lookback=options.lookback)
        self._begun = True
        self._lag, self._lag_until = 0, 0.0

    async def take_position(self, cursor: Cursor | None) -> None:
        self._window = Window(cursor, lookback=self.options.lookback)
        if self._window.unsure:
            self._window.recall([position async for page in self._behind() for position in page])
        if cursor is None and self.options.start == "latest":
            _, rows = await self.ask(self.statements.newest())
            self._window.start_at(rows[0] if rows else None)
            self._begun = False

    async def read(self) -> AsyncIterator[Delivery]:
        if not self._begun:
            # A crash before the first row must not move the beginning.
            yield Delivery([], cursor=self._window.cursor())
        while True:
            began = time.monotonic()
            if self._window.look():
                async for positions in self._behind():
                    if late := self._window.late(positions):
                        yield self._delivery([row for at in late for row in await self._at(at)])
            full = True
            while full:
                rows = await self._page(self.statements.beyond(self._window.last, self.options.page))
                full = len(rows) == self.options.page
                if rows and (fresh := self._window.passed([position for position, _ in rows])):
                    yield self._delivery([rows[index] for index in fresh])
            await self.rest(began)

    async def lag(self) -> int | None:
        began = time.monotonic()
        if began >= self._lag_until:
            _, rows = await self.ask(self.statements.waiting(self._window.last))
            self._lag = int(rows[0][0])
            # Counting a long backlog takes long: ten times that passes before the next.
            self._lag_until = began + 10 * (time.monotonic() - began)
        return self._lag

    async def _behind(self) -> AsyncIterator[list[Position]]:
        """The positions between floor and last, page by page."""
        after, last = self._window.floor, self._window.last
        full = last is not None
        while full and last is not None:
            _, page = await self.ask(self.statements.between(after, last, self.options.page))
            full = len(page) == self.options.page
            if page:
                after = page[-1]
                yield page

    async def _at(self, position: Position) -> list[Row]:
        """The row there; none if it was changed again since."""
        return await self._page(self.statements.at(position))

    async def _page(self, statement: Statement) -> list[Row]:
        """Rows with their positions."""
        names, rows = await self.ask(statement)
        if not rows:
            return []
        places = _places(names, self.order)
        self._check_key(rows[0][places[0]])
        labels = self.options.columns or names
        shown = _places(names, labels)
        return [
            (tuple(row[at] for at in places), dict(zip(labels, (row[at] for at in shown), strict=True)))
            for row in rows
        ]

    def _check_key(self, value: Any) -> None:
        if not self.options.primary_key and isinstance(value, dt.date | str | float):
            raise SourceError(
                f"table {self.options.table}: rows may share a value of {self.order[0]!r}, and then all but "
                "one would be missed: name the columns that tell them apart as 'primary_key'"
            )

    def _delivery(self, rows: Sequence[Row]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for position, row in rows:
            try:
                events.append(self._event(position, row))
            except InvalidEvent as error:
                where = f"{self.options.table} at {', '.join(map(str, position))[:200]}"
                dead.append(unreadable(repr(row).encode("utf-8", "backslashreplace"), error, where=where))
        return Delivery(events, cursor=self._window.cursor(), dead=dead)

    def _event(self, position: Position, row: dict[str, Any]) -> Event:
        table = self.options.table or ""
        values = dict(zip(self.order, map(_text, position), strict=True))
        version = values[self.order[0]]
        key = "/".join(quote(values[name], safe="") for name in self.options.primary_key or self.order)
        identity = "/".join((table, key, quote(version, safe=":+")))
        if len(identity) > _LONGEST_ID:
            identity = f"{table}/{hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()}"
        return Event.make(
            row,
            id=identity,
            source=self.source,
            type="windsock.sql.row",
            time=position[0] if isinstance(position[0], dt.datetime) else None,
            subject=table,
            key=key,
            sequence=version,
        )


def _places(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where columns are in a row; databases differ in how they write names back."""
    places = {name.casefold(): place for place, name in enumerate(names)}
    places |= {name: place for place, name in enumerate(names)}
    return [places[name] if name in places else places[name.casefold()] for name in wanted]


def _text(value: Any) -> str:
    """A value of a position as text that is the same in every session."""
    if isinstance(value, dt.datetime) and value.tzinfo:
        value = value.astimezone(dt.UTC)
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else scalar_text(value)
