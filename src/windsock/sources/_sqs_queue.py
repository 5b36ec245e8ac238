"""One SQS queue as its reader sees it: messages taken, hidden while they are held, deleted or given back.

While nothing comes there is one long poll. A full answer wakes the other receivers, which stop by themselves
when there is nothing left. What is held, because it was taken and not yet deleted, stays hidden from other
consumers for as long as that takes: its visibility is extended in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windsock.events import SourceError
from windsock.sources._aws import explained
from windsock.sources.base import MAX_DELIVERY

__all__ = ["Held", "Queue"]

logger = logging.getLogger(__name__)

_BATCH = 10
"""The most messages that SQS gives, hides or deletes in one call."""
_ATTEMPTS = 3
"""How often a deletion that failed inside a batch is tried."""
_CALLS = 8
"""How many batches are deleted or hidden at once."""
_PARTING = 3.0
"""Seconds that giving messages back may take at close; after that they come back by their time-out."""


@dataclass(slots=True, eq=False)
class Held:
    """A message that was taken and not yet deleted."""

    message: dict[str, Any]
    handle: str
    """The newest receipt; only that one deletes."""
    hidden: float
    """When its visibility was last set, on the monotonic clock."""

    @property
    def id(self) -> str:
        return str(self.message["MessageId"])


class Queue:
    """Takes messages from one queue; see the module's docstring."""

    def __init__(
        self, client: Any, url: str, name: str, conn_id: str, *, visibility: int, wait: int, receivers: int
    ) -> None:
        self._client, self._url, self._name, self._conn_id = client, url, name, conn_id
        self._visibility, self._wait, self._receivers = visibility, wait, receivers
        self._held: dict[str, Held] = {}
        self._arrived: asyncio.Queue[list[Held] | Exception | None] = asyncio.Queue(receivers * 2)
        self._busy = asyncio.Event()
        self._calls = asyncio.Semaphore(_CALLS)
        self._tasks: list[asyncio.Task[None]] = []
        self._polls: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.moved = True
        """Whether something was taken or deleted since somebody last set it to false."""

    def start(self) -> None:
        """Begin to receive."""
        work = [self._scout(), self._keep_hidden(), *(self._help() for _ in range(self._receivers - 1))]
        self._tasks = [
            asyncio.create_task(self._report(each), name=f"windsock-{self._name}") for each in work
        ]

    async def take(self) -> list[Held]:
        """All that has arrived, at least one message; nothing, once it is closed."""
        taken: list[Held] = []
        while not self._closed and (not taken or not self._arrived.empty()):
            if len(taken) + _BATCH > MAX_DELIVERY:
                break
            arrived = await self._arrived.get()
            if isinstance(arrived, Exception):
                raise arrived
            taken += arrived or ()
        return taken

    async def delete(self, held: Sequence[Held]) -> None:
        """Remove messages from the queue for good."""
        for each in held:
            self._held.pop(each.id, None)
        await self._in_batches(held, self._delete)
        self.moved = True

    async def close(self) -> None:
        """Stop receiving and give back what is held, so that it comes again at once."""
        if self._closed:
            return
        self._closed = True
        if self._polls and self._wait <= _PARTING:
            # A server may go on with a poll that was broken off, and hide what it finds from everybody.
            await asyncio.wait(self._polls, timeout=_PARTING)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._arrived.empty():
            self._arrived.get_nowait()
        self._arrived.put_nowait(None)
        held = list(self._held.values())
        self._held.clear()
        try:
            async with asyncio.timeout(_PARTING):
                await self._in_batches(held, lambda batch: self._hide(batch, 0))
        except (SourceError, TimeoutError) as error:
            logger.debug("windsock.sqs.not_given_back queue=%s messages=%d: %s", self._name, len(held), error)

    async def _report(self, work: Awaitable[None]) -> None:
        """Hand the error that ended the work to whoever takes."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a receiver that ends unheard is a reader that hangs
            await self._arrived.put(error)

    async def _scout(self) -> None:
        """The one receiver that always waits for messages."""
        while not self._closed:
            if await self._receive(self._wait) == _BATCH:
                self._busy.set()

    async def _help(self) -> None:
        """One of the others: receives for as long as there is something."""
        while not self._closed:
            await self._busy.wait()
            # Not at once: an answer without waiting asks only some of the servers that hold a queue.
            if not await self._receive(min(self._wait, 1)):
                self._busy.clear()

    async def _receive(self, wait: int) -> int:
        """Receive once; how many messages came."""
        asked = time.monotonic()
        poll = asyncio.create_task(
            self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=_BATCH,
                WaitTimeSeconds=wait,
                VisibilityTimeout=self._visibility,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
        )
        self._polls.add(poll)
        poll.add_done_callback(self._polls.discard)
        with explained(f"SQS queue {self._name!r}", self._conn_id):
            answer = await poll
        messages = answer.get("Messages") or []
        if news := list(self._news(messages, time.monotonic())):
            self.moved = True
            await self._arrived.put(news)
        elif not messages and time.monotonic() - asked < wait / 2:
            # A long poll that does not wait would be asked again and again.
            await asyncio.sleep(1.0)
        return len(messages)

    def _news(self, messages: Iterable[dict[str, Any]], now: float) -> Iterator[Held]:
        """Those messages that are not held already: SQS may hand one out twice."""
        for message in messages:
            handle = message["ReceiptHandle"]
            if known := self._held.get(message["MessageId"]):
                known.handle, known.hidden = handle, now
                continue
            held = self._held[message["MessageId"]] = Held(message, handle, now)
            yield held

    async def _keep_hidden(self) -> None:
        """Extend the visibility of what is held, well before it ends."""
        while True:
            await asyncio.sleep(self._visibility / 4)
            late = time.monotonic() - self._visibility / 4
            due = [held for held in self._held.values() if held.hidden <= late]
            await self._in_batches(due, lambda batch: self._hide(batch, self._visibility))

    async def _in_batches(
        self, held: Sequence[Held], act: Callable[[Sequence[Held]], Awaitable[None]]
    ) -> None:
        async def one(batch: Sequence[Held]) -> None:
            async with self._calls:
                with explained(f"SQS queue {self._name!r}", self._conn_id):
                    await act(batch)

        await asyncio.gather(*(one(held[at : at + _BATCH]) for at in range(0, len(held), _BATCH)))

    async def _hide(self, batch: Sequence[Held], seconds: int) -> None:
        now = time.monotonic()
        entries = [
            {"Id": str(at), "ReceiptHandle": held.handle, "VisibilityTimeout": seconds}
            for at, held in enumerate(batch)
        ]
        answer = await self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
        failed = {entry["Id"]: entry for entry in answer.get("Failed") or ()}
        for at, held in enumerate(batch):
            problem = failed.get(str(at))
            if problem is None:
                held.hidden = now
            elif self._held.pop(held.id, None):  # else it was deleted meanwhile
                # It is visible already, or is held for longer than the 12 hours that SQS allows.
                logger.warning(
                    "windsock.sqs.not_hidden queue=%s message=%s code=%s: it may come again, as a duplicate",
                    *(self._name, held.id, problem.get("Code")),
                )

    async def _delete(self, batch: Sequence[Held]) -> None:
        problem: dict[str, Any] = {}
        for attempt in range(_ATTEMPTS):
            entries = [{"Id": str(at), "ReceiptHandle": held.handle} for at, held in enumerate(batch)]
            answer = await self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            failed = answer.get("Failed") or []
            if not failed:
                return
            batch, problem = [batch[int(entry["Id"])] for entry in failed], failed[0]
            if all(entry.get("SenderFault") for entry in failed):
                break
            await asyncio.sleep(0.1 * 2**attempt)
        logger.warning(
            "windsock.sqs.not_deleted queue=%s messages=%d code=%s: they come again, as duplicates",
            *(self._name, len(batch), problem.get("Code")),
        )
