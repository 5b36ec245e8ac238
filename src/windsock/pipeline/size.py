"""The size cap: what is larger than the watcher's ``max_bytes`` becomes a dead letter.

The cap is on the encoded event. The encoded form is handed on, so that the log need not encode again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windsock.events import DeadLetter, Event
from windsock.pipeline.base import set_aside
from windsock.values import describe

__all__ = ["SizeStep", "Sized"]


@dataclass(slots=True)
class Sized:
    """The events that fit, the encoded form of each, and those that do not."""

    kept: list[Event]
    bodies: list[bytes]
    dead: list[DeadLetter] = field(default_factory=list)


class SizeStep:
    """Encodes events and keeps those that are small enough."""

    name = "size"

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def apply(self, events: Sequence[Event]) -> Sized:
        """Sort the events into kept, with their bodies, and dead."""
        try:
            bodies = [event.encode() for event in events]
            if max(map(len, bodies), default=0) <= self._max_bytes:
                return Sized(list(events), bodies)
        except Exception:  # noqa: BLE001, S110 - one of them cannot be encoded; found one by one below
            pass
        sized = Sized([], [])
        for event in events:
            self._add(event, sized)
        return sized

    def _add(self, event: Event, sized: Sized) -> None:
        try:
            body = event.encode()
        except Exception as error:  # noqa: BLE001 - an event built past Event.make may hold any object
            reason = "the event cannot be encoded as JSON"
            sized.dead.append(set_aside(event, stage=self.name, reason=reason, error=describe(error)))
            return
        if len(body) > self._max_bytes:
            reason = f"the event has {len(body)} bytes, more than max_bytes={self._max_bytes}"
            sized.dead.append(set_aside(event, stage=self.name, reason=reason))
        else:
            sized.kept.append(event)
            sized.bodies.append(body)
