"""A thread of one's own for a client that blocks."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Worker"]

T = TypeVar("T")


class Worker:
    """Runs blocking calls one after the other in a thread that never keeps the process from ending."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.busy = False
        """Whether a call is being done."""
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have something done after what was asked for before."""
        future: Future[T] = Future()
        self._jobs.put((future, call))
        return future

    async def call(self, call: Callable[[], T]) -> T:
        """Have something done and wait for it; a cancelled wait leaves the call to end by itself."""
        return await asyncio.wrap_future(self.submit(call))

    def end(self) -> None:
        """Let the thread end after what it still has to do."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            self.busy = True
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
                self.busy = False
                future.set_exception(error)
            else:
                self.busy = False
                future.set_result(result)
