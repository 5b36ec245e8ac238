"""Completeness: N of N parts, everything that a manifest lists, or a watermark that has passed.

::

    complete("parts", n=24, part="data.hour", by="data.day")
    complete("files", manifest="manifests", members="data.files", part="data.name", by="data.delivery")
    complete("progress", watermark="data.up_to", size="1h", part="data.partition", n=3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from windsock.events import Event, parse_time
from windsock.pipeline.expressions import Failure, compile_text, compile_value
from windsock.rules.base import KEPT_CAUSES, Arrival, Late, Leg, Machine, Result, Rule, Turn, iso, stable_id
from windsock.values import WindsockError, scalar_text

__all__ = ["Complete"]

MAX_PARTS = 10_000
"""The most parts of one key: they are remembered until all are there."""


class Complete(Rule, frozen=True, kw_only=True, tag="complete"):
    """All parts of something are there; what they are is given, or listed by a manifest."""

    part: str = "id"
    """CEL expression of the part that an event is; the same part twice counts once."""
    n: int | str | None = None
    """How many parts there are: a number, or a CEL expression that every event answers."""
    manifest: Leg | str | None = None
    """The watcher whose event lists the parts."""
    members: str | None = None
    """CEL expression of the list in the manifest."""
    watermark: str | None = None
    """CEL expression of a time up to which an event's part is complete; ``n`` parts have to say so."""
    size: float = 0.0
    """With ``watermark``: a result for each period of this length that has passed."""
    within: float = 86400.0
    """What is not complete so long after its first event is told as ``….incomplete``."""
    late: Late = "ignore"
    late_for: float = 3600.0
    """How long after the result further parts count as late; after that they begin anew."""

    def all_legs(self) -> tuple[Leg, ...]:
        listed = () if self.manifest is None else (self.manifest,)
        return tuple(Leg(watcher=leg) if isinstance(leg, str) else leg for leg in (*self.legs, *listed))

    def check(self) -> None:
        super().check()
        self.refuse(not self.legs, "name the watcher whose events are the parts")
        if self.watermark is not None:
            self.refuse(not self.size > 0, "watermark needs size, the period that a result is for")
            self.refuse(isinstance(self.n, str), "with a watermark n is a number: how many parts report")
            self.refuse(self.manifest is not None, "use either a watermark or a manifest")
        elif self.manifest is None:
            self.refuse(self.n is None, "say when it is complete: n=…, manifest=… or watermark=…")
        else:
            self.refuse(self.n is not None, "use either n or a manifest")
            self.refuse(self.members is None, "manifest needs members, the list in it, such as 'data.files'")
        if isinstance(self.n, int):
            self.refuse(not 1 <= self.n <= MAX_PARTS, f"n must be between 1 and {MAX_PARTS}")
        self.refuse(not self.within > 0, "within must be a time, such as '1d'")

    def compile(self, watcher: str) -> Machine[Any]:
        return _Watermark(self, watcher) if self.watermark is not None else _Parts(self, watcher)


class Parts(msgspec.Struct, array_like=True):
    """The parts that are there, how many or which are expected, and how often that was told."""

    first: float
    last: float
    parts: dict[str, Arrival]
    expected: int | None = None
    members: list[str] | None = None
    listing: Arrival | None = None
    told: int = 0
    gave_up: bool = False


class _Parts:
    state = Parts
    ordered = False
    by_arrival = False
    slim = True

    def __init__(self, rule: Complete, watcher: str) -> None:
        self.rule = rule
        self.listing = len(rule.all_legs()) - 1 if rule.manifest is not None else None
        self._part = compile_text(rule.part, watcher=watcher, option="rule.part")
        self._n = compile_value(rule.n, watcher=watcher, option="rule.n") if isinstance(rule.n, str) else None
        self._members = rule.members and compile_value(rule.members, watcher=watcher, option="rule.members")

    def read(self, event: Event, leg: int) -> Any | Failure:
        """The part and how many there are; or the members that a manifest lists."""
        if leg == self.listing and self._members:
            return _members(self._members(event))
        part = self._part(event)
        n = self._n(event) if self._n else self.rule.n
        if isinstance(part, Failure) or isinstance(n, Failure):
            return part if isinstance(part, Failure) else n
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_PARTS):
            return Failure(f"{self.rule.n!r} gives {n!r:.50}, not a number between 1 and {MAX_PARTS}")
        return [part, n]

    def begin(self, key: str, now: float) -> Parts | None:
        return None

    def arrive(self, state: Parts | None, arrival: Arrival, turn: Turn) -> Parts | None:
        known = state or Parts(arrival.time, arrival.time, {})
        late = known.told > 0
        if late and self.rule.late == "ignore":
            turn.end(arrival, "late", "what it belongs to was complete already")
            return known
        brief = msgspec.structs.replace(arrival, value=None)
        if arrival.leg == self.listing:
            known.members, known.listing = arrival.value, brief
            known.expected = len(arrival.value)
        else:
            part, expected = arrival.value
            if part not in known.parts and len(known.parts) >= MAX_PARTS:
                turn.end(arrival, "evicted", f"more than {MAX_PARTS} parts")
                return known
            known.parts[part] = brief
            known.expected = expected if self.listing is None else known.expected
        known.first, known.last = min(known.first, arrival.time), max(known.last, arrival.time)
        if not self._missing(known):
            known.told += 1
            amended = late and self.rule.late == "amend"
            turn.results.append(self._result(known, ".amended" if amended else ""))
        return known

    def _missing(self, state: Parts) -> int:
        """How many parts are missing, as far as it is known; at least 1 while it is not."""
        if state.members is not None:
            return len([member for member in state.members if member not in state.parts])
        return 1 if state.expected is None else max(state.expected - len(state.parts), 0)

    def _result(self, state: Parts, suffix: str) -> Result:
        parts = sorted(state.parts)
        data: dict[str, Any] = {
            "rule": "complete",
            "expected": state.expected,
            "parts": parts if state.members is None else [part for part in parts if part in state.members],
            "first": iso(state.first),
            "last": iso(state.last),
            "revision": state.told,
        }
        if state.members is not None:
            data["missing"] = [member for member in state.members if member not in state.parts]
            data["unlisted"] = [part for part in parts if part not in state.members]
        causes = [*([state.listing] if state.listing else []), *(state.parts[part] for part in parts)]
        return Result(
            name=stable_id(suffix, state.told, *(cause.id for cause in causes)),
            data=data,
            causes=causes[:KEPT_CAUSES],
            time=state.last,
            suffix=suffix,
        )

    def ring(self, state: Parts, at: float, turn: Turn) -> Parts | None:
        if state.told or state.gave_up:
            return None
        state.gave_up = True
        turn.results.append(self._result(state, ".incomplete"))
        return state

    def due(self, state: Parts) -> float | None:
        if state.told:
            return state.last + self.rule.late_for
        return state.first + self.rule.within + (self.rule.late_for if state.gave_up else 0.0)

    def held(self, state: Parts) -> Sequence[Arrival]:
        return [] if state.told else list(state.parts.values())

    def waiting(self, state: Parts) -> str:
        if state.told:
            return "is complete"
        of = "an unknown number" if state.expected is None else state.expected
        return f"has {len(state.parts)} of {of} parts"


class Marks(msgspec.Struct, array_like=True):
    """How far each part is, and which periods were told."""

    parts: dict[str, tuple[float, Arrival]]
    passed: float | None = None


class _Watermark:
    state = Marks
    ordered = False
    by_arrival = False
    slim = True

    def __init__(self, rule: Complete, watcher: str) -> None:
        self.rule = rule
        self.parts = rule.n if isinstance(rule.n, int) else 1
        self._part = compile_text(rule.part, watcher=watcher, option="rule.part")
        self._time = compile_value(rule.watermark or "", watcher=watcher, option="rule.watermark")

    def read(self, event: Event, leg: int) -> Any | Failure:
        part = self._part(event) if self.parts > 1 else ""
        value = self._time(event)
        if isinstance(part, Failure) or isinstance(value, Failure):
            return part if isinstance(part, Failure) else value
        try:
            time = parse_time(value)
        except (WindsockError, TypeError, ValueError):
            time = None
        if time is None:
            return Failure(f"{self.rule.watermark!r} gives {value!r:.50}, which is no time")
        return [part, time.timestamp()]

    def begin(self, key: str, now: float) -> Marks | None:
        return None

    def arrive(self, state: Marks | None, arrival: Arrival, turn: Turn) -> Marks | None:
        known = state or Marks({})
        part, time = arrival.value
        if part not in known.parts and len(known.parts) >= MAX_PARTS:
            turn.end(arrival, "evicted", f"more than {MAX_PARTS} parts")
            return known
        if part in known.parts and known.parts[part][0] >= time:
            turn.end(arrival, "late", f"its part is at {iso(known.parts[part][0])} already")
            return known
        known.parts[part] = (time, msgspec.structs.replace(arrival, value=None))
        if len(known.parts) >= self.parts:
            size = self.rule.size
            low = math.floor(min(time for time, _ in known.parts.values()) / size) * size
            start = low - size if known.passed is None else known.passed
            if low > start:
                turn.results.append(
                    Result(
                        name=str(low),
                        data={"rule": "complete", "start": iso(start), "end": iso(low)},
                        causes=[cause for _, cause in known.parts.values()][:KEPT_CAUSES],
                        time=arrival.time,
                    )
                )
                known.passed = low
        return known

    def ring(self, state: Marks, at: float, turn: Turn) -> Marks | None:
        return state

    def due(self, state: Marks) -> float | None:
        return None

    def held(self, state: Marks) -> Sequence[Arrival]:
        return []

    def waiting(self, state: Marks) -> str:
        at = ", ".join(f"{part or 'the source'} is at {iso(time)}" for part, (time, _) in state.parts.items())
        return f"{len(state.parts)} of {self.parts} parts have reported: {at}"


def _members(value: Any) -> list[str] | Failure:
    """The distinct members of a manifest, as texts."""
    if isinstance(value, Failure):
        return value
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_PARTS:
        return Failure(f"members gives no list of 1 to {MAX_PARTS} parts")
    try:
        return list(dict.fromkeys(scalar_text(member) for member in value))
    except WindsockError as error:
        return Failure(str(error))
