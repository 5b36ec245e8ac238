"""Bounds on what senders may ask of one process: requests per second, and bytes in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windsock.gateway.refusal import Refused

__all__ = ["Hold", "Room", "TokenBucket"]


class TokenBucket:
    """``rate`` requests per second on average and ``burst`` at once; a rate of 0 is no limit."""

    def __init__(self, rate: float, burst: int = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._size = float(burst or max(1, math.ceil(rate)))
        self._clock = clock
        self._tokens = self._size
        self._at = clock()

    def take(self) -> None:
        """Take one token, or raise :class:`Refused` (429) with the seconds until there is one."""
        if not self._rate:
            return
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            wait = (1 - self._tokens) / self._rate
            raise Refused(429, "too many requests: send slower", retry_after=wait)
        self._tokens -= 1


class Hold:
    """The bytes that one request keeps in memory."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.bytes = 0

    def add(self, size: int) -> None:
        """Keep ``size`` more bytes, or raise :class:`Refused` (503) if there is no room for them."""
        if self._room.held + size > self._room.limit:
            raise Refused(503, "too many requests are being received: try again", retry_after=1)
        self._room.held += size
        self.bytes += size


class Room:
    """At most ``limit`` bytes of request bodies in memory at any time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        """A hold that gives its bytes back at the end of the block."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self.held -= hold.bytes
