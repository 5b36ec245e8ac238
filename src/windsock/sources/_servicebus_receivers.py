"""Receivers of one Service Bus queue or subscription: messages locked, kept so, settled or given back.

Azure's receiver is not made for tasks that use it side by side, so each has one task that receives, renews
and settles in turns. One of them always waits; further ones start when there is much to do, or, with
sessions, when one has found a session, and end when nothing comes any more.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from windsock.events import SourceError

__all__ = ["BATCH", "POLL", "Held", "Receivers", "explained"]

logger = logging.getLogger(__name__)

BATCH = 200
"""The most messages of one receive, and those that a receiver asks for ahead."""
POLL = 0.5
"""Seconds that Azure's client listens at a time: the delay of a lone message, and the price of silence."""
_LONG = 60.0
_SHORT = 0.2
"""Seconds that a receive waits: with nothing to settle or renew, and otherwise."""
_LINGER = 1.0
"""Seconds after which a receiver ends that is not the first one, or leaves its session."""
_MANY = 50
"""A receive of so many messages calls for another receiver."""
_PARTING = 10.0
"""Seconds for the work that is under way at close; what is still held then comes back by its lock. Azure's
client alone takes one or two, to give back what it has ahead."""


@contextmanager
def explained(what: str, conn_id: str) -> Iterator[None]:
    """Turn what Azure's client raises in the block into a SourceError: what happened, where, what to do."""
    from azure.core.exceptions import AzureError
    from azure.servicebus import exceptions as known

    try:
        yield
    except known.MessagingEntityNotFoundError as error:
        raise SourceError(f"{what} does not exist: create it, or correct its name") from error
    except known.MessagingEntityDisabledError as error:
        raise SourceError(f"{what} is disabled: enable it") from error
    except known.ServiceBusAuthenticationError as error:
        raise SourceError(
            f"{what}: Service Bus refused the credentials: correct connection string or key of {conn_id!r}"
        ) from error
    except known.ServiceBusAuthorizationError as error:
        raise SourceError(
            f"{what}: access is denied: give the identity or policy of {conn_id!r} the right to listen"
        ) from error
    except (known.SessionLockLostError, known.MessageLockLostError) as error:
        raise SourceError(
            f"{what}: a lock was lost ({_condition(error)}): what was not yet settled comes again"
        ) from error
    except (known.ServiceBusConnectionError, known.ServiceBusCommunicationError, OSError) as error:
        raise SourceError(
            f"{what} cannot be reached ({_condition(error)}): check namespace and network of {conn_id!r}"
        ) from error
    except (AzureError, ValueError) as error:
        # A receiver that does not know sessions, on a queue that has them, is refused without a name for it.
        raise SourceError(
            f"{what}: Service Bus answered {_condition(error)}: set sessions if it has them and leave it out "
            "if not; otherwise it is tried again"
        ) from error


def _condition(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


@dataclass(slots=True, eq=False)
class Held:
    """A message that was received and is not yet settled."""

    message: Any
    worker: _Worker
    reason: str | None = None
    """Why it goes to the dead-letter queue; None if it is to be completed."""


@dataclass(slots=True, eq=False)
class _Worker:
    """One receiver, its messages, and what is to be settled."""

    receiver: Any
    held: dict[int, Held] = field(default_factory=dict)
    """By sequence number."""
    due: deque[Held] = field(default_factory=deque)
    """Those that are to be settled."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    half: dt.timedelta = dt.timedelta(seconds=15)
    """Half of a lock's time."""
    socket: Any = None
    """What Azure's client (7.15) leaves open when the connection was reset."""

    async def open(self) -> None:
        """Connect, and with sessions wait for one."""
        opening = asyncio.ensure_future(self.receiver.__aenter__())
        pause = 0.005
        try:
            while not opening.done():
                await asyncio.wait({opening}, timeout=pause)
                pause = min(2 * pause, POLL)
                connection = getattr(getattr(self.receiver, "_handler", None), "_connection", None)
                self.socket = getattr(connection, "_transport", None) or self.socket
        finally:
            while not opening.done():
                opening.cancel()
                await asyncio.wait({opening}, timeout=_SHORT)
        opening.result()

    async def close(self) -> None:
        """Let go of the connection, however it is; what is wrong with it was said before."""
        with suppress(Exception):
            async with asyncio.timeout(_PARTING):
                await self.receiver.close()
        if self.socket is not None:
            with suppress(Exception):
                async with asyncio.timeout(_PARTING):
                    await self.socket.close()


class Receivers:
    """Reads one queue or subscription; see the module's docstring.

    ``opened`` makes a receiver, for the next session that is free or without one.
    """

    def __init__(
        self,
        opened: Callable[[bool], Any],
        what: str,
        conn_id: str,
        *,
        sessions: bool,
        receivers: int,
        most: int,
    ) -> None:
        self._opened, self._what, self._conn_id = opened, what, conn_id
        self._sessions, self._receivers, self._most = sessions, receivers, most
        self._arrived: asyncio.Queue[list[Held] | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: set[_Worker] = set()
        self._idle: set[asyncio.Task[None]] = set()
        """Tasks that wait with nothing in their hands."""
        self._started = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin to receive; raises SourceError if the first receiver cannot be had."""
        if self._sessions:
            with explained(self._what, self._conn_id):
                await self._probe()
            self._spawn(first=True)
            return
        self._spawn(first=True)
        await self._started.wait()
        if self._failure is not None:
            raise self._failure

    async def _probe(self) -> None:
        """Whether there is something with sessions, and we may read it.

        Who waits for a session hears nothing until there is one; who asks without is refused at once.
        """
        from azure.servicebus.exceptions import ServiceBusError

        worker = _Worker(self._opened(False))
        try:
            await worker.open()
            await worker.receiver.receive_messages(1, max_wait_time=_SHORT)
        except ServiceBusError as error:
            if type(error) is ServiceBusError:
                return  # not one of those that have a name: it has sessions
            raise
        finally:
            await worker.close()
        raise SourceError(f"{self._what} has no sessions: leave out sessions")

    async def take(self) -> list[Held]:
        """The messages of the next receive, at least one; nothing, once it is closed."""
        while not self._closed:
            if arrived := await self._arrived.get():
                return arrived
            if self._failure is not None and not self._closed:
                raise self._failure
        return []

    async def settle(self, held: Sequence[Held]) -> None:
        """Have messages completed, or moved to the dead-letter queue, as each says.

        That goes on in the background, because each waits for its answer; close waits for it.
        """
        worker = held[0].worker
        if self._closed or worker not in self._workers:
            raise self._failure or SourceError(
                f"{self._what}: the connection ended before messages were settled: they come again"
            )
        worker.due += held
        worker.news.set()

    async def close(self) -> None:
        """Stop receiving and give back what is held, so that it comes again at once."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.news.set()
        busy = self._tasks - self._idle
        if busy:
            await asyncio.wait(busy, timeout=_PARTING)
        while left := {task for task in self._tasks if not task.done()}:
            for task in left:  # more than once: before Python 3.12 wait_for may swallow it
                task.cancel()
            await asyncio.wait(left, timeout=_SHORT)
        self._arrived.put_nowait(None)

    def _spawn(self, *, first: bool = False) -> None:
        if len(self._tasks) < self._receivers and not self._closed:
            task = asyncio.create_task(self._report(first), name=f"windsock-{self._what}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(self._idle.discard)

    async def _report(self, first: bool) -> None:
        """Hand the error that ended a task to whoever takes."""
        try:
            with explained(self._what, self._conn_id):
                while await self._work(first) and not self._closed:
                    pass
        except Exception as error:  # noqa: BLE001 - a receiver that ends unheard is a reader that hangs
            self._failure = error
            self._arrived.put_nowait(None)
        finally:
            self._started.set()

    async def _work(self, first: bool) -> bool:
        """The life of one receiver; whether another one is to follow in this task."""
        from azure.servicebus.exceptions import OperationTimeoutError

        task: Any = asyncio.current_task()
        worker = _Worker(self._opened(self._sessions))
        self._idle.add(task)
        try:
            try:
                await worker.open()
                messages = await worker.receiver.receive_messages(
                    min(self._most, BATCH), max_wait_time=_SHORT
                )
            except OperationTimeoutError:
                if not self._sessions:
                    raise
                return first  # no session was free
            self._idle.discard(task)
            self._workers.add(worker)
            self._started.set()
            if self._sessions:
                self._spawn()
            self._hold(worker, messages)
            await self._serve(worker, first, task)
        finally:
            self._workers.discard(worker)
            await worker.close()
        return first or self._sessions

    async def _serve(self, worker: _Worker, first: bool, task: asyncio.Task[None]) -> None:
        """Receive, renew and settle in turns."""
        stays, quiet = first and not self._sessions, False
        while not self._closed:
            await self._settle_due(worker)
            await self._renew(worker)
            room = self._most - sum(len(each.held) for each in self._workers)
            if room <= 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SHORT):
                        await worker.news.wait()
                worker.news.clear()
                continue
            # Azure's client keeps what it has ahead for as long as it waits for more to come: a long wait
            # must begin with nothing ahead.
            wait = _SHORT if worker.held or not quiet else _LONG if stays else _LINGER
            if wait > _SHORT:
                self._idle.add(task)
            messages = await worker.receiver.receive_messages(min(room, BATCH), max_wait_time=wait)
            self._idle.discard(task)
            self._hold(worker, messages)
            if len(messages) >= _MANY and not self._sessions:
                self._spawn()
            if not messages and wait == _LINGER:
                return
            quiet = not messages
        await self._settle_due(worker)
        if not self._sessions:  # which close gives back as a whole
            for held in list(worker.held.values()):
                await worker.receiver.abandon_message(held.message)

    def _hold(self, worker: _Worker, messages: Sequence[Any]) -> None:
        now = dt.datetime.now(dt.UTC)
        news: list[Held] = []
        for message in messages:
            if not self._sessions and message.locked_until_utc:
                if message.locked_until_utc <= now:
                    continue  # it lay in the client's buffer for too long, and comes again
                worker.half = (message.locked_until_utc - now) / 2
            held = Held(message, worker)
            worker.held[message.sequence_number] = held
            news.append(held)
        if news:
            self._arrived.put_nowait(news)

    async def _renew(self, worker: _Worker) -> None:
        """Renew the locks of which half is gone."""
        from azure.servicebus.exceptions import MessageLockLostError

        now = dt.datetime.now(dt.UTC)
        if self._sessions:
            session = worker.receiver.session
            if session.locked_until_utc and session.locked_until_utc < now + worker.half:
                until = await session.renew_lock()
                worker.half = max((until - dt.datetime.now(dt.UTC)) / 2, dt.timedelta(seconds=1))
            return
        soon = now + worker.half
        for held in [each for each in worker.held.values() if (each.message.locked_until_utc or soon) < soon]:
            try:
                await worker.receiver.renew_message_lock(held.message)
            except MessageLockLostError:
                worker.held.pop(held.message.sequence_number, None)
                self._lost(held)

    async def _settle_due(self, worker: _Worker) -> None:
        done = 0
        while worker.due:
            await self._settle(worker, worker.due.popleft())
            done += 1
            if done % _MANY == 0:
                await self._renew(worker)

    async def _settle(self, worker: _Worker, held: Held) -> None:
        from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError

        message = held.message
        if worker.held.pop(message.sequence_number, None) is None:
            return  # its lock was lost, which was said then
        try:
            if held.reason is None:
                await worker.receiver.complete_message(message)
            else:
                await worker.receiver.dead_letter_message(
                    message, reason="Unreadable", error_description=held.reason[:1000]
                )
        except (MessageLockLostError, MessageAlreadySettled):
            self._lost(held)

    def _lost(self, held: Held) -> None:
        logger.warning(
            "windsock.servicebus.lock_lost %s sequence_number=%s: it comes again, as a duplicate",
            *(self._what, held.message.sequence_number),
        )
