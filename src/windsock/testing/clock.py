"""A clock that only moves when a test says so."""

from __future__ import annotations

__all__ = ["VirtualClock"]


class VirtualClock:
    """Stands in for ``time.time``: call it for the time, ``advance`` it to let time pass."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time in epoch seconds."""
        return self.now

    def advance(self, seconds: float) -> float:
        """Let ``seconds`` pass at once; the new time."""
        self.now += seconds
        return self.now
