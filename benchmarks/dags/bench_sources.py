"""Two sources of the benchmark's own: one that floods, one that waits for a signal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import msgspec
from place import note, signals
from samples import TYPE, orders

from windsock.events import Event
from windsock.sources import Cursor, Delivery

__all__ = ["FloodSource", "SignalSource"]

_DELIVERY = 1000


class DoorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the signals are."""

    door: str


class FloodSource:
    """On signal ``n`` with content ``count`` yields ``count`` orders as fast as they are taken."""

    kind: ClassVar[str] = "bench_sources:FloodSource"
    config: ClassVar[type[DoorConfig]] = DoorConfig

    def __init__(self, config: DoorConfig) -> None:
        self._door = Path(config.door)
        self._position: Cursor = {"flood": 0, "at": 0}
        self._closed = False

    async def connect(self, cursor: Cursor | None) -> None:
        self._position = cursor or self._position

    async def read(self) -> AsyncIterator[Delivery]:
        async for flood, count in signals(self._door, self._position["flood"]):
            at = self._position["at"]
            note(f"flood-{flood}-read", time.time())
            while at < count and not self._closed:
                size = min(_DELIVERY, int(count) - at)
                # Every flood has orders of its own, so that none is a duplicate.
                events = await asyncio.to_thread(orders, flood * 10_000_000 + at, size)
                at += size
                finished = at >= count
                yield Delivery(
                    events, {"flood": flood if finished else flood - 1, "at": 0 if finished else at}
                )
            self._position = {"flood": flood, "at": 0}

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        self._closed = True


class SignalSource:
    """Yields one event for each signal."""

    kind: ClassVar[str] = "bench_sources:SignalSource"
    config: ClassVar[type[DoorConfig]] = DoorConfig

    def __init__(self, config: DoorConfig) -> None:
        self._door = Path(config.door)
        self._after = -1

    async def connect(self, cursor: Cursor | None) -> None:
        self._after = cursor["n"] if cursor else -1

    async def read(self) -> AsyncIterator[Delivery]:
        async for n, made in signals(self._door, self._after):
            event = Event.make({"n": n, "made": made}, source="bench://signal", type=TYPE, id=n)
            yield Delivery([event], {"n": n})

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        """Nothing is held."""
