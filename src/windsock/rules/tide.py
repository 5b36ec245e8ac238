"""What rules share when they read the log: who has moved, and the events of several watchers in one order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar
from weakref import WeakKeyDictionary, ref

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.records import Mark, Scan, StoredEvent

__all__ = ["Merge", "ReadsLog", "Tide"]

INTERVAL = 0.25
"""Seconds between two looks at the log, for all rules of a process together."""
PAGE = 1000


class ReadsLog:
    """What a source inherits whose system is the log itself; the runner hands it over."""

    log: Log
    key: str
    """The name under which the log knows the source."""


class Tide:
    """One look at the log for all rules of an event loop, so that those that wait cost nothing."""

    _tides: ClassVar[WeakKeyDictionary[Log, dict[asyncio.AbstractEventLoop, Tide]]] = WeakKeyDictionary()

    def __init__(self, log: Log) -> None:
        self._log = ref(log)
        self._waiting: dict[asyncio.Future[None], Callable[[Mapping[str, Mark]], bool]] = {}
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, log: Log) -> Tide:
        """The tide that the rules of this event loop share."""
        known = cls._tides.setdefault(log, {})
        return known.setdefault(asyncio.get_running_loop(), cls(log))

    async def wait(self, moved: Callable[[Mapping[str, Mark]], bool], seconds: float | None) -> None:
        """Return when ``moved`` says so of the watchers' marks, or after some time."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = moved
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="windsock-tide")
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answer, seconds)
        finally:
            self._waiting.pop(answer, None)

    async def _look(self) -> None:
        while self._waiting:
            log = self._log()
            try:
                if log is None:
                    raise WindsockError("the log is gone")
                marks = await asyncio.to_thread(log.marks)
                del log
                for answer in [one for one, moved in self._waiting.items() if moved(marks)]:
                    if not answer.done():
                        answer.set_result(None)
            except Exception as error:  # noqa: BLE001 - every rule that waits must hear of it
                for answer in list(self._waiting):
                    if not answer.done():
                        answer.set_exception(error)
                return
            await asyncio.sleep(INTERVAL)


class Merge:
    """Stored events of several watchers, each in its own order, together in the order of their arrival.

    Seqs are in commit order only within one watcher, so a position is kept for each. What is read ahead of
    its turn stays here, at most a page for each watcher.
    """

    def __init__(self, log: Log, positions: dict[str, int]) -> None:
        self._log = log
        self.positions = positions
        """watcher → the seq of the last event that was passed on."""
        self._ahead: dict[str, deque[StoredEvent]] = {}
        self._ended: set[str] = set()

    def look_again(self) -> None:
        """More may have been stored where everything was read."""
        self._ended.clear()

    def watch(self, watchers: Iterable[str], begin: Mapping[str, Mark]) -> None:
        """Read these watchers; one that is new begins at its mark, without one at its beginning."""
        known = set(watchers)
        for gone in self.positions.keys() - known:
            del self.positions[gone]
            self._ahead.pop(gone, None)
        for watcher in known - self.positions.keys():
            self.positions[watcher] = begin[watcher].seq if watcher in begin else 0

    def next(self) -> StoredEvent | None:
        """The event that comes next, without passing it; None when everything was read."""
        heads = [ahead[0] for watcher in self.positions if (ahead := self._filled(watcher))]
        return min(heads, key=lambda stored: (stored.received_at, stored.event.seq or 0), default=None)

    def passed(self, stored: StoredEvent) -> None:
        """The event that :meth:`next` gave was taken."""
        self.positions[stored.watcher] = stored.event.seq or 0
        self._ahead[stored.watcher].popleft()

    def _filled(self, watcher: str) -> deque[StoredEvent]:
        ahead = self._ahead.setdefault(watcher, deque())
        if not ahead and watcher not in self._ended:
            ahead.extend(self._log.scan(Scan(watchers=[watcher], after=self.positions[watcher], limit=PAGE)))
            if len(ahead) < PAGE:
                self._ended.add(watcher)
        return ahead
