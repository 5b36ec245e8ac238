"""What a watcher usually does, learned from when its events came.

From the arrivals of the last ``learn`` seconds (at most :data:`MOST_ARRIVALS`, the newest):

* cadence: events that came together count as one arrival. With ``m`` the median and ``q`` the 99 % quantile
  of the intervals between arrivals, ``every = max(3 m, 1.5 q)``. Needs :data:`FEWEST_INTERVALS` intervals.
* volume: counts of the whole windows of ``per`` seconds in that time, empty ones too. ``at_least`` is half of
  their 5 % quantile, rounded down, and none if that is 0; ``at_most`` is twice their 95 % quantile, rounded
  up. Needs :data:`FEWEST_WINDOWS` windows.

What the declaration gives as a number is not learned. Too little history expects nothing yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from windsock.rules.aggregates import quantile
from windsock.spec import Expectation

__all__ = ["FEWEST_INTERVALS", "FEWEST_WINDOWS", "MOST_ARRIVALS", "learned"]

MOST_ARRIVALS = 100_000
FEWEST_INTERVALS = 20
FEWEST_WINDOWS = 5


def learned(expected: Expectation, arrivals: Sequence[float], *, since: float, now: float) -> Expectation:
    """The expectation with the numbers that it does not give taken from arrivals, oldest first."""
    if len(arrivals) >= MOST_ARRIVALS:
        since = arrivals[0]
    every, at_least, at_most = expected.every, expected.at_least, expected.at_most
    intervals = sorted(after - before for before, after in pairwise(dict.fromkeys(arrivals)))
    if every is None and len(intervals) >= FEWEST_INTERVALS:
        every = max(3 * quantile(intervals, 0.5), 1.5 * quantile(intervals, 0.99))
    first, last = math.ceil(since / expected.per), math.floor(now / expected.per)
    if at_least is None and at_most is None and last - first >= FEWEST_WINDOWS and arrivals:
        counts = Counter(math.floor(arrival / expected.per) for arrival in arrivals)
        volumes = sorted(float(counts[window]) for window in range(first, last))
        at_least = math.floor(quantile(volumes, 0.05) / 2) or None
        at_most = math.ceil(quantile(volumes, 0.95) * 2)
    return msgspec.structs.replace(expected, every=every, at_least=at_least, at_most=at_most)
