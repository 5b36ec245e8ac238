"""Modes ``count`` and ``condition`` of the SQL source: one value, and what its changes mean."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import AsyncIterator
from typing import Any

from windsock.events import Event, InvalidEvent
from windsock.messages import unreadable
from windsock.sources._sql_session import Session
from windsock.sources.base import Cursor, Delivery

__all__ = ["States", "is_true"]

_FALSE = frozenset({"", "0", "f", "false", "n", "no", "off"})


class States(Session):
    """At each poll whether there is something to say."""

    _state: Cursor

    async def take_position(self, cursor: Cursor | None) -> None:
        self._state = dict(cursor or {"since": dt.datetime.now(dt.UTC).isoformat(), "number": 0})
        if cursor is None and self.options.start == "latest":
            self._state["value"], _ = await self._look()

    async def read(self) -> AsyncIterator[Delivery]:
        # A crash before the first event must not change the ids, nor the value to compare with.
        yield Delivery([], cursor=dict(self._state))
        while True:
            began = time.monotonic()
            value, data = await self._look()
            before, self._state["value"] = self._state.get("value"), value
            if self._is_news(before, value):
                self._state["number"] += 1
                yield self._delivery(
                    data if self.options.mode == "condition" else {**data, "previous": before}
                )
            elif value != before:
                yield Delivery([], cursor=dict(self._state))
            await self.rest(began)

    async def _look(self) -> tuple[Any, dict[str, Any]]:
        """The count, or whether the condition holds, and what an event says about it."""
        options = self.options
        if options.mode == "count":
            _, rows = await self.ask(self.statements.count())
            count = int(rows[0][0])
            return count, {"table": options.table, "count": count, "threshold": options.threshold}
        names, rows = await self.ask((options.query, []) if options.query else self.statements.first())
        holds = bool(rows) and (options.query is None or is_true(rows[0][0]))
        return holds, dict(zip(names, rows[0], strict=True)) if rows else {}

    def _is_news(self, before: Any, value: Any) -> bool:
        threshold, repeat = self.options.threshold, self.options.repeat
        if self.options.mode == "condition":
            return bool(value and (repeat or not before))
        if threshold is None:
            return bool(value != before)
        return bool(value >= threshold and (repeat or before is None or before < threshold))

    def _delivery(self, data: dict[str, Any]) -> Delivery:
        name, cursor = self.options.table or "query", dict(self._state)
        try:
            event = Event.make(
                data,
                id=f"{name}/{cursor['since']}/{cursor['number']}",
                source=self.source,
                type=f"windsock.sql.{self.options.mode}",
                time=dt.datetime.now(dt.UTC),
                subject=name,
                key=name,
                sequence=cursor["number"],
            )
        except InvalidEvent as error:
            body = repr(data).encode("utf-8", "backslashreplace")
            return Delivery([], cursor=cursor, dead=[unreadable(body, error, where=name)])
        return Delivery([event], cursor=cursor)


def is_true(value: Any) -> bool:
    """Whether a value of a flag column means yes, in any of the ways in which people write that."""
    if isinstance(value, bytes | bytearray):
        return any(value)
    return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)
