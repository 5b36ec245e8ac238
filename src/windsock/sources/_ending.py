"""How a read that waits for its system learns that the source was closed or the connection lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["Ended", "Ending"]

T = TypeVar("T")


class Ended(Exception):
    """The source was closed: the read returns."""


class Ending:
    """The end of one connection, from ``connect`` to ``close``; made inside the event loop."""

    def __init__(self) -> None:
        self._over: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def end(self, error: Exception | None = None) -> None:
        """End what waits, by the error or, without one, by :class:`Ended`; only the first call counts."""
        if not self._over.done():
            self._over.set_result(error or Ended())

    def check(self) -> None:
        """Raise if it is over."""
        if self._over.done():
            raise self._over.result()

    async def first(self, waiting: Awaitable[T]) -> T:
        """What the awaitable returns; if the end comes first, it is cancelled and the reason raised.

        Also the safe way to call a client that waits with ``asyncio.wait_for``: before Python 3.12 that may
        swallow the cancellation of whoever calls it.
        """
        task = asyncio.ensure_future(waiting)
        try:
            both: set[asyncio.Future[Any]] = {task, self._over}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self._over.result()
        finally:
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=0.1)
