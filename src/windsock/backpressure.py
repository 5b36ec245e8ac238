"""When a source is paused because too much waits, and when it goes on.

There are two marks. A watcher's own ``high_water`` looks at the unsettled events of the source's watchers,
the total at those of all watchers. When the total is passed, the sources of the lowest priority stop first:
each next priority has :data:`STEP` percent more room. A paused source goes on once the backlog is down to the
low mark, and for the total with the same room, so that what is more important goes on first.
"""

from __future__ import annotations

from dataclasses import dataclass

from windsock.log.records import Kept

__all__ = ["STEP", "WaterMarks"]

STEP = 10
"""How many percent more of the total each priority may use than the one below it."""


@dataclass
class WaterMarks:
    """Remembers which marks a source has passed."""

    high_total: int = 0
    """Unsettled events of all watchers at which sources are paused; 0 for no limit."""
    low_total: int = 0
    _own: bool = False
    _all: bool = False

    def reason(self, kept: Kept) -> str | None:
        """Why the source has to stand still, or None if it may read."""
        high = min((spec.high_water for spec in kept.specs), default=1)
        low = min((spec.low_water for spec in kept.specs), default=1)
        self._own = kept.backlog >= high or (self._own and kept.backlog > low)
        total, percent = kept.total or 0, 100 + STEP * kept.rank
        high_total, low_total = self.high_total * percent // 100, self.low_total * percent // 100
        self._all = high_total > 0 and (total >= high_total or (self._all and total > low_total))
        if self._own:
            return f"{kept.backlog} events of its watchers are not settled; it goes on at {low}"
        if self._all:
            return (
                f"{total} events of all watchers are not settled (high_water_total {self.high_total}); "
                f"with its priority it goes on at {low_total}"
            )
        return None
