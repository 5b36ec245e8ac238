"""Which partitions are ours, and how far each was read and acked.

A partition is ours from the moment it is assigned until it is revoked; each such time has its own
:class:`Place`. An ack that comes after the revocation finds its place lost and commits nothing, even if the
partition has become ours again since: the messages come again from the committed offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Mark", "Place", "Places", "ack"]


@dataclass(eq=False, slots=True)
class Place:
    """How far one partition was read while it was ours. Changed by two threads, one field by one of them."""

    topic: str
    partition: int
    began: int
    """The offset that was committed when it was assigned."""
    taken: int
    """The offset behind the last message that was handed over."""
    acked: int
    """The offset behind the last message that was acked."""
    end: int = 0
    """The offset that was reached when there was nothing more to read; aborted transactions leave a gap
    between the last message and this one."""
    ours: bool = True
    dirty: bool = False
    """Whether something was acked that has not been committed."""

    def lag(self, end: int) -> int:
        """What waits behind the last ack; what is no message (the marks of transactions) does not count."""
        reached = max(self.acked, self.end) if self.acked == self.taken else self.acked
        return max(0, end - reached)


Mark = tuple[Place, int]
"""An ack of this batch means: this place is done up to this offset."""


class Places:
    """The partitions that are ours now."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], Place] = {}

    def all(self) -> list[Place]:
        """Every place that is ours."""
        return list(self._places.values())

    def assigned(self, partitions: Iterable[Any]) -> None:
        """Partitions have become ours, to be read from their offsets on."""
        for p in partitions:
            self._places[p.topic, p.partition] = Place(
                p.topic, p.partition, began=p.offset, taken=p.offset, acked=p.offset
            )

    def revoked(self, partitions: Iterable[Any]) -> list[Place]:
        """Partitions are not ours any more; their places."""
        lost = [place for p in partitions if (place := self._places.pop((p.topic, p.partition), None))]
        for place in lost:
            place.ours = False
        return lost

    def taken(self, messages: Sequence[Any], fail: Callable[[Any], None]) -> tuple[list[Any], list[Mark]]:
        """Those of the messages that are to be delivered, and the marks for their ack.

        ``fail`` is called with a message that is an error.
        """
        kept: list[Any] = []
        last: dict[tuple[str, int], int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                kept.append(message)
                last[message.topic(), message.partition()] = message.offset() + 1
            elif error.name() != "_PARTITION_EOF":
                fail(message)
            elif place := self._places.get((message.topic(), message.partition())):
                place.end = message.offset()
        marks = []
        for where, offset in last.items():
            # A message of a partition that was revoked meanwhile is delivered without a mark: its next
            # owner reads it as well, and the log knows it by its id.
            if place := self._places.get(where):
                place.taken = offset
                marks.append((place, offset))
        return kept, marks


def ack(marks: Iterable[Mark]) -> None:
    """Note that everything up to the marks is stored, where the places are still ours."""
    for place, offset in marks:
        if place.ours:
            place.acked = offset
            place.dirty = True
