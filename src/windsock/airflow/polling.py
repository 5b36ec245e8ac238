"""PollingTrigger: what the triggers that look again and again share, above all the deadline.

The deadline is a point in time, not a span: whoever defers fixes it, and it is stored with the trigger. A
triggerer that restarts, or another one that takes over, goes on with what is left of it.
"""

from __future__ import annotations

import abc
import asyncio
import datetime as dt
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from windsock.spec import SpecError, seconds

__all__ = ["PollingTrigger", "positive_seconds"]

_MARGIN = 60.0
"""Seconds that Airflow's own deferral timeout comes after ours.

Airflow only says that a trigger timed out; ours says what it waited for and what it saw instead. Airflow's
is for the case that no triggerer runs at all.
"""


class PollingTrigger(BaseTrigger, abc.ABC):
    """Looks every ``poll_interval`` seconds until something is so or the deadline passes; fires one event.

    :param poll_interval: seconds between two looks, or text such as ``"30s"``
    :param timeout: seconds from the making of the trigger to its deadline; None waits for ever
    :param deadline: the deadline itself in epoch seconds, of a trigger that was made before
    :param clock: the time in epoch seconds, and
    :param sleep: how to let it pass: for tests
    """

    def __init__(
        self,
        *,
        poll_interval: float | str,
        timeout: float | str | None,
        deadline: float | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        super().__init__()
        self.poll_interval = positive_seconds("poll_interval", poll_interval)
        self.timeout = None if timeout is None else positive_seconds("timeout", timeout)
        self.clock = clock
        self.sleep = sleep
        if deadline is None and self.timeout is not None:
            deadline = clock() + self.timeout
        self.deadline = deadline

    @abc.abstractmethod
    async def wait(self) -> dict[str, Any]:
        """Look until it is so or the deadline passes; the event's payload, with its ``status``."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The one event; whatever :meth:`wait` opened is closed before it is handed over."""
        yield TriggerEvent(await self.wait())

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return math.inf if self.deadline is None else self.deadline - self.clock()

    @property
    def elapsed(self) -> float | None:
        """Seconds since the wait began, whichever triggerer it began in; None without a timeout."""
        return None if self.timeout is None else round(self.timeout - self.left, 3)

    @property
    def deferral_timeout(self) -> dt.timedelta | None:
        """The timeout to defer with: Airflow's own, which steps in only if ours cannot."""
        return None if self.deadline is None else dt.timedelta(seconds=max(self.left, 0.0) + _MARGIN)

    async def pause(self, span: float) -> bool:
        """Let time pass, at most until the deadline; False if that has passed already.

        So the last look is at the deadline itself, also if no triggerer ran for a while.
        """
        left = self.left
        if left <= 0:
            return False
        await self.sleep(min(span, left))
        return True


def positive_seconds(option: str, value: float | str) -> float:
    """The seconds of an option that must be more than nothing."""
    span = seconds(value)
    if span <= 0:
        raise SpecError(f"{option} must be more than 0 seconds, not {value!r}")
    return span
