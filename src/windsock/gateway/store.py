"""The event log as the gateway uses it: opened on first use, off the event loop, a failure is a refusal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from windsock.gateway.refusal import Refused
from windsock.log.base import Log
from windsock.log.group import GroupCommit, Overloaded
from windsock.log.records import Appended, Write
from windsock.spec import SpecError, WatcherSpec

__all__ = ["Store"]

logger = logging.getLogger("windsock.gateway.store")

T = TypeVar("T")


class Store:
    """Awaitable access to the log; every method raises :class:`Refused` (503) if the log is not there.

    ``log`` is the log, or a function that opens it. The function runs in the first request and not before,
    so that a server that forks its workers does not share a connection among them; it runs again as long
    as it fails. :meth:`aclose` closes only what was opened here.
    """

    def __init__(self, log: Log | Callable[[], Log]) -> None:
        self._given = log
        self._opened: tuple[Log, GroupCommit] | None = None
        self._opening = asyncio.Lock()

    async def watchers(self) -> list[WatcherSpec]:
        """Every registered definition."""
        log, _ = await self._ready()
        return await self._run(log.watchers)

    async def backlog(self, watcher: str) -> int:
        """How many of the watcher's events are not settled."""
        log, _ = await self._ready()
        return await self._run(lambda: log.backlog([watcher]))

    async def ask(self, question: Callable[[Log], T]) -> T:
        """What the log answers; a question that is put wrongly raises SpecError."""
        log, _ = await self._ready()
        try:
            return await asyncio.to_thread(question, log)
        except SpecError:
            raise
        except Exception as error:  # a database driver may raise anything
            raise self._away(error) from error

    async def append(self, write: Write) -> Appended:
        """Store the write, together with those of other requests; returns after the commit."""
        _, group = await self._ready()
        try:
            return await group.append(write)
        except Overloaded as error:
            raise Refused(503, str(error), retry_after=1) from error
        except Exception as error:  # a database driver may raise anything
            raise self._away(error) from error

    async def aclose(self) -> None:
        """Wait for the appends under way, then close the log if it was opened here."""
        if self._opened is not None:
            log, group = self._opened
            await group.aclose()
            if callable(self._given):
                await asyncio.to_thread(log.close)

    async def _ready(self) -> tuple[Log, GroupCommit]:
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    log = await self._run(self._given) if callable(self._given) else self._given
                    self._opened = log, GroupCommit(log)
        return self._opened

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except Exception as error:  # a database driver may raise anything
            raise self._away(error) from error

    @staticmethod
    def _away(error: Exception) -> Refused:
        logger.error("windsock.gateway.log_unreachable error=%s: %s", type(error).__name__, error)
        return Refused(503, "the event log cannot be reached: try again", retry_after=2)
