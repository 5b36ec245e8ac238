"""Contracts: what a watcher declares with ``expect``, held against what arrives.

Every watcher that declares an expectation is a key of one rule. A breach is told once, as an event of the
type ``windsock.expectation.late`` (or ``low``, ``high``, ``shape``) and a warning in the process's log; when
it is over, ``windsock.expectation.recovered`` follows.

* ``every``, ``grace``: *late* when nothing arrived for ``every + grace`` seconds.
* ``at_least``, ``at_most``, ``per``: windows of ``per`` seconds since 1970-01-01 UTC, by arrival. *low* is
  told at the end of a window that was observed from its beginning, *high* with the event that is too much.
* ``fields``: *shape* with the first event that lacks one of these paths in its data.
* ``learn``: what is not given is taken from so much history, see :mod:`windsock.rules.learning`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from windsock.events import Event
from windsock.json_path import MISSING, JsonPath
from windsock.log.records import Mark
from windsock.rules.base import Arrival, Machine, Result, Rule, Turn, iso
from windsock.rules.correlator import Found
from windsock.rules.learning import MOST_ARRIVALS, learned
from windsock.rules.source import RuleSource
from windsock.sources.base import Delivery
from windsock.spec import Expectation, WatcherSpec

__all__ = ["ExpectConfig", "ExpectSource", "Expecting", "unheard"]

logger = logging.getLogger(__name__)

KIND = "expect"
RELEARN = 3600.0
"""Seconds after which learned numbers are taken from history again."""


class Expecting(Rule, frozen=True, kw_only=True, tag="expecting"):
    """The expectations of several watchers."""

    by_watcher: ClassVar[bool] = True

    expectations: dict[str, Expectation]
    type: str = "windsock.expectation"

    def compile(self, watcher: str) -> Machine[Any]:
        return _Expecting(self)

    def shape(self) -> str:
        return "expecting"


class Observed(msgspec.Struct, array_like=True):
    """What was seen of a watcher."""

    watcher: str
    since: float
    """Since when it is observed."""
    last: float
    """The last arrival, or the beginning."""
    window: int = -1
    """The number of the window that is being counted."""
    count: int = 0
    breaches: dict[str, float] = {}
    """What is broken, and since when."""


class _Expecting:
    state = Observed
    ordered = True
    by_arrival = True
    slim = True

    def __init__(self, rule: Expecting) -> None:
        self._watchers = [leg.watcher for leg in rule.all_legs()]
        self._expected = rule.expectations
        self._paths = {
            name: [JsonPath(path) for path in expected.fields] for name, expected in self._expected.items()
        }

    def read(self, event: Event, leg: int) -> Any:
        """The paths that an event lacks."""
        paths = self._paths[self._watchers[leg]]
        return [path.text for path in paths if path.find(event.data) is MISSING]

    def begin(self, key: str, now: float) -> Observed | None:
        return Observed(key, now, now)

    def arrive(self, state: Observed | None, arrival: Arrival, turn: Turn) -> Observed | None:
        seen = state or Observed(turn.key, arrival.time, arrival.time)
        expected = self._expected[seen.watcher]
        breach = _Breach(seen, turn, arrival.time, [arrival])
        if "late" in seen.breaches:
            breach.over("late", iso(arrival.time))
        seen.last = max(seen.last, arrival.time)
        window = math.floor(arrival.time / expected.per)
        if window > seen.window:
            seen.window, seen.count = window, 0
        seen.count += 1
        if expected.at_most is not None and seen.count > expected.at_most:
            breach.begins("high", expected.at_most, seen.count)
        if arrival.value:
            breach.begins("shape", list(expected.fields), {"missing": arrival.value})
        else:
            breach.over("shape", {"missing": []})
        return seen

    def ring(self, state: Observed, at: float, turn: Turn) -> Observed | None:
        expected = self._expected[state.watcher]
        late, end = self._late_at(state, expected), self._window_end(state, expected)
        if late is not None and late <= at:
            _Breach(state, turn, late).begins("late", expected.every, iso(state.last))
        if end is not None and end <= at:
            self._close(state, expected, _Breach(state, turn, end))
        return state

    def _close(self, seen: Observed, expected: Expectation, breach: _Breach) -> None:
        """A window is over."""
        window = round(breach.at / expected.per) - 1
        count = seen.count if seen.window == window else 0
        if expected.at_least is not None and count >= expected.at_least:
            breach.over("low", count)
        elif expected.at_least is not None and seen.since <= window * expected.per:
            breach.begins("low", expected.at_least, count)
        if expected.at_most is None or count <= expected.at_most:
            breach.over("high", count)
        seen.window, seen.count = window + 1, 0

    def _late_at(self, seen: Observed, expected: Expectation) -> float | None:
        if expected.every is None or "late" in seen.breaches:
            return None
        return seen.last + expected.every + expected.grace

    def _window_end(self, seen: Observed, expected: Expectation) -> float | None:
        if expected.at_least is None and "high" not in seen.breaches:
            return None
        window = seen.window if seen.window >= 0 else math.floor(seen.since / expected.per)
        return (window + 1) * expected.per

    def due(self, state: Observed) -> float | None:
        expected = self._expected.get(state.watcher)
        if expected is None:
            return None
        times = (self._late_at(state, expected), self._window_end(state, expected))
        return min((time for time in times if time is not None), default=None)

    def held(self, state: Observed) -> Sequence[Arrival]:
        return []

    def waiting(self, state: Observed) -> str:
        return f"last arrival {iso(state.last)}; broken: {', '.join(state.breaches) or 'nothing'}"


class _Breach:
    """Tells once that something is broken, and once that it is over."""

    def __init__(self, seen: Observed, turn: Turn, at: float, causes: Sequence[Arrival] = ()) -> None:
        self.seen, self.turn, self.at, self.causes = seen, turn, at, causes

    def begins(self, what: str, expected: Any, seen: Any) -> None:
        """Tell it, unless it was told."""
        if what not in self.seen.breaches:
            self.seen.breaches[what] = self.at
            self._tell(what, what, self.at, {"expected": expected, "seen": seen})

    def over(self, what: str, seen: Any) -> None:
        """Tell that it is over, if it was told."""
        since = self.seen.breaches.pop(what, None)
        if since is not None:
            self._tell("recovered", what, since, {"seen": seen, "until": iso(self.at)})

    def _tell(self, suffix: str, what: str, since: float, more: dict[str, Any]) -> None:
        self.turn.results.append(
            Result(
                name=f"{what}/{suffix}/{since}",
                data={"watcher": self.seen.watcher, "breach": what, "since": iso(since), **more},
                causes=self.causes,
                time=self.at,
                suffix=f".{suffix}",
            )
        )


class ExpectConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose expectations are watched."""

    watcher: Annotated[str, Meta(description="The watcher that gets the breaches; its own name.")]
    of: Annotated[
        tuple[str, ...] | str,
        Meta(description="The watchers whose expectations are watched; by default all that declare any."),
    ] = ()


class ExpectSource(RuleSource):
    """Tells when a watcher's expectation is broken, and when that is over."""

    kind: ClassVar[str] = KIND
    config: ClassVar[Any] = ExpectConfig
    tuning: ClassVar[frozenset[str]] = frozenset({"of"})

    def __init__(self, config: ExpectConfig) -> None:
        self.options = config
        self.watcher = config.watcher
        self._learned_at = 0.0
        self._specs: dict[str, WatcherSpec] = {}

    def current(self, marks: Mapping[str, Mark]) -> Rule:
        self._specs = self._expecting(marks)
        now = self._learned_at = self.clock()
        expectations = {}
        for name, spec in self._specs.items():
            expected = spec.expect or Expectation()
            if expected.learn is not None:
                since = now - expected.learn
                arrivals = self.log.arrivals(name, since=since, limit=MOST_ARRIVALS)
                expected = learned(expected, arrivals, since=since, now=now)
            expectations[name] = expected
        return Expecting(legs=tuple(expectations), expectations=expectations)

    def stale(self, marks: Mapping[str, Mark]) -> bool:
        if super().stale(marks) or self._expecting(marks) != self._specs:
            return True
        learning = any(spec.expect and spec.expect.learn for spec in self._specs.values())
        return learning and self.clock() - self._learned_at >= RELEARN

    def _expecting(self, marks: Mapping[str, Mark]) -> dict[str, WatcherSpec]:
        """The watchers that declare an expectation, of those that are watched."""
        own = marks.get(self.watcher)
        of = own.spec.options.get("of", ()) if own else self.options.of
        wanted = {of} if isinstance(of, str) else set(of)
        return {
            name: mark.spec
            for name, mark in marks.items()
            if mark.spec.expect is not None and (not wanted or name in wanted)
        }

    def begin(self, now: float) -> None:
        self._correlator.forget(self._correlator.keys() - self._specs.keys())
        for name in self._specs:
            self._correlator.begin(now, name)

    def delivery(self, found: Found) -> Delivery:
        delivery = super().delivery(found)

        async def alert() -> None:
            for event in found.events:
                logger.warning("%s watcher=%s: %s", event.type, event.key, event.data)

        return replace(delivery, ack=alert)


def unheard(specs: Iterable[WatcherSpec]) -> set[str]:
    """The watchers whose expectations nobody watches."""
    known = list(specs)
    heard: set[str] = set()
    for spec in known:
        if spec.kind == KIND:
            of = spec.options.get("of", ())
            heard |= {of} if isinstance(of, str) else set(of) or {one.name for one in known}
    return {spec.name for spec in known if spec.expect is not None} - heard
