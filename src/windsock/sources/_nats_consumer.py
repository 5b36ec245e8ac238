"""One use of a durable pull consumer: its position, the messages it brings, their acks.

The client's own ``fetch`` waits for a full batch or the end of its time. Here one request for messages is
open at a time, and what it brings is delivered as it comes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from windsock.connections import Connection
from windsock.events import SourceError, parse_time
from windsock.sources._ending import Ending
from windsock.sources._nats import speaking
from windsock.sources.base import MAX_DELIVERY

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import ConsumerConfig, ConsumerInfo

    from windsock.sources.nats import NatsConfig

__all__ = ["Consumer"]

logger = logging.getLogger("windsock.sources.nats")

_EXPIRES = 30.0
"""Seconds that one request for messages waits at the server."""
_LINGER = 0.005
"""Seconds in which what is already on its way joins a delivery."""
_STALL = 0.25
"""Seconds to wait for acks when as many messages as allowed are on their way."""
_NANOSECONDS = 1_000_000_000
_RESETS_SINCE = (2, 14)


class Consumer:
    """The consumer as this process uses it, from ``connect`` to ``close``."""

    def __init__(self, options: NatsConfig, connection: Connection, client: Client, ending: Ending) -> None:
        self._options = options
        self._connection = connection
        self._client = client
        self.ending = ending
        self._buffer: deque[Msg] = deque()
        self._held: dict[int, str] = {}
        self._wanted = 0
        self._woken = asyncio.Event()
        self._stalled = False
        self._request = 0
        self._inbox = client.new_inbox()
        domain = connection.get("domain")
        self._api = f"$JS.{domain}.API" if domain else "$JS.API"
        self._jetstream = client.jetstream(domain=domain, timeout=10.0)
        self._ack_wait = options.ack_wait
        self._patience = 0.0
        self._extending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find or make the consumer, and take position."""
        options = self._options
        with speaking(self._connection, stream=options.stream, consumer=options.consumer):
            info = await self._find()
            self._check(info.config)
            self._ack_wait = info.config.ack_wait or options.ack_wait
            if info.num_ack_pending and options.create:
                await self._take_back()
            await self._client.subscribe(f"{self._inbox}.*", cb=self._received, pending_bytes_limit=0)
        self._extending = asyncio.create_task(self._extend(), name=f"windsock-nats-{options.consumer}")

    async def messages(self) -> AsyncIterator[list[Msg]]:
        """What there is, in order, a thousand at most at a time."""
        if self._patience:
            await self.ending.first(asyncio.sleep(self._patience))
        while True:
            while not self._buffer:
                if self._stalled:
                    await self.ending.first(asyncio.sleep(_STALL))
                if not self._wanted:
                    await self._ask()
                await self._wait()
            if self._wanted and len(self._buffer) < MAX_DELIVERY:
                await self.ending.first(asyncio.sleep(_LINGER))
            taken = [self._buffer.popleft() for _ in range(min(len(self._buffer), MAX_DELIVERY))]
            if not self._wanted and not self._buffer:
                await self._ask()  # so that more is on its way while this is stored
            yield taken

    async def ack(self, messages: Sequence[Msg]) -> None:
        """Confirm these messages."""
        await self.ending.first(self._answer([message.reply for message in messages], b"+ACK"))
        for message in messages:
            self._held.pop(message.metadata.sequence.stream, None)
        self._woken.set()

    async def lag(self) -> int:
        """What waits in the stream for this consumer, delivered and not acked included."""
        options = self._options
        with speaking(self._connection, stream=options.stream, consumer=options.consumer):
            info = await self._jetstream.consumer_info(options.stream, options.consumer)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def close(self) -> None:
        """Let go of the server."""
        self.ending.end()
        if self._extending:
            self._extending.cancel()
            await asyncio.wait({self._extending})
        await self._client.close()

    @property
    def _reply(self) -> str:
        """Where the present request is answered."""
        return f"{self._inbox}.{self._request}"

    async def _find(self) -> ConsumerInfo:
        from nats.js.errors import NotFoundError

        options, jetstream = self._options, self._jetstream
        try:
            return await jetstream.consumer_info(options.stream, options.consumer)
        except NotFoundError as error:
            if not options.create or "stream" in (error.description or ""):
                raise
        return await jetstream.add_consumer(options.stream, self._wished())

    def _wished(self) -> ConsumerConfig:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        options = self._options
        wished = ConsumerConfig(
            durable_name=options.consumer,
            description="Windsock",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=options.ack_wait,
            max_ack_pending=options.max_ack_pending,
            max_deliver=-1,
            filter_subjects=options.subjects or None,
        )
        if options.start == "latest":
            return wished.evolve(deliver_policy=DeliverPolicy.NEW)
        if options.start.isdecimal():
            first = int(options.start)
            return wished.evolve(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first)
        if options.start != "earliest":
            since = parse_time(options.start)
            return wished.evolve(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since)
        return wished

    def _check(self, found: ConsumerConfig) -> None:
        """Refuse a consumer through which messages could be lost or the wrong ones read."""
        options = self._options
        name = f"consumer {options.consumer!r} of stream {options.stream!r}"
        if found.deliver_subject:
            raise SourceError(f"{name} is a push consumer: name a pull consumer, or another name to make one")
        if found.ack_policy != "explicit":
            raise SourceError(
                f"{name} has the ack policy {found.ack_policy!s}: it must be 'explicit', or an ack would "
                "cover what is not stored yet; name another consumer"
            )
        filters = sorted(found.filter_subjects or filter(None, [found.filter_subject]))
        if options.subjects and filters != sorted(options.subjects):
            raise SourceError(
                f"{name} filters {filters or 'nothing'}, not {options.subjects}: delete it, or name another"
            )
        if (found.max_deliver or -1) > 0:
            logger.warning(
                "windsock.nats.max_deliver consumer=%s max_deliver=%d: a message that is read and not stored "
                "that many times is never delivered again; set it to -1",
                options.consumer,
                found.max_deliver,
            )

    async def _take_back(self) -> None:
        """Have NATS deliver what the last reader did not ack before anything new."""
        version = self._client.connected_server_version
        if (version.major, version.minor) < _RESETS_SINCE:
            self._patience = self._ack_wait + 0.5  # its redeliveries come first once they are due
            return
        subject = f"{self._api}.CONSUMER.RESET.{self._options.stream}.{self._options.consumer}"
        answer = json.loads((await self._client.request(subject, timeout=10)).data)
        if "error" in answer:
            raise SourceError(
                f"consumer {self._options.consumer!r} cannot be set back to what was acked "
                f"({answer['error'].get('description')}): name another consumer"
            )

    async def _ask(self) -> None:
        """Ask for the next messages."""
        options = self._options
        request = {
            "batch": MAX_DELIVERY,
            "expires": int(_EXPIRES * _NANOSECONDS),
            "max_bytes": max(32_000_000, 2 * self._client.max_payload),
        }
        self._wanted, self._stalled = MAX_DELIVERY, False
        self._request += 1
        subject = f"{self._api}.CONSUMER.MSG.NEXT.{options.stream}.{options.consumer}"
        with speaking(self._connection):
            await self.ending.first(
                self._client.publish(subject, json.dumps(request).encode(), reply=self._reply)
            )

    async def _wait(self) -> None:
        """Return when something was received."""
        try:
            async with asyncio.timeout(_EXPIRES + 10.0):
                await self.ending.first(self._woken.wait())
        except TimeoutError as error:
            raise SourceError(
                f"NATS does not answer requests for stream {self._options.stream!r}: check that the consumer "
                "has a leader and the user may read its inbox; it is tried again"
            ) from error
        self._woken.clear()

    async def _received(self, message: Msg) -> None:
        if not message.reply:
            if message.subject == self._reply:  # else it is about a request that is over
                self._status(message.headers or {})
        else:
            self._wanted -= 1
            sequence = message.metadata.sequence.stream
            if sequence not in self._held:  # else it was redelivered while it waits for its ack
                self._held[sequence] = message.reply
                self._buffer.append(message)
        self._woken.set()

    def _status(self, headers: dict[str, str]) -> None:
        """What NATS says instead of a message: mostly that the request is over."""
        code, why = headers.get("Status", ""), headers.get("Description", "")
        if code == "100":
            return
        self._wanted = 0
        self._stalled = "MaxAckPending" in why
        if code in ("404", "408") or self._stalled or "MaxBytes" in why or why == "Batch Completed":
            return
        self.ending.end(
            SourceError(
                f"NATS ended the request for stream {self._options.stream!r}, consumer "
                f"{self._options.consumer!r} ({code} {why}): if it was deleted, make it again"
            )
        )

    async def _extend(self) -> None:
        """Tell NATS that what is held is still being worked on."""
        known: set[int] = set()
        while True:
            await asyncio.sleep(self._ack_wait / 3)
            waiting = [reply for sequence, reply in self._held.items() if sequence in known]
            try:
                await self._answer(waiting, b"+WPI")
            except SourceError as error:
                self.ending.end(error)
                return
            known = set(self._held)

    async def _answer(self, replies: Sequence[str], word: bytes) -> None:
        with speaking(self._connection):
            for number, reply in enumerate(replies):
                await self._client.publish(reply, word)
                if number % 200 == 199:
                    await asyncio.sleep(0)
