"""Dead letters that accumulate, as events that a Dag can be scheduled on.

::

    DeadLettersAssetWatcher("too_many_letters", over="100/1h", of=("orders", "payments"))

One event of the type ``windsock.dead_letters.accumulating`` for every window in which more letters were set
aside, and are still open, than ``over`` allows. The window is remembered with the event: a restart neither
loses nor repeats it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from windsock.events import Event
from windsock.rules.base import iso
from windsock.rules.tide import ReadsLog
from windsock.sources.base import Cursor, Delivery, Guarantees
from windsock.spec import rate

__all__ = ["DeadLettersConfig", "DeadLettersSource"]

TYPE = "windsock.dead_letters.accumulating"


class DeadLettersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many dead letters are too many."""

    watcher: Annotated[str, Meta(description="The watcher that gets the alerts; its own name.")]
    over: Annotated[str, Meta(description="More letters than this in a time, such as '100/1h'.")] = "100/1h"
    of: Annotated[
        tuple[str, ...] | str,
        Meta(description="The watchers whose letters count; by default all others."),
    ] = ()
    poll: Annotated[float, Meta(description="Seconds between two looks.", gt=0)] = 5.0


class DeadLettersSource(ReadsLog):
    """Tells when too many dead letters accumulate."""

    kind: ClassVar[str] = "dead_letters"
    config: ClassVar[Any] = DeadLettersConfig
    named: ClassVar[bool] = True
    tuning: ClassVar[frozenset[str]] = frozenset({"over", "of", "poll"})
    guarantees: ClassVar[Guarantees] = Guarantees(position="log", lag=False, tested="the log itself")
    clock: Callable[[], float] = staticmethod(time.time)

    def __init__(self, config: DeadLettersConfig) -> None:
        self.options = config
        self.allowed, self.window = rate(config.over)
        self._wanted = {config.of} if isinstance(config.of, str) else set(config.of)
        self._told_at = float("-inf")

    async def connect(self, cursor: Cursor | None) -> None:
        if cursor is not None:
            self._told_at = cursor["told_at"]

    async def read(self) -> AsyncIterator[Delivery]:
        while True:
            delivery = await asyncio.to_thread(self.look, self.clock())
            if delivery is not None:
                yield delivery
            await asyncio.sleep(self.options.poll)

    def look(self, now: float) -> Delivery | None:
        """Count the letters of the last window, unless it was told in it."""
        if now < self._told_at + self.window:
            return None
        since = now - self.window
        counts = {
            name: count
            for name, count in self.log.count_letters(since=since).items()
            if name != self.options.watcher and (not self._wanted or name in self._wanted)
        }
        total = sum(counts.values())
        if total <= self.allowed:
            return None
        self._told_at = now
        event = Event.make(
            {"letters": total, "over": self.options.over, "since": iso(since), "watchers": counts},
            source=f"windsock/{self.options.watcher}",
            type=TYPE,
            id=f"{self.options.watcher}/{now}",
            time=now,
        )
        return Delivery([event], {"told_at": now})

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        """The log is the runner's."""
