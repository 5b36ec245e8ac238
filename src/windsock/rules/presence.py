"""Presence: what did not come in time, and what came often."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

import msgspec

from windsock.events import Event
from windsock.rules.base import Arrival, Leg, Machine, Result, Rule, Turn, iso, stable_id

__all__ = ["Absence", "Count"]

MAX_COUNT = 10_000
"""The most events that one count may ask for: they are remembered by key."""


class Absence(Rule, frozen=True, kw_only=True, tag="absence"):
    """No event of the legs for ``within``: since the last one, or since an event of ``after``.

    Without ``by`` and ``after`` the silence counts from the moment that the rule begins. Each silence is told
    once; the next event begins another. With ``by`` a key is watched from its first event on.
    """

    within: float
    after: Leg | str | None = None
    """The event after which one of the legs is expected."""

    def all_legs(self) -> tuple[Leg, ...]:
        start = () if self.after is None else (self.after,)
        return tuple(Leg(watcher=leg) if isinstance(leg, str) else leg for leg in (*self.legs, *start))

    def check(self) -> None:
        super().check()
        self.refuse(not self.legs, "name the watcher whose events are expected")
        self.refuse(not self.within > 0, "within must be a time, such as '10min'")

    def compile(self, watcher: str) -> Machine[Any]:
        return _Absence(self)


class Count(Rule, frozen=True, kw_only=True, tag="count"):
    """``n`` events of the legs within a time. They are counted once: the next result needs ``n`` new ones."""

    n: int
    within: float

    def check(self) -> None:
        super().check()
        self.refuse(not 1 <= self.n <= MAX_COUNT, f"n must be between 1 and {MAX_COUNT}")
        self.refuse(not self.within > 0, "within must be a time, such as '5min'")

    def compile(self, watcher: str) -> Machine[Any]:
        return _Count(self)


class Silence(msgspec.Struct, array_like=True):
    """Since when it is silent, and when that is too long."""

    since: float
    due: float | None
    last: Arrival | None = None


class _Absence:
    state = Silence
    ordered = True
    by_arrival = False
    slim = False

    def __init__(self, rule: Absence) -> None:
        self.labels = [leg.label for leg in rule.all_legs()]
        self.start = len(self.labels) - 1 if rule.after is not None else None
        self.within = rule.within
        self.keyed = rule.by is not None
        self.expected = self.labels if self.start is None else self.labels[:-1]

    def read(self, event: Event, leg: int) -> Any:
        return None

    def begin(self, key: str, now: float) -> Silence | None:
        return None if self.keyed or self.start is not None else Silence(now, now + self.within)

    def arrive(self, state: Silence | None, arrival: Arrival, turn: Turn) -> Silence | None:
        if self.start is None:
            since = max(arrival.time, state.since if state else arrival.time)
            return Silence(since, since + self.within, arrival)
        if arrival.leg == self.start:
            return state or Silence(arrival.time, arrival.time + self.within, arrival)
        # What came before the start is no answer to it.
        return None if state is None or arrival.time >= state.since else state

    def ring(self, state: Silence, at: float, turn: Turn) -> Silence | None:
        last = [] if state.last is None else [state.last]
        turn.results.append(
            Result(
                name=stable_id(state.since, *(arrival.id for arrival in last)),
                data={
                    "rule": "absence",
                    "missing": self.expected,
                    "since": iso(state.since),
                    "within": self.within,
                    "legs": {self.labels[arrival.leg]: arrival.data for arrival in last},
                },
                causes=last,
                time=state.since + self.within,
            )
        )
        return None if self.keyed or self.start is not None else Silence(state.since, None)

    def due(self, state: Silence) -> float | None:
        return state.due

    def held(self, state: Silence) -> Sequence[Arrival]:
        return [] if state.last is None or self.start is None else [state.last]

    def waiting(self, state: Silence) -> str:
        when = "told" if state.due is None else f"to be told at {iso(state.due)}"
        return f"silent since {iso(state.since)}, {when}"


class Counted(msgspec.Struct, array_like=True):
    """The events that count, oldest first."""

    events: list[Arrival]


class _Count:
    state = Counted
    ordered = True
    by_arrival = False
    slim = True

    def __init__(self, rule: Count) -> None:
        self.n, self.within = rule.n, rule.within

    def read(self, event: Event, leg: int) -> Any:
        return None

    def begin(self, key: str, now: float) -> Counted | None:
        return None

    def arrive(self, state: Counted | None, arrival: Arrival, turn: Turn) -> Counted | None:
        events = (state or Counted([])).events
        insort(events, arrival, key=lambda one: (one.time, one.id))
        self._expire(events, events[-1].time - self.within, turn)
        if len(events) < self.n:
            return Counted(events)
        turn.results.append(
            Result(
                name=stable_id(*(one.id for one in events)),
                data={
                    "rule": "count",
                    "count": len(events),
                    "first": iso(events[0].time),
                    "last": iso(events[-1].time),
                },
                causes=events,
                time=events[-1].time,
            )
        )
        return None

    def ring(self, state: Counted, at: float, turn: Turn) -> Counted | None:
        # What is as old as the window is long still counts with an event of this very moment.
        self._expire(state.events, at - self.within, turn, inclusive=True)
        return state if state.events else None

    def _expire(self, events: list[Arrival], before: float, turn: Turn, *, inclusive: bool = False) -> None:
        while events and (events[0].time < before or (inclusive and events[0].time <= before)):
            turn.end(events.pop(0), "expired", f"fewer than {self.n} events within {self.within:g} s")

    def due(self, state: Counted) -> float | None:
        return state.events[0].time + self.within

    def held(self, state: Counted) -> Sequence[Arrival]:
        return state.events

    def waiting(self, state: Counted) -> str:
        return f"has {len(state.events)} of {self.n} events"
