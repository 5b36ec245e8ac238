"""A source on top of another: object stores that notify a queue, change events that travel through Kafka.

The inner source reads, acks and knows its position; the derived one only translates what it delivers. It
names the inner one by its kind, so that sources still do not know each other::

    class S3Source(Derived):
        def inner(self): return "sqs", {"conn_id": self.options.conn_id, "queue": ..., "format": "bytes"}
        def translate(self, event): return [...], []
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from windsock.connections import UsesConnection
from windsock.events import DeadLetter, Event
from windsock.sources import make_source
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Source

__all__ = ["Derived"]


class Derived(UsesConnection, ABC):
    """Reads through another source; see the module's docstring."""

    _source: Source | None = None

    @abstractmethod
    def inner(self) -> tuple[str, dict[str, Any]]:
        """The kind and the options of the source to read through."""

    @abstractmethod
    def translate(self, event: Event) -> tuple[Sequence[Event], Sequence[DeadLetter]]:
        """What one event of the inner source means: any number of events, and what could not become one."""

    def arrange(self, events: list[Event]) -> list[Event]:
        """The translated events of one delivery in the order in which they go on; by default as they came."""
        return events

    async def connect(self, cursor: Cursor | None) -> None:
        self._source = make_source(*self.inner(), self.connections)
        await self._source.connect(cursor)

    async def read(self) -> AsyncIterator[Delivery]:
        if self._source is not None:
            async for delivery in self._source.read():
                for part in self._parts(delivery):
                    yield part

    async def lag(self) -> int | None:
        return None if self._source is None else await self._source.lag()

    async def close(self) -> None:
        if self._source is not None:
            await self._source.close()

    def _parts(self, delivery: Delivery) -> list[Delivery]:
        """The translated delivery in parts of the allowed size; the last has the cursor and the ack."""
        events: list[Event] = []
        dead = list(delivery.dead)
        for event in delivery.events:
            made, unreadable = self.translate(event)
            events += made
            dead += unreadable
        events = self.arrange(events)
        starts = range(0, max(len(events), len(dead), 1), MAX_DELIVERY)
        parts = [
            Delivery(events[start : start + MAX_DELIVERY], dead=dead[start : start + MAX_DELIVERY])
            for start in starts
        ]
        last = parts.pop()
        return [*parts, Delivery(last.events, cursor=delivery.cursor, ack=delivery.ack, dead=last.dead)]
