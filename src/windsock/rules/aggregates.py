"""Aggregates of a window: count, sum, min, max, avg and quantiles, the same in whatever order events come.

Sums are exact (a list of partial sums that no rounding touches), so that the order of arrival cannot change
them. Quantiles are exact up to :data:`SAMPLE` values in a window; of more, a uniform sample of that size is
kept (those whose event ids have the smallest hashes), whose quantiles are off by about 1.6 % of the rank.
"""

from __future__ import annotations

import hashlib
import math
from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windsock.events import Event
from windsock.pipeline.expressions import Failure, compile_value
from windsock.rules.base import Arrival
from windsock.spec import SpecError

__all__ = ["SAMPLE", "Aggregates", "Tally", "quantile"]

SAMPLE = 1000
KEPT = 20
"""Causes that a window remembers: the earliest."""

_FUNCTIONS = ("count", "sum", "min", "max", "avg", "quantile")


class Fold(msgspec.Struct, array_like=True):
    """What is remembered of one expression's values."""

    n: int = 0
    partials: list[float] = []
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    """Whether all values were integers."""
    sample: list[tuple[int, float]] = []

    def add(self, value: float, weight: int | None) -> None:
        """One more value; ``weight`` is the event's hash if quantiles are asked for."""
        self.n += 1
        self.partials = _exactly(self.partials, float(value))
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.whole = self.whole and isinstance(value, int)
        if weight is not None:
            insort(self.sample, (weight, float(value)))
            del self.sample[SAMPLE:]

    def merge(self, other: Fold) -> None:
        """Take in what another fold knows."""
        self.n += other.n
        for part in other.partials:
            self.partials = _exactly(self.partials, part)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.whole = self.whole and other.whole
        self.sample = sorted([*self.sample, *other.sample])[:SAMPLE]

    def total(self) -> float:
        """The sum, rounded once."""
        return math.fsum(self.partials)


class Tally(msgspec.Struct, array_like=True):
    """What is remembered of the events of a window, or of a part of one."""

    n: int = 0
    causes: list[Arrival] = []
    folds: list[Fold] = []

    def merge(self, other: Tally) -> None:
        """Take in what another tally knows."""
        self.n += other.n
        self.causes = sorted([*self.causes, *other.causes], key=_place)[:KEPT]
        if not self.folds:
            self.folds = [Fold() for _ in other.folds]
        for mine, theirs in zip(self.folds, other.folds, strict=True):
            mine.merge(theirs)


class Aggregates:
    """The aggregates of a rule, compiled: ``{"total": "sum:data.total", "p95": "quantile:0.95:data.ms"}``."""

    def __init__(self, declared: Mapping[str, str], *, watcher: str) -> None:
        self._wanted = {name: _parsed(name, text) for name, text in declared.items()}
        expressions = {expression: None for _, _, expression in self._wanted.values() if expression}
        self._places = {expression: place for place, expression in enumerate(expressions)}
        self._values = [
            compile_value(expression, watcher=watcher, option="rule.aggregates") for expression in expressions
        ]
        sampled = {expression for function, _, expression in self._wanted.values() if function == "quantile"}
        self._sampled = [expression in sampled for expression in expressions]

    def read(self, event: Event) -> list[float] | Failure:
        """The values of an event, one for each expression."""
        values = []
        for place, value_of in enumerate(self._values):
            value = value_of(event)
            if isinstance(value, Failure):
                return value
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                expression = list(self._places)[place]
                return Failure(f"{expression!r} gives {value!r:.50}, which is no number")
            values.append(value)
        return values

    def add(self, tally: Tally, arrival: Arrival) -> None:
        """Count an event."""
        tally.n += 1
        brief = msgspec.structs.replace(arrival, data=None, value=None)
        insort(tally.causes, brief, key=_place)
        del tally.causes[KEPT:]
        if not tally.folds:
            tally.folds = [Fold() for _ in self._values]
        for fold, value, sampled in zip(tally.folds, arrival.value, self._sampled, strict=True):
            fold.add(value, _weight(arrival.id) if sampled else None)

    def values(self, tally: Tally) -> dict[str, Any]:
        """What the rule asked for."""
        return {name: self._value(tally, *wanted) for name, wanted in self._wanted.items()}

    def _value(self, tally: Tally, function: str, share: float, expression: str) -> Any:
        if function == "count":
            return tally.n
        fold = tally.folds[self._places[expression]]
        if function == "quantile":
            return quantile(sorted(value for _, value in fold.sample), share)
        if function == "avg":
            return fold.total() / fold.n
        value = fold.total() if function == "sum" else fold.low if function == "min" else fold.high
        return int(value) if fold.whole else value


def _parsed(name: str, text: str) -> tuple[str, float, str]:
    """(function, share, expression) of a declaration such as ``sum:data.total``."""
    function, _, rest = (part.strip() for part in text.partition(":"))
    share = "0"
    if function == "quantile":
        share, _, rest = (part.strip() for part in rest.partition(":"))
    try:
        known = function in _FUNCTIONS and bool(rest) == (function != "count") and 0 <= float(share) <= 1
    except ValueError:
        known = False
    if not known:
        raise SpecError(
            f"aggregate {name!r}: {text!r} is none: write 'count', 'sum:data.total' (or min, max, avg), or"
            " 'quantile:0.95:data.ms'"
        )
    return function, float(share), rest


def _exactly(partials: Sequence[float], value: float) -> list[float]:
    """The partial sums with one more value, without any rounding (Shewchuk's method)."""
    kept = []
    for partial in partials:
        large, small = (value, partial) if abs(value) >= abs(partial) else (partial, value)
        value = large + small
        rest = small - (value - large)
        if rest:
            kept.append(rest)
    kept.append(value)
    return kept


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of sorted values, between the two nearest ranks."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def _weight(id: str) -> int:
    return int.from_bytes(hashlib.blake2b(id.encode("utf-8", "replace"), digest_size=7).digest(), "big")


def _place(arrival: Arrival) -> tuple[float, str]:
    return arrival.time, arrival.id
