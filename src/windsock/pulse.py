"""The heartbeat of all runners of a process: leases renewed and health stored in one transaction."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, ref

from windsock.events import LeaseLost, WindsockError
from windsock.log.base import Log
from windsock.log.records import Beat, Kept

__all__ = ["Pulse"]


class Pulse:
    """The heartbeat of all runners of a process on one log: they share one transaction.

    Two hundred quiet sources would otherwise be two hundred commits every few seconds.
    """

    _pulses: ClassVar[WeakKeyDictionary[Log, dict[tuple[Any, float, float], Pulse]]] = WeakKeyDictionary()

    def __init__(self, log: Log, interval: float, lease: float) -> None:
        self._log = ref(log)
        self._interval = interval
        self._lease = lease
        self._waiting: list[tuple[Beat, asyncio.Future[Kept]]] = []
        self._due: asyncio.TimerHandle | None = None
        self._beats: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, log: Log, *, interval: float, lease: float) -> Pulse:
        """The pulse that the runners of this event loop share; times in seconds."""
        known = cls._pulses.setdefault(log, {})
        return known.setdefault((asyncio.get_running_loop(), interval, lease), cls(log, interval, lease))

    async def beat(self, beat: Beat, *, now: bool) -> Kept:
        """Store the beat with the others at the next common moment, or now; raises LeaseLost."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Kept] = loop.create_future()
        self._waiting.append((beat, answer))
        if now:
            self._start()
        elif self._due is None:
            beats = loop.time() // self._interval
            self._due = loop.call_at((beats + 1) * self._interval, self._start)
        return await answer

    def _start(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        waiting, self._waiting = self._waiting, []
        task = asyncio.create_task(self._store(waiting), name="windsock-pulse")
        self._beats.add(task)
        task.add_done_callback(self._beats.discard)

    async def _store(self, waiting: list[tuple[Beat, asyncio.Future[Kept]]]) -> None:
        log = self._log()
        try:
            if log is None:
                raise WindsockError("the log is gone")
            kept = await asyncio.to_thread(log.beat, [beat for beat, _ in waiting], self._lease)
        except Exception as error:  # noqa: BLE001 - every reader that waits must hear of it
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (beat, answer), found in zip(waiting, kept, strict=True):
            if answer.done():
                continue
            if found is None:
                answer.set_exception(LeaseLost(f"lease {beat.lease.name!r} was taken over"))
            else:
                answer.set_result(found)
