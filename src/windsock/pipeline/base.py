"""The pipeline contract: a step takes a list of events and returns one.

::

    read ──▶ [ filter ] ──▶ [ key ] ──▶ [ dedupe ] ──▶ log.append ──▶ batch
                 │ no            │ fails      │ fails          │ seen before
                 ▼               ▼            ▼                ▼
              filtered      dead letter  dead letter       duplicate

A step decides on each event by itself and never raises for one: an event that it cannot handle leaves
through ``dead``, its neighbours stay. Steps are pure, hold no state and are safe to run in a thread. What
needs memory (dedupe, batch) is only *labelled* here; the log decides it inside the append transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from windsock.events import DeadLetter, Event

__all__ = ["Result", "Step"]


@dataclass(slots=True)
class Result:
    """What a step made of a list of events."""

    kept: list[Event]
    filtered: list[Event] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)


class Step(Protocol):
    """One stage on an event's way."""

    name: str

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into kept, filtered and dead, keeping their order."""
        ...
