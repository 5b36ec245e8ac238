"""Messages of an Azure storage queue.

::

    source = AzureQueueSource(AzureQueueConfig(conn_id="wasb_default", queue="orders"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()                     # deletes the messages

**Events.** The body is read as ``encoding`` and ``format`` say; the id is the message's, source the
queue's address, time when it was put there. The header ``azure.dequeue_count`` says how often it was
handed out.

**Guarantee.** At least once, in no order; a message is deleted after the commit, and what comes twice
keeps its id and is stored once.

**Where it resumes.** The queue knows: what was taken and not deleted becomes visible again, at an orderly
close at once, after a crash in ``visibility`` seconds, which are extended in the background for as long
as a message waits to be committed. A storage queue cannot wait for messages: an empty one is asked again
every ``interval`` seconds.

**Connection.** Type ``wasb``; see :mod:`windsock.sources._azure` for its fields.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources._azure import explained, service
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["AzureQueueConfig", "AzureQueueSource", "decoded"]

logger = logging.getLogger(__name__)

_PAGE = 32
"""The most messages that a storage queue hands out at once."""
_CALLS = 16
_LAG_AGE = 30.0
_PARTING = 3.0
"""Seconds that giving messages back may take at close; after that they come back by their time-out."""


class AzureQueueConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue to read."""

    queue: Annotated[str, Meta(description="Name of the queue.", min_length=1)]
    encoding: Annotated[
        Literal["auto", "base64", "plain"],
        Meta(
            description="How the text of a message holds its body. 'auto': base64 if it is that, as Event "
            "Grid and many of Azure's clients write it, and holds text, else as it is."
        ),
    ] = "auto"
    visibility: Annotated[
        int,
        Meta(
            description="Seconds for which a message stays hidden after a crash of the reader. Extended by "
            "itself while a message waits to be committed.",
            ge=2,
            le=604_800,
        ),
    ] = 60
    interval: Annotated[
        float, Meta(description="Seconds from one look into an empty queue to the next.", gt=0)
    ] = 15.0
    receivers: Annotated[
        int, Meta(description="How many receives run at once while the queue is busy.", ge=1, le=31)
    ] = 4


@dataclass(slots=True, eq=False)
class _Held:
    """A message that was taken and not yet deleted."""

    message: Any
    receipt: str
    """The newest receipt; only that one deletes."""
    hidden: float
    """When its visibility was last set, on the monotonic clock."""


class AzureQueueSource(UsesConnection):
    """Reads one storage queue."""

    kind: ClassVar[str] = "azure_queue"
    config: ClassVar[type[AzureQueueConfig]] = AzureQueueConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="none", tested="Azurite (Microsoft's emulator)", notes="The lag is Azure's own approximation."
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"visibility", "interval", "receivers"})

    def __init__(self, config: AzureQueueConfig) -> None:
        self.options = config
        self._stack = AsyncExitStack()
        self._queue: Any = None
        self._held: dict[str, _Held] = {}
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls = asyncio.Semaphore(_CALLS)
        self._lag: int | None = None
        self._asked: float | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        self._closed.clear()
        client = await service("queue", await self.connection(), self._stack)
        self._queue = client.get_queue_client(self.options.queue)
        with self._explained():
            await self._queue.get_queue_properties()

    async def read(self) -> AsyncIterator[Delivery]:
        if self._queue is None:
            raise SourceError(f"queue {self.options.queue!r} is not connected: call connect first")
        receives = 1
        keeping = self._start(self._keep_hidden())
        while not self._closed.is_set():
            if keeping.done():
                keeping.result()
            held = await self._receive(receives)
            # A full answer means that there is more; an empty one, that it is worth to wait.
            receives = self.options.receivers if len(held) >= _PAGE else 1
            if held:
                yield self._delivery(held)
            elif not self._closed.is_set():
                await _pause(self._closed, self.options.interval)

    async def lag(self) -> int | None:
        if self._queue is None:
            return None
        now = time.monotonic()
        if self._asked is None or now - self._asked > min(3 * self.options.interval, _LAG_AGE):
            self._asked = now
            with self._explained():
                self._lag = (await self._queue.get_queue_properties()).approximate_message_count
        return self._lag

    async def close(self) -> None:
        self._closed.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        held, self._held = list(self._held.values()), {}
        if self._queue is not None and held:
            with contextlib.suppress(TimeoutError, SourceError):
                async with asyncio.timeout(_PARTING):
                    await asyncio.gather(*(self._hide(each, 0) for each in held))
        self._queue = self._asked = None
        await self._stack.aclose()

    def _explained(self) -> Any:
        return explained(f"Azure queue {self.options.queue!r}", self.options.conn_id)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=f"windsock-{self.options.queue}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _receive(self, times: int) -> list[_Held]:
        """What the queue hands out to so many calls at once; nothing, once the source is closed."""
        calls = [self._start(self._receive_once()) for _ in range(times)]
        try:
            await asyncio.wait(calls)
        finally:
            for call in calls:
                call.cancel()
        return [held for call in calls if not call.cancelled() for held in call.result()]

    async def _receive_once(self) -> list[_Held]:
        with self._explained():
            pages = self._queue.receive_messages(
                messages_per_page=_PAGE, max_messages=_PAGE, visibility_timeout=self.options.visibility
            )
            now = time.monotonic()
            taken = [_Held(message, message.pop_receipt, now) async for message in pages]
        self._held |= {held.message.id: held for held in taken}
        if taken:
            self._asked = None
        return taken

    async def _keep_hidden(self) -> None:
        """Extend the visibility of what is held for long."""
        while True:
            await asyncio.sleep(self.options.visibility / 4)
            old = time.monotonic() - self.options.visibility / 2
            late = [held for held in self._held.values() if held.hidden < old]
            await asyncio.gather(*(self._hide(held, self.options.visibility) for held in late))

    async def _hide(self, held: _Held, seconds: int) -> None:
        async with self._calls:
            now = time.monotonic()
            with self._gone(held), self._explained():
                updated = await self._queue.update_message(
                    held.message.id, held.receipt, visibility_timeout=seconds
                )
                held.receipt, held.hidden = updated.pop_receipt, now

    async def _delete(self, messages: Sequence[_Held]) -> None:
        async def delete(held: _Held) -> None:
            async with self._calls:
                with self._gone(held), self._explained():
                    await self._queue.delete_message(held.message.id, held.receipt)
            self._held.pop(held.message.id, None)

        if self._queue is not None:
            await asyncio.gather(*(delete(held) for held in messages))
            self._asked = None

    @contextlib.contextmanager
    def _gone(self, held: _Held) -> Any:
        """A message that was handed out to somebody else meanwhile is no longer ours to change."""
        try:
            yield
        except SourceError as error:
            if getattr(error.__cause__, "error_code", None) not in ("MessageNotFound", "PopReceiptMismatch"):
                raise
            self._held.pop(held.message.id, None)

    def _delivery(self, held: Sequence[_Held]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for each in held:
            message = each.message
            try:
                events.append(self._event(message))
            except InvalidEvent as error:
                dead.append(unreadable(message.content.encode("utf-8", "replace"), error, where=message.id))
        return Delivery(events, ack=lambda: self._delete(held), dead=dead)

    def _event(self, message: Any) -> Event:
        read = Message(
            body=decoded(message.content, self.options.encoding),
            id=message.id,
            headers={"azure.dequeue_count": message.dequeue_count},
            time=message.inserted_on,
        )
        return event_of(read, self.options, source=self._queue.url, kind=self.kind)


def decoded(text: str, encoding: str) -> bytes:
    """The body that a message's text holds; raises :class:`InvalidEvent` if it must be base64 and is not."""
    plain = text.encode("utf-8", "surrogatepass")
    if encoding == "plain":
        return plain
    try:
        body = base64.b64decode(plain, validate=True)
        if encoding == "auto":
            body.decode()  # some plain words are base64, too, but then of no text
    except ValueError as error:
        if encoding == "base64":
            raise InvalidEvent(f"not base64 ({error}): set encoding='plain' or 'auto'") from error
        return plain
    return body


async def _pause(closed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await closed.wait()
    except TimeoutError:
        pass  # the time is what was waited for
