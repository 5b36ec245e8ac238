"""The correlator: takes the events of a rule's legs in the order of their arrival, and finds results.

It does no input or output. Whoever drives it stores what :meth:`Correlator.collect` gives, all of it in one
transaction, and after a restart gives back what was stored: results are then neither lost nor doubled.

Time is the log's: :meth:`Correlator.advance` is told how far arrivals have been read, and everything that is
due by then happens in the order of event time. A correlator that was down for an hour therefore decides as if
it had not been, and does not take its own absence for that of the events.

Memory is bounded by ``max_keys``. When there is one more, the key with the nearest deadline is dropped: it
would have been the first to go anyway. Its events end as *evicted*, which is counted and logged.
"""

from __future__ import annotations

import heapq
import logging
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from windsock.events import Event, Verdict, clean_text
from windsock.log.records import Remembered, StoredEvent
from windsock.pipeline.expressions import Evaluate, Failure, compile_condition, compile_text
from windsock.rules.base import KEPT_CAUSES, Arrival, Leg, Machine, Result, Rule, Turn, stable_id
from windsock.values import describe

__all__ = ["SETTLE", "Correlator", "Found"]

logger = logging.getLogger(__name__)

SETTLE = 1.0
"""Seconds that a commit may take: what arrived before that is there for everybody."""
FULL = 1000
"""Results after which what was found is stored."""
MAX_KEYS = 100_000
MAX_HELD = 1000
"""Events of one key that are held back for the lateness; of more the earliest takes its turn."""
STAGE = "correlate"

S = TypeVar("S")


class Cell(msgspec.Struct, Generic[S], array_like=True):
    """What is known of one key: the machine's state, and events that wait for their turn."""

    state: S | None
    waiting: list[Arrival]


class Found(msgspec.Struct):
    """What is to be stored together."""

    events: list[Event]
    state: dict[str, Remembered | None]
    verdicts: list[Verdict]


class _Broken(Exception):
    """A machine raised over an event, or over an alarm."""

    def __init__(self, error: Exception, arrival: Arrival | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.arrival = arrival


class Correlator:
    """See the module's docstring. ``name`` is the watcher that gets the results."""

    def __init__(self, name: str, rule: Rule, *, max_keys: int = MAX_KEYS, settle: float = SETTLE) -> None:
        self.name = name
        self.max_keys = max_keys
        self.clock = 0.0
        """How far arrivals have been read, in the log's time."""
        self._settle = settle
        self._cells: dict[str, bytes] = {}
        self._wakes: dict[str, float] = {}
        self._alarms: list[tuple[float, str]] = []
        self._found = Found([], {}, [])
        self._evicted = 0
        self.adopt(rule, rule.compile(name))

    def adopt(self, rule: Rule, machine: Machine[Any]) -> None:
        """Go on with this rule; what is known is kept."""
        self.rule = rule
        self._machine = machine
        self._legs = _compiled_legs(self.name, rule.all_legs())
        self._key = rule.by and compile_text(rule.by, watcher=self.name, option="rule.by")
        self._decoder = msgspec.msgpack.Decoder(Cell[machine.state])  # type: ignore[name-defined]
        self._encoder = msgspec.msgpack.Encoder()
        for key, body in self._cells.items():
            self._wake(key, self._decoder.decode(body))

    # what is known

    def load(self, states: Iterable[tuple[str, Remembered]]) -> None:
        """Take up what was stored; what this rule cannot read is forgotten."""
        for key, (body, _) in states:
            try:
                cell = self._decoder.decode(body)
            except msgspec.MsgspecError:
                self._found.state[key] = None
                continue
            self._cells[key] = body
            self._wake(key, cell)

    def begin(self, now: float, key: str = "") -> None:
        """Some rules count from their beginning, not from the first event."""
        state = self._machine.begin(key, now)
        if state is not None and key not in self._cells:
            self._put(key, Cell(state, []))

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is stored of these keys."""
        for key in keys:
            self._cells.pop(key, None)
            self._wakes.pop(key, None)
            self._found.state[key] = None

    def __len__(self) -> int:
        """How many keys are live."""
        return len(self._cells)

    def keys(self) -> set[str]:
        """The live keys."""
        return set(self._cells)

    @property
    def full(self) -> bool:
        """Whether what was found should be stored before anything else happens."""
        return len(self._found.events) >= FULL or len(self._found.verdicts) >= FULL

    def next_wake(self) -> float | None:
        """When something is due, in the log's time."""
        while self._alarms:
            wake, key = self._alarms[0]
            if self._wakes.get(key) == wake:
                return wake
            heapq.heappop(self._alarms)
        return None

    def explain(self, body: bytes) -> str:
        """What a stored key waits for, in words."""
        cell = self._decoder.decode(body)
        held = f"{len(cell.waiting)} events wait for their turn; " if cell.waiting else ""
        return held + ("" if cell.state is None else self._machine.waiting(cell.state))

    # what happens

    def advance(self, clock: float) -> bool:
        """Let everything happen that is due before this time; False if it stopped because it is full."""
        while (wake := self.next_wake()) is not None and wake < clock:
            if self.full:
                return False
            self.clock = max(self.clock, wake)
            self._play(self._alarms[0][1], clock)
        self.clock = max(self.clock, clock)
        return True

    def take(self, stored: StoredEvent) -> None:
        """An event has arrived. Call :meth:`advance` with its arrival before."""
        self.clock = max(self.clock, stored.received_at)
        for number, (leg, condition) in enumerate(self._legs):
            if leg.watcher != stored.watcher:
                continue
            wanted = True if condition is None else condition(stored.event)
            if wanted is False:
                continue
            self._take(stored, number, wanted)

    def key_of(self, event: Event) -> str | None:
        """The key of an event, or None if it has none."""
        key = self._key(event) if self._key else ""
        return None if isinstance(key, Failure) else _storable(key)

    def _take(self, stored: StoredEvent, leg: int, wanted: bool | Failure) -> None:
        event = stored.event
        arrival = _arrival(stored, leg, self._machine)
        key = self._key(event) if self._key else stored.watcher if self.rule.by_watcher else ""
        arrival.value = self._machine.read(event, leg)
        for part, value in (("where", wanted), ("by", key), ("rule", arrival.value)):
            if isinstance(value, Failure):
                self._end(event, "failed", f"{part} cannot be evaluated: {value.reason}")
                return
        self._play(_storable(key), self.clock, arrival)
        if len(self._cells) > self.max_keys:
            self._evict()

    def _play(self, key: str, clock: float, new: Arrival | None = None) -> None:
        """Give a key its events and alarms, as far as the time has come.

        Machines are pure, so a key whose machine breaks over one event is played again without that event.
        """
        broken: list[Arrival] = []
        reason = ""
        while True:
            turn = Turn(key, clock - self.rule.lateness - self._settle)
            cell = self._cell(key, new, broken)
            try:
                while self._step(cell, clock, turn):
                    pass
                break
            except _Broken as failure:
                logger.exception("windsock.rule.failed watcher=%s key=%s", self.name, key)
                reason = describe(failure.error)
                if failure.arrival is None:
                    turn = Turn(key, clock)
                    cell = self._cell(key, new, broken)
                    held = [] if cell.state is None else self._machine.held(cell.state)
                    broken += [*held, *cell.waiting]
                    cell = Cell(None, [])
                    break
                broken.append(failure.arrival)
        for result in turn.results:
            self._found.events.append(self._event(key, result))
        for ended in turn.ended:
            self._end(ended.arrival.event(), ended.verdict, ended.reason)
        for arrival in broken:
            self._end(arrival.event(), "failed", reason)
        self._put(key, cell if cell.state is not None or cell.waiting else None)

    def _cell(self, key: str, new: Arrival | None, broken: Sequence[Arrival]) -> Cell[Any]:
        """What is known of a key, a new event in its place, without those that cannot be handled."""
        body = self._cells.get(key)
        cell: Cell[Any] = self._decoder.decode(body) if body is not None else Cell(None, [])
        if new is not None:
            insort(cell.waiting, new, key=_turn_of)
        without = {_turn_of(arrival) for arrival in broken}
        if without:
            cell.waiting = [arrival for arrival in cell.waiting if _turn_of(arrival) not in without]
        return cell

    def _step(self, cell: Cell[Any], clock: float, turn: Turn) -> bool:
        """Let the next event or alarm of a key happen, if its time has come."""
        machine, lateness = self._machine, self.rule.lateness
        due = None if cell.state is None else machine.due(cell.state)
        first = cell.waiting[0] if cell.waiting else None
        waits = machine.ordered and lateness and len(cell.waiting) <= MAX_HELD
        if first and waits and not first.time + lateness < clock:
            first = None
        if first and not (machine.ordered and due is not None and due < first.time):
            cell.waiting.pop(0)
            try:
                cell.state = machine.arrive(cell.state, first, turn)
            except Exception as error:  # one event's trouble is not that of the others
                raise _Broken(error, first) from error
            return True
        if due is not None and (first or due + lateness + self._settle < clock):
            try:
                cell.state = machine.ring(cell.state, due, turn)
            except Exception as error:  # nor one key's that of the others
                raise _Broken(error, None) from error
            return True
        return False

    def _evict(self) -> None:
        """Drop the key whose deadline is nearest, or any if none has one."""
        key = self._alarms[0][1] if self.next_wake() is not None else next(iter(self._cells))
        cell: Cell[Any] = self._decoder.decode(self._cells[key])
        held = [] if cell.state is None else self._machine.held(cell.state)
        for arrival in (*held, *cell.waiting):
            self._end(arrival.event(), "evicted", f"more than {self.max_keys} keys are live")
        self._put(key, None)
        self._evicted += 1

    # what came of it

    def collect(self) -> Found:
        """What was found and what changed since the last time."""
        found, self._found = self._found, Found([], {}, [])
        if self._evicted:
            logger.warning(
                "windsock.rule.evicted watcher=%s keys=%d: raise max_keys (%d) or shorten the rule's times",
                self.name,
                self._evicted,
                self.max_keys,
            )
            self._evicted = 0
        return found

    def _put(self, key: str, cell: Cell[Any] | None) -> None:
        if cell is None:
            self._wakes.pop(key, None)
            if self._cells.pop(key, None) is not None or key in self._found.state:
                self._found.state[key] = None
            return
        body = self._encoder.encode(cell)
        wake = self._wake(key, cell)
        if self._cells.get(key) != body:
            self._cells[key] = body
            self._found.state[key] = (body, wake)

    def _wake(self, key: str, cell: Cell[Any]) -> float | None:
        """Set the key's alarm."""
        lateness = self.rule.lateness
        due = None if cell.state is None else self._machine.due(cell.state)
        times = [cell.waiting[0].time + lateness] if cell.waiting else []
        times += [] if due is None else [due + lateness + self._settle]
        wake = min(times, default=None)
        if wake is None:
            self._wakes.pop(key, None)
        elif self._wakes.get(key) != wake:
            self._wakes[key] = wake
            heapq.heappush(self._alarms, (wake, key))
            if len(self._alarms) > 2 * len(self._wakes) + FULL:
                self._alarms = [(at, one) for one, at in self._wakes.items()]
                heapq.heapify(self._alarms)
        return wake

    def _event(self, key: str, result: Result) -> Event:
        causes = [
            {
                "watcher": key if self.rule.by_watcher else self._legs[cause.leg][0].watcher,
                "id": cause.id,
                "seq": cause.seq,
            }
            for cause in result.causes[:KEPT_CAUSES]
        ]
        data = {**result.data, "key": key or None, "causes": causes}
        if result.amends is not None:
            data["amends"] = stable_id(self.name, key, result.amends)
        correlation = next((cause.correlation for cause in result.causes if cause.correlation), None)
        return Event.make(
            data,
            source=f"windsock/{self.name}",
            type=self.rule.type + result.suffix,
            id=stable_id(self.name, key, result.name),
            time=result.time,
            key=key or None,
            correlation=correlation,
            cause=",".join(cause.id for cause in result.causes[:KEPT_CAUSES]) or None,
            plain=True,
        )

    def _end(self, event: Event, verdict: str, reason: str) -> None:
        self._found.verdicts.append(Verdict(stage=STAGE, verdict=verdict, event=event, reason=reason))


def _storable(key: str) -> str:
    """The key as every database can store it."""
    return clean_text(key).replace("\0", "\ufffd")


def _turn_of(arrival: Arrival) -> tuple[float, int, str]:
    return arrival.time, arrival.leg, arrival.id


def _arrival(stored: StoredEvent, leg: int, machine: Machine[Any]) -> Arrival:
    event = stored.event
    received = stored.received_at
    # An event is not from the future: a clock that is ahead would hold everything up.
    timed = event.time is not None and not machine.by_arrival
    time = min(event.time.timestamp(), received) if timed and event.time is not None else received
    data = None if machine.slim else event.as_dict()["data"]
    return Arrival(
        leg, event.id, event.source, event.type, event.seq or 0, time, received, data, event.correlation
    )


def _compiled_legs(name: str, legs: Sequence[Leg]) -> list[tuple[Leg, Evaluate | None]]:
    return [
        (
            leg,
            compile_condition(leg.where, watcher=name, option=f"rule.{leg.label}.where")
            if leg.where is not None
            else None,
        )
        for leg in legs
    ]
