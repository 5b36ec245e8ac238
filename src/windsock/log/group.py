"""Group commit: the writes of many concurrent callers in one transaction.

A durable commit costs about the same for one event as for hundreds. While one commit runs in a thread, the
writes that arrive gather, and the next commit takes them all::

    append(a) ─┐
    append(b) ─┼─▶ waiting ──▶ log.append([a, b, c]) ──▶ each caller's own Appended
    append(c) ─┘      ▲                 │
                      └── d, e, f ◀─────┘ gather meanwhile
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.records import Appended, Write
from windsock.log.transaction import LogUnavailable

__all__ = ["GroupCommit", "Overloaded"]

logger = logging.getLogger("windsock.log.group")


class Overloaded(WindsockError):
    """More writes wait for the log than may; nothing was stored, so try again in a moment."""


class GroupCommit:
    """Appends to ``log`` on behalf of many tasks of one event loop.

    A group that fails is tried again write by write, so that one bad write does not fail its neighbours. A
    log that is away (:class:`LogUnavailable`) fails them all at once: each alone would only wait as long.
    """

    def __init__(self, log: Log, *, max_group: int = 500, max_waiting: int = 5000) -> None:
        self._log = log
        self._max_group = max_group
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[Write, asyncio.Future[Appended]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def append(self, write: Write) -> Appended:
        """Return once the write is committed; raise what the log raised, or :class:`Overloaded`.

        A caller that is cancelled does not take its write back: it may be stored all the same.
        """
        if self._closed:
            raise Overloaded("the log is being closed: try again in a moment")
        if len(self._waiting) >= self._max_waiting:
            raise Overloaded(f"{len(self._waiting)} writes wait for the log: try again in a moment")
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="windsock-group-commit")
        return await answer

    async def aclose(self) -> None:
        """Take no more writes, and return when those that wait are committed. The log stays open."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_group))]
            try:
                results = await asyncio.to_thread(self._commit, [write for write, _ in group])
            except BaseException:
                # The loop is stopping. Whoever still waits must not wait for ever.
                for _, answer in (*group, *self._waiting):
                    answer.cancel()
                self._waiting.clear()
                raise
            for (_, answer), result in zip(group, results, strict=True):
                if answer.done():  # its caller was cancelled
                    continue
                if isinstance(result, Appended):
                    answer.set_result(result)
                else:
                    answer.set_exception(result)

    def _commit(self, writes: Sequence[Write]) -> Sequence[Appended | Exception]:
        try:
            return self._log.append(writes)
        except Exception as error:  # noqa: BLE001 - handed to the callers whose writes failed
            if len(writes) == 1 or isinstance(error, LogUnavailable):
                return [error] * len(writes)
            logger.warning("windsock.log.group_split writes=%d error=%s", len(writes), type(error).__name__)
        return [self._commit([write])[0] for write in writes]
