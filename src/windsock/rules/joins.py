"""Joins: all of several events, any of them, or one after the other.

Events pair first in, first out: each is part of at most one result, and what finds no partner in time ends
as *expired*.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence as Several
from typing import Any

import msgspec

from windsock.events import Event
from windsock.rules.base import Arrival, Machine, Result, Rule, Turn, stable_id

__all__ = ["AllOf", "AnyOf", "Sequence"]

MAX_WAITING = 1000
"""Events of one leg, or begun sequences, that wait under one key; of more the oldest ends as evicted."""


class AllOf(Rule, frozen=True, kw_only=True, tag="all_of"):
    """One event of every leg, no further apart than ``within``."""

    within: float

    def check(self) -> None:
        super().check()
        self.refuse(len(self.legs) < 2, "name at least two legs")
        self.refuse(not self.within > 0, "within must be a time, such as '1h'")

    def compile(self, watcher: str) -> Machine[Any]:
        return _AllOf(self)


class AnyOf(Rule, frozen=True, kw_only=True, tag="any_of"):
    """An event of any leg; with ``within``, what follows it in that time does not count again."""

    within: float = 0.0

    def compile(self, watcher: str) -> Machine[Any]:
        return _AnyOf(self)


class Sequence(Rule, frozen=True, kw_only=True, tag="sequence"):
    """An event of each leg in the order of the legs, all ``within`` one time."""

    within: float

    def check(self) -> None:
        super().check()
        self.refuse(len(self.legs) < 2, "name at least two legs")
        self.refuse(not self.within > 0, "within must be a time, such as '1h'")

    def compile(self, watcher: str) -> Machine[Any]:
        return _Sequence(self)


def _place(arrival: Arrival) -> tuple[float, str]:
    return arrival.time, arrival.id


class _Joined:
    """What the machines of this file share."""

    ordered = True
    by_arrival = False
    slim = False

    def __init__(self, rule: Rule) -> None:
        self.labels = [leg.label for leg in rule.all_legs()]

    def read(self, event: Event, leg: int) -> Any:
        return None

    def begin(self, key: str, now: float) -> Any:
        return None

    def found(self, kind: str, arrivals: Several[Arrival]) -> Result:
        """The result that these events make, one for each leg."""
        return Result(
            name=stable_id(*(arrival.id for arrival in arrivals)),
            data={"rule": kind, "legs": {self.labels[one.leg]: one.data for one in arrivals}},
            causes=arrivals,
            time=max(arrival.time for arrival in arrivals),
        )


class Queues(msgspec.Struct, array_like=True):
    """The events that wait, one queue for each leg, oldest first."""

    legs: list[list[Arrival]]


class _AllOf(_Joined):
    state = Queues

    def __init__(self, rule: AllOf) -> None:
        super().__init__(rule)
        self.within = rule.within

    def arrive(self, state: Queues | None, arrival: Arrival, turn: Turn) -> Queues | None:
        queues = state or Queues([[] for _ in self.labels])
        queue = queues.legs[arrival.leg]
        insort(queue, arrival, key=_place)
        if len(queue) > MAX_WAITING:
            turn.end(queue.pop(0), "evicted", f"more than {MAX_WAITING} events of this leg wait")
        while all(queues.legs):
            heads = [queue[0] for queue in queues.legs]
            first, last = min(heads, key=_place), max(heads, key=_place)
            if last.time - first.time <= self.within:
                turn.results.append(self.found("all_of", heads))
                for queue in queues.legs:
                    queue.pop(0)
            else:
                self._expire(queues.legs[first.leg], turn)
        return queues if any(queues.legs) else None

    def ring(self, state: Queues, at: float, turn: Turn) -> Queues | None:
        for queue in state.legs:
            while queue and queue[0].time + self.within <= at:
                self._expire(queue, turn)
        return state if any(state.legs) else None

    def _expire(self, queue: list[Arrival], turn: Turn) -> None:
        arrival = queue.pop(0)
        others = ", ".join(label for n, label in enumerate(self.labels) if n != arrival.leg)
        turn.end(arrival, "expired", f"no partner of {others} within {self.within:g} s")

    def due(self, state: Queues) -> float | None:
        return min((queue[0].time for queue in state.legs if queue), default=0.0) + self.within

    def held(self, state: Queues) -> list[Arrival]:
        return [arrival for queue in state.legs for arrival in queue]

    def waiting(self, state: Queues) -> str:
        missing = [label for label, queue in zip(self.labels, state.legs, strict=True) if not queue]
        return f"waits for {', '.join(missing)}"


class Quiet(msgspec.Struct, array_like=True):
    """Until when further events do not count."""

    until: float


class _AnyOf(_Joined):
    state = Quiet

    def __init__(self, rule: AnyOf) -> None:
        super().__init__(rule)
        self.within = rule.within

    def arrive(self, state: Quiet | None, arrival: Arrival, turn: Turn) -> Quiet | None:
        if state is not None and arrival.time <= state.until:
            turn.end(arrival, "coalesced", f"another event came less than {self.within:g} s before")
            return state
        turn.results.append(self.found("any_of", [arrival]))
        return Quiet(arrival.time + self.within) if self.within else None

    def ring(self, state: Quiet, at: float, turn: Turn) -> Quiet | None:
        return None

    def due(self, state: Quiet) -> float | None:
        return state.until

    def held(self, state: Quiet) -> list[Arrival]:
        return []

    def waiting(self, state: Quiet) -> str:
        return "was answered; further events do not count yet"


class Runs(msgspec.Struct, array_like=True):
    """The sequences that have begun, oldest first."""

    runs: list[list[Arrival]]


class _Sequence(_Joined):
    state = Runs

    def __init__(self, rule: Sequence) -> None:
        super().__init__(rule)
        self.within = rule.within

    def arrive(self, state: Runs | None, arrival: Arrival, turn: Turn) -> Runs | None:
        runs = (state or Runs([])).runs
        if arrival.leg == 0:
            insort(runs, [arrival], key=lambda run: _place(run[0]))
            if len(runs) > MAX_WAITING:
                self._end(runs.pop(0), turn, "evicted", f"more than {MAX_WAITING} sequences have begun")
        else:
            fits = (run for run in runs if self._fits(run, arrival))
            run = next(fits, None)
            if run is None:
                before = self.labels[arrival.leg - 1]
                turn.end(arrival, "unmatched", f"no sequence has come to {before} and waits for it")
            else:
                run.append(arrival)
                if len(run) == len(self.labels):
                    runs.remove(run)
                    turn.results.append(self.found("sequence", run))
        return Runs(runs) if runs else None

    def _fits(self, run: list[Arrival], arrival: Arrival) -> bool:
        return (
            len(run) == arrival.leg
            and run[-1].time <= arrival.time
            and arrival.time - run[0].time <= self.within
        )

    def ring(self, state: Runs, at: float, turn: Turn) -> Runs | None:
        while state.runs and state.runs[0][0].time + self.within <= at:
            run = state.runs.pop(0)
            self._end(run, turn, "expired", f"no {self.labels[len(run)]} within {self.within:g} s")
        return state if state.runs else None

    def _end(self, run: list[Arrival], turn: Turn, verdict: str, reason: str) -> None:
        for arrival in run:
            turn.end(arrival, verdict, reason)

    def due(self, state: Runs) -> float | None:
        return state.runs[0][0].time + self.within

    def held(self, state: Runs) -> list[Arrival]:
        return [arrival for run in state.runs for arrival in run]

    def waiting(self, state: Runs) -> str:
        return f"waits for {self.labels[len(state.runs[0])]}"
