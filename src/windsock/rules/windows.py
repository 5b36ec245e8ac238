"""Windows in event time: tumbling, sliding, session, with aggregates and a policy for late data.

Tumbling and sliding windows begin at multiples of ``every`` since 1970-01-01 UTC. Their events are counted in
panes of that length, which neighbouring windows share, so an event costs the same however many windows it is
in. A window's result is out when the watermark has passed its end; what comes later is *late*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from windsock.events import Event
from windsock.pipeline.expressions import Failure
from windsock.rules.aggregates import Aggregates, Tally
from windsock.rules.base import Arrival, Late, Machine, Result, Rule, Turn, iso

__all__ = ["Window"]

MAX_PANES = 1000
"""The most windows that one event may be in."""


class Window(Rule, frozen=True, kw_only=True, tag="window"):
    """Aggregates of the events of a window; one result for each key and window that has any."""

    kind: Literal["tumbling", "sliding", "session"] = "tumbling"
    size: float = 0.0
    """The length of a tumbling or sliding window."""
    every: float = 0.0
    """How often a sliding window begins; a divisor of ``size``."""
    gap: float = 0.0
    """A session ends when nothing came for so long."""
    aggregates: dict[str, str] = {}
    """name → ``count``, ``sum:<expression>``, ``min:``, ``max:``, ``avg:``, ``quantile:<share>:``. The
    number of events is in every result."""
    late: Late = "ignore"
    late_for: float = 3600.0
    """How long after its end a window still takes late events; after that they are ignored."""

    def check(self) -> None:
        super().check()
        if self.kind == "session":
            self.refuse(not self.gap > 0, "a session needs gap, such as '30min'")
            self.refuse(bool(self.size or self.every), "a session has neither size nor every")
            return
        self.refuse(not self.size > 0, f"a {self.kind} window needs size, such as '1h'")
        self.refuse(bool(self.gap), "only a session has a gap")
        if self.kind == "sliding":
            self.refuse(not self.every > 0, "a sliding window needs every, such as '5min'")
            panes = self.size / self.every
            whole = math.isclose(panes, round(panes)) and 1 <= round(panes) <= MAX_PANES
            self.refuse(not whole, f"size must be a multiple of every, at most {MAX_PANES} times as long")
        else:
            self.refuse(bool(self.every), "a tumbling window has no every: use kind='sliding'")

    def compile(self, watcher: str) -> Machine[Any]:
        aggregates = Aggregates(self.aggregates, watcher=watcher)
        return _Sessions(self, aggregates) if self.kind == "session" else _Panes(self, aggregates)


class _Windowed:
    """What both machines share."""

    ordered = False
    by_arrival = False
    slim = True

    def __init__(self, rule: Window, aggregates: Aggregates) -> None:
        self.rule = rule
        self.aggregates = aggregates
        self.late_for = 0.0 if rule.late == "ignore" else rule.late_for

    def read(self, event: Event, leg: int) -> list[float] | Failure:
        return self.aggregates.read(event)

    def begin(self, key: str, now: float) -> Any:
        return None

    def result(
        self, tally: Tally, start: float, end: float, revision: int, before: Tally | None = None
    ) -> Result:
        """The result of a window; with ``before`` a late one, as the policy wants it."""
        data = {
            "rule": "window",
            "start": iso(start),
            "end": iso(end),
            "count": tally.n,
            "values": self.aggregates.values(tally),
            "revision": revision,
        }
        amends = before is not None and before.n > 0 and self.rule.late == "amend"
        if amends and before is not None:
            data["before"] = self.aggregates.values(before)
        return Result(
            name=f"{start}/{revision}",
            data=data,
            causes=tally.causes,
            time=end,
            suffix=".amended" if amends else "",
            amends=f"{start}/{revision - 1}" if revision > 1 else None,
        )


class Panes(msgspec.Struct, array_like=True):
    """Tallies by pane, the last window that is out, and how often each was told."""

    passed: int
    panes: dict[int, Tally]
    told: dict[int, int]


class _Panes(_Windowed):
    state = Panes

    def __init__(self, rule: Window, aggregates: Aggregates) -> None:
        super().__init__(rule, aggregates)
        self.every = rule.every or rule.size
        self.width = round(rule.size / self.every)

    def arrive(self, state: Panes | None, arrival: Arrival, turn: Turn) -> Panes | None:
        panes = state or Panes(0, {}, {})
        self._pass(panes, math.ceil(turn.watermark / self.every) - 1, turn)
        pane = math.floor(arrival.time / self.every)
        ends = range(pane + 1, pane + self.width + 1)
        out = [end for end in ends if end <= panes.passed]
        again = [end for end in out if end * self.every + self.late_for >= turn.watermark]
        if self.rule.late == "ignore":
            again = []
        if not again and len(out) == len(ends):
            turn.end(arrival, "late", f"its last window ended at {iso(ends[-1] * self.every)}")
            return panes if panes.panes else None
        before = {end: self._tally(panes, end) for end in again}
        self.aggregates.add(panes.panes.setdefault(pane, Tally()), arrival)
        for end in again:
            self._tell(panes, end, turn, before[end])
        return panes

    def ring(self, state: Panes, at: float, turn: Turn) -> Panes | None:
        self._pass(state, math.floor(at / self.every), turn)
        for pane in [
            pane for pane in state.panes if self._done(pane) <= at and pane + self.width <= state.passed
        ]:
            del state.panes[pane]
        state.told = {
            end: times for end, times in state.told.items() if end * self.every + self.late_for > at
        }
        return state if state.panes else None

    def _pass(self, state: Panes, last: int, turn: Turn) -> None:
        """Every window up to this one is out."""
        while (end := self._next(state)) is not None and end <= last:
            state.passed = end
            self._tell(state, end, turn)
        state.passed = max(state.passed, last)

    def _next(self, state: Panes) -> int | None:
        """The end of the next window that has events and is not out."""
        ends = [max(pane, state.passed) + 1 for pane in state.panes if pane + self.width > state.passed]
        return min(ends, default=None)

    def _done(self, pane: int) -> float:
        """When nobody needs a pane any more."""
        return (pane + self.width) * self.every + self.late_for

    def _tally(self, state: Panes, end: int) -> Tally:
        tally = Tally()
        for pane in range(end - self.width, end):
            if pane in state.panes:
                tally.merge(state.panes[pane])
        return tally

    def _tell(self, state: Panes, end: int, turn: Turn, before: Tally | None = None) -> None:
        state.told[end] = state.told.get(end, 0) + 1
        close = end * self.every
        tally = self._tally(state, end)
        turn.results.append(self.result(tally, close - self.rule.size, close, state.told[end], before))

    def due(self, state: Panes) -> float | None:
        end = self._next(state)
        done = min(self._done(pane) for pane in state.panes)
        return done if end is None else min(end * self.every, done)

    def held(self, state: Panes) -> Sequence[Arrival]:
        return [cause for tally in state.panes.values() for cause in tally.causes]

    def waiting(self, state: Panes) -> str:
        end = self._next(state)
        return "is out" if end is None else f"waits for the end of the window at {iso(end * self.every)}"


class Session(msgspec.Struct, array_like=True):
    """A session: its first and last event, and how often it was told."""

    start: float
    last: float
    tally: Tally
    told: int = 0
    open: bool = True
    name: float = 0.0
    """The start under which it was first told."""


class SessionList(msgspec.Struct, array_like=True):
    """The sessions of a key, oldest first."""

    sessions: list[Session]


class _Sessions(_Windowed):
    state = SessionList

    def __init__(self, rule: Window, aggregates: Aggregates) -> None:
        super().__init__(rule, aggregates)
        self.gap = rule.gap

    def arrive(self, state: SessionList | None, arrival: Arrival, turn: Turn) -> SessionList | None:
        known = (state or SessionList([])).sessions
        joined = [one for one in known if one.start - self.gap <= arrival.time <= one.last + self.gap]
        end = max([arrival.time, *(one.last for one in joined)]) + self.gap
        is_late = end < turn.watermark
        if is_late and (self.rule.late == "ignore" or end + self.late_for < turn.watermark):
            turn.end(arrival, "late", f"its session ended at {iso(end)}")
            return state
        tally, before = Tally(), Tally()
        for one in joined:
            tally.merge(one.tally)
            before.merge(one.tally)
        self.aggregates.add(tally, arrival)
        told = [one for one in joined if one.told]
        session = Session(
            start=min([arrival.time, *(one.start for one in joined)]),
            last=end - self.gap,
            tally=tally,
            told=max((one.told for one in joined), default=0),
            name=told[0].name if told else 0.0,
        )
        if is_late:
            self._tell(session, turn, before)
        rest = [one for one in known if one not in joined]
        return SessionList(sorted([*rest, session], key=lambda one: one.start))

    def ring(self, state: SessionList, at: float, turn: Turn) -> SessionList | None:
        for one in state.sessions:
            if one.open and one.last + self.gap <= at:
                self._tell(one, turn)
        state.sessions = [
            one for one in state.sessions if one.open or one.last + self.gap + self.late_for > at
        ]
        return state if state.sessions else None

    def _tell(self, session: Session, turn: Turn, before: Tally | None = None) -> None:
        if not session.told:
            session.name = session.start
        session.told += 1
        session.open = False
        end = session.last + self.gap
        result = self.result(session.tally, session.start, end, session.told, before)
        result.name = f"{session.name}/{session.told}"
        result.amends = f"{session.name}/{session.told - 1}" if session.told > 1 else None
        turn.results.append(result)

    def due(self, state: SessionList) -> float | None:
        return min(one.last + self.gap + (0.0 if one.open else self.late_for) for one in state.sessions)

    def held(self, state: SessionList) -> Sequence[Arrival]:
        return [cause for one in state.sessions for cause in one.tally.causes]

    def waiting(self, state: SessionList) -> str:
        last = state.sessions[-1]
        return f"waits for {self.gap:g} s without an event, since {iso(last.last)}"
