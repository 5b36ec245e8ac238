"""One Pub/Sub subscription as its reader sees it: messages pulled, their leases kept, acked or given back.

While nothing comes there is one pull that waits. A full answer wakes the other receivers, which stop by
themselves when there is nothing left. What is held, because it was pulled and not yet acked, is handed to
nobody else for as long as that takes: its ack deadline is extended in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from windsock.events import SourceError
from windsock.sources import _google
from windsock.sources.base import MAX_DELIVERY

__all__ = ["Held", "Subscription", "explained"]

logger = logging.getLogger(__name__)

_WAIT = 60.0
"""Seconds that one pull waits for messages."""
_ANSWER = 15.0
"""Seconds for the answer to any other call."""
_PAUSE = 1.0
"""Seconds from one pull that brings nothing to the next, if Pub/Sub does not wait itself."""
_FEW = 100
"""An answer with fewer messages wakes no other receivers."""
_CALLS = 4
"""How many batches are acked or extended at once."""
_ATTEMPTS = 3
"""How often an ack is tried that Pub/Sub could not take for the moment."""
_PARTING = 3.0
"""Seconds that giving messages back may take at close; after that they come back by their deadline."""


@dataclass(slots=True, eq=False)
class Held:
    """A message that was pulled and not yet acked."""

    received: Any
    handle: str
    """The newest ack id; only that one acks."""
    until: float
    """When its lease ends, on the monotonic clock."""

    @property
    def id(self) -> str:
        return str(self.received.message.message_id)


@contextmanager
def explained(what: str, conn_id: str) -> Iterator[None]:
    """Turn what Pub/Sub's client raises in the block into a SourceError: what happened, where, what to do."""
    import google.api_core.exceptions as api

    with _google.explained(what, conn_id):
        try:
            yield
        except (api.ServiceUnavailable, api.DeadlineExceeded) as error:
            raise SourceError(
                f"{what} cannot be reached ({error.message}): check the network, and project and "
                f"pubsub_endpoint in the extra of {conn_id!r}"
            ) from error


class Subscription:
    """Pulls from one subscription; see the module's docstring.

    ``lease`` is the subscription's own ack deadline, with which messages come, ``deadline`` the one that
    they are given while they are held.
    """

    def __init__(
        self, client: Any, path: str, conn_id: str, *, lease: int, deadline: int, receivers: int, most: int
    ) -> None:
        self._client, self._path, self._conn_id = client, path, conn_id
        self._lease, self._deadline, self._receivers, self._most = lease, deadline, receivers, most
        self._held: dict[str, Held] = {}
        self._asked = 0
        self._room = asyncio.Event()
        self._arrived: asyncio.Queue[list[Held] | Exception | None] = asyncio.Queue()
        self._busy = asyncio.Event()
        self._calls = asyncio.Semaphore(_CALLS)
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    def start(self) -> None:
        """Begin to pull."""
        work = [self._scout(), self._keep(), *(self._help() for _ in range(self._receivers - 1))]
        self._tasks = [
            asyncio.create_task(self._report(each), name=f"windsock-{self._path}") for each in work
        ]

    async def take(self) -> list[Held]:
        """The messages of the next answer, at least one; nothing, once it is closed."""
        while not self._closed:
            arrived = await self._arrived.get()
            if isinstance(arrived, Exception):
                raise arrived
            if arrived:
                return arrived
        return []

    async def ack(self, held: Sequence[Held]) -> None:
        """Tell Pub/Sub that messages are dealt with for good."""
        if self._closed:
            raise SourceError(
                f"{self._path}: the connection ended before messages were acknowledged: they come again"
            )
        for each in held:
            self._held.pop(each.id, None)
        self._room.set()
        await self._in_batches(held, self._acknowledge)

    async def close(self) -> None:
        """Stop pulling and give back what is held, so that it comes again at once."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._arrived.put_nowait(None)
        held = list(self._held.values())
        self._held.clear()
        try:
            async with asyncio.timeout(_PARTING):
                await self._in_batches(held, lambda batch: self._extend(batch, 0))
        except (SourceError, TimeoutError) as error:
            logger.debug("windsock.pubsub.not_given_back %s messages=%d: %s", self._path, len(held), error)

    async def _report(self, work: Awaitable[None]) -> None:
        """Hand the error that ended the work to whoever takes."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a receiver that ends unheard is a reader that hangs
            self._arrived.put_nowait(error)

    async def _scout(self) -> None:
        """The one receiver that always waits for messages."""
        while True:
            asked = time.monotonic()
            count = await self._pull()
            if count >= _FEW:
                self._busy.set()
            elif not count:
                # A pull that does not wait would be asked again and again.
                await asyncio.sleep(max(0.0, _PAUSE - (time.monotonic() - asked)))

    async def _help(self) -> None:
        """One of the others: pulls for as long as there is much."""
        while True:
            await self._busy.wait()
            if await self._pull() < _FEW:
                self._busy.clear()

    async def _pull(self) -> int:
        """Pull once, when there is room; how many messages came."""
        from google.api_core.exceptions import DeadlineExceeded
        from google.pubsub_v1 import PullRequest, PullResponse

        while (room := self._most - len(self._held) - self._asked) <= 0:
            self._room.clear()
            await self._room.wait()
        size = min(room, MAX_DELIVERY)
        request = PullRequest(subscription=self._path, max_messages=size)
        self._asked += size
        try:
            with self._explained():
                answer = PullResponse.pb(await self._client.pull(request, retry=None, timeout=_WAIT))
        except SourceError as error:
            if isinstance(error.__cause__, DeadlineExceeded):
                return 0  # a quiet minute
            raise
        finally:
            self._asked -= size
            self._room.set()
        if news := list(self._news(answer.received_messages, time.monotonic())):
            self._arrived.put_nowait(news)
        return len(answer.received_messages)

    def _news(self, received: Iterable[Any], now: float) -> Iterator[Held]:
        """Those messages that are not held already: Pub/Sub may hand one out twice."""
        for each in received:
            until = now + self._lease
            if known := self._held.get(each.message.message_id):
                known.handle, known.until = each.ack_id, until
                continue
            held = self._held[each.message.message_id] = Held(each, each.ack_id, until)
            yield held

    async def _keep(self) -> None:
        """Extend the leases of what is held, well before they end."""
        step = min(self._lease, self._deadline) / 4
        while True:
            await asyncio.sleep(step)
            soon = time.monotonic() + 2 * step
            due = [held for held in self._held.values() if held.until < soon]
            await self._in_batches(due, lambda batch: self._extend(batch, self._deadline))

    async def _in_batches(
        self, held: Sequence[Held], act: Callable[[Sequence[Held]], Awaitable[None]]
    ) -> None:
        async def one(batch: Sequence[Held]) -> None:
            async with self._calls:
                with self._explained():
                    await act(batch)

        await asyncio.gather(*(one(held[at : at + 1000]) for at in range(0, len(held), 1000)))

    async def _extend(self, batch: Sequence[Held], seconds: int) -> None:
        from google.pubsub_v1 import ModifyAckDeadlineRequest

        now = time.monotonic()
        request = ModifyAckDeadlineRequest(
            subscription=self._path,
            ack_ids=[held.handle for held in batch],
            ack_deadline_seconds=seconds,
        )
        failed = await self._call(self._client.modify_ack_deadline, request)
        for held in batch:
            # What could not be extended may come again, as a duplicate; there is nothing more to extend.
            held.until = float("inf") if held.handle in failed else now + seconds

    async def _acknowledge(self, batch: Sequence[Held]) -> None:
        from google.pubsub_v1 import AcknowledgeRequest

        handles = [held.handle for held in batch]
        for attempt in range(_ATTEMPTS):
            request = AcknowledgeRequest(subscription=self._path, ack_ids=handles)
            failed = await self._call(self._client.acknowledge, request)
            if not failed:
                return
            if again := [handle for handle, why in failed.items() if why.startswith("TRANSIENT")]:
                handles = again
                await asyncio.sleep(0.1 * 2**attempt)
            else:
                break
        logger.warning(
            "windsock.pubsub.not_acked %s messages=%d reason=%s: they come again, as duplicates",
            *(self._path, len(failed), next(iter(failed.values()))),
        )

    async def _call(self, method: Callable[..., Awaitable[None]], request: Any) -> dict[str, str]:
        """Call Pub/Sub; the ack ids that a subscription with exactly-once delivery refused, and why."""
        from google.api_core.exceptions import GoogleAPICallError

        try:
            await method(request, retry=None, timeout=_ANSWER)
        except GoogleAPICallError as error:
            failures = {handle: str(why) for handle, why in (error.metadata or {}).items()}
            failed = {handle: why for handle, why in failures.items() if "_FAILURE_" in why}
            if not failed:
                raise
            return failed
        return {}

    def _explained(self) -> Any:
        return explained(f"Pub/Sub subscription {self._path!r}", self._conn_id)
