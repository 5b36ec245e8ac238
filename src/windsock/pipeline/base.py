"""The pipeline contract: a step takes a list of events and returns one.

::

    read ──▶ [ filter ] ──▶ [ key ] ──▶ [ size ] ──▶ [ dedupe ] ──▶ log.append ──▶ batch
                 │ no           │ fails     │ too large   │ fails         │ seen before
                 ▼              ▼           ▼             ▼               ▼
              filtered     dead letter  dead letter   dead letter     duplicate

A step decides on each event by itself and never raises for one: an event that it cannot handle leaves
through ``dead``, its neighbours stay. Steps are pure, hold no state and are safe to run in a thread. What
needs memory (dedupe, batch) is only *labelled* here; the log decides it inside the append transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windsock.events import Category, DeadLetter, Event, Verdict
from windsock.values import describe

__all__ = ["Result", "Step", "set_aside"]


@dataclass(slots=True)
class Result:
    """What a step made of a list of events."""

    kept: list[Event]
    filtered: list[Verdict] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)


class Step(Protocol):
    """One stage on an event's way."""

    name: str

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into kept, filtered and dead, keeping their order."""
        ...


def set_aside(event: Event, *, stage: str, reason: str, error: str | None = None) -> DeadLetter:
    """The dead letter of an event that a step cannot handle, also if it is one that cannot be encoded."""
    try:
        body = event.encode()
    except Exception as problem:  # noqa: BLE001 - an event built past Event.make may hold any object
        body = f"{event.type} {event.id} from {event.source}: {describe(problem)}".encode("utf-8", "replace")
    return DeadLetter(
        stage=stage, category=Category.INVALID, reason=reason, error=error, body=body, event_id=event.id
    )
