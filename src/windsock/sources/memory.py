"""An in-process channel, for tests and demos: it behaves like a broker that keeps what is not acked.

::

    orders = channel("orders")
    orders.put(Event.make({"total": 12}, source="shop", type="order.created"))
    ...                                      # a MemorySource(MemoryConfig(channel="orders")) is being read
    await orders.drained()                   # returns when everything that was put is acked

**Guarantee.** At least once, in the order of ``put``. **Where it resumes.** The channel keeps the position,
so the cursor is None: what was delivered and not acked comes again after the next ``connect``, in its place.
One source reads a channel at a time. ``put`` and the counters may be used from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated, ClassVar

import msgspec

from windsock.events import DeadLetter, Event, SourceError
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

__all__ = ["Channel", "MemoryConfig", "MemorySource", "channel"]

_channels: dict[str, Channel] = {}
_lock = threading.Lock()


def channel(name: str) -> Channel:
    """The channel of that name in this process; made at first use."""
    with _lock:
        return _channels.setdefault(name, Channel(name))


class Channel:
    """A named queue of events; see the module's docstring."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acked: list[Event] = []
        """Every event whose delivery was acked, in the order of the acks."""
        self._waiting: deque[Event | DeadLetter] = deque()
        self._unacked: deque[list[Event | DeadLetter]] = deque()
        self._failures: deque[SourceError] = deque()
        self._listeners: set[_Listener] = set()
        self._lock = threading.Lock()

    @property
    def lag(self) -> int:
        """How many were put and not acked."""
        with self._lock:
            return len(self._waiting) + sum(map(len, self._unacked))

    def put(self, *items: Event | DeadLetter) -> None:
        """Add events to the end; a dead letter stands for input that could not become one."""
        with self._lock:
            self._waiting.extend(items)
        self.wake()

    def fail_next(self, error: SourceError) -> None:
        """Let the next connect or read, or the one that waits now, raise this error, once."""
        with self._lock:
            self._failures.append(error)
        self.wake()

    def clear(self) -> None:
        """Forget everything, as if the channel were new."""
        with self._lock:
            for held in (self._waiting, self._unacked, self._failures, self.acked):
                held.clear()
        self.wake()

    async def drained(self) -> None:
        """Return as soon as everything that was put is acked."""
        with self.listen() as listener:
            while self.lag:
                await listener.wait()

    def listen(self) -> _Listener:
        """Something to wait with for the next change of the channel, inside ``with``."""
        return _Listener(self._listeners)

    def wake(self) -> None:
        """Let everyone who waits for the channel look again."""
        for listener in list(self._listeners):
            listener.wake()

    def requeue(self) -> None:
        """Put what was taken and not acked back to the front, in its order."""
        with self._lock:
            for held in reversed(self._unacked):
                self._waiting.extendleft(reversed(held))
            self._unacked.clear()

    def raise_failure(self) -> None:
        """Raise the next error that was ordered, if any."""
        with self._lock:
            error = self._failures.popleft() if self._failures else None
        if error:
            raise error

    def take(self) -> list[Event | DeadLetter]:
        """The next ones, which are then out until they are acked or requeued."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_DELIVERY))]
            if taken:
                self._unacked.append(taken)
            return taken

    def ack(self, taken: list[Event | DeadLetter]) -> None:
        """Confirm what was taken; without effect if it was requeued since."""
        with self._lock:
            # By identity: after a requeue an equal list may be out again under another delivery.
            kept = [held for held in self._unacked if held is not taken]
            if len(kept) < len(self._unacked):
                self._unacked = deque(kept)
                self.acked.extend(item for item in taken if isinstance(item, Event))
        self.wake()


class _Listener:
    """Waits in one event loop for what happens to a channel in any thread."""

    def __init__(self, listeners: set[_Listener]) -> None:
        self._listeners = listeners
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def __enter__(self) -> _Listener:
        self._listeners.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._listeners.discard(self)

    def wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()


class MemoryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which channel to read."""

    channel: Annotated[str, msgspec.Meta(description="Name of the channel in this process.", min_length=1)]


class MemorySource:
    """Reads a channel of this process."""

    kind: ClassVar[str] = "memory"
    config: ClassVar[type[MemoryConfig]] = MemoryConfig
    guarantees: ClassVar[Guarantees] = Guarantees(tested="itself", notes="One process only: for tests.")

    def __init__(self, config: MemoryConfig) -> None:
        self._channel = channel(config.channel)
        self._open = False

    async def connect(self, cursor: Cursor | None) -> None:
        self._channel.raise_failure()
        self._channel.requeue()
        self._open = True

    async def read(self) -> AsyncIterator[Delivery]:
        with self._channel.listen() as listener:
            while self._open:
                self._channel.raise_failure()
                if taken := self._channel.take():
                    yield self._delivery(taken)
                else:
                    await listener.wait()

    async def lag(self) -> int | None:
        return self._channel.lag

    async def close(self) -> None:
        self._open = False
        self._channel.wake()

    def _delivery(self, taken: list[Event | DeadLetter]) -> Delivery:
        async def ack() -> None:
            self._channel.ack(taken)

        events = [item for item in taken if isinstance(item, Event)]
        dead = [item for item in taken if isinstance(item, DeadLetter)]
        return Delivery(events, ack=ack, dead=dead)
