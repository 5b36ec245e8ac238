"""RabbitMQ: the messages of a queue, classic or quorum.

**Guarantee.** At least once, in the order of the queue: a message is acknowledged after the log committed
it, and what was not goes back to its place in the queue when the connection ends. **Where it resumes.** The
queue keeps the position. **Id.** The message's ``message_id``, or a CloudEvent's own. A message without one
gets a random id, so that one which is delivered again (it has the header ``amqp-redelivered``) is stored
twice; with ``identity="content"`` its id is a hash of routing key, timestamp and body instead, and then equal
messages are one event.

::

    RabbitMQAssetWatcher(
        name="orders", conn_id="rabbitmq_default", queue="orders",
        declare=True, queue_type="quorum", exchange="shop", routing_keys=["order.#"],
    )

The routing key becomes the event's subject, ``type`` its type, ``correlation_id`` its correlation and the
message's headers its headers; other properties are headers with the prefix ``amqp-``.

**Connection** (type ``amqp``, or ``amqps`` for TLS): host, port, login, password; the schema is the virtual
host (``/`` by default). Extras: ``heartbeat`` (seconds), ``auth`` (``plain``, ``amqplain``, or ``external``:
the client certificate is the login), and those of :mod:`windsock.tls`.

Messages that cannot be read are dead letters in the log and leave the queue, unless ``malformed`` sends them
to the queue's own dead-letter exchange. RabbitMQ ends a consumer that keeps a message for too long
(``consumer_timeout``, 30 minutes by default), so what waits here while the log is behind goes back to the
queue after ``hold`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources._rabbitmq_client import client_of, reason, translated
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection
    from aiormq.abc import AbstractChannel, DeliveredMessage

__all__ = ["RabbitMQConfig", "RabbitMQSource"]

_PROPERTIES = ("app_id", "user_id", "reply_to", "priority", "expiration", "content_encoding")
_ANSWER = 10.0
"""Seconds for an answer. A quorum queue that has no leader yet, after a restart, may never give one."""
_ACK_EVERY = 0.01
"""Seconds between acknowledgements; those that fall due meanwhile become one."""


class RabbitMQConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue to read, and what to declare."""

    queue: Annotated[str, Meta(description="Name of the queue.", min_length=1, max_length=255)]
    declare: Annotated[
        bool,
        Meta(
            description="Create the queue (durable) and the exchange if they are not there. Otherwise a "
            "missing queue is an error."
        ),
    ] = False
    queue_type: Annotated[
        Literal["classic", "quorum"], Meta(description="Type of a queue that is declared.")
    ] = "classic"
    dead_letter_exchange: Annotated[
        str | None,
        Meta(description="Dead-letter exchange of a queue that is declared; by default a policy's, or none."),
    ] = None
    arguments: Annotated[
        dict[str, Any],
        Meta(description="More arguments of a queue that is declared, such as 'x-message-ttl'."),
    ] = {}
    exchange: Annotated[
        str | None,
        Meta(description="Exchange to bind the queue to; by default bindings are left as they are."),
    ] = None
    exchange_type: Annotated[
        str, Meta(description="Type of an exchange that is declared: 'topic', 'direct', 'fanout', 'headers'.")
    ] = "topic"
    routing_keys: Annotated[
        tuple[str, ...], Meta(description="Routing keys to bind with, one binding each.", min_length=1)
    ] = ("#",)
    binding_arguments: Annotated[
        dict[str, Any], Meta(description="Arguments of the bindings: what a 'headers' exchange matches.")
    ] = {}
    prefetch: Annotated[
        int,
        Meta(description="Most messages that are here and not yet acknowledged.", ge=1, le=65535),
    ] = 2000
    hold: Annotated[
        float,
        Meta(
            description="Seconds after which messages that wait here, because the log is behind, go back to "
            "the queue. Must be less than the server's consumer_timeout.",
            gt=0,
        ),
    ] = 600.0
    identity: Annotated[
        Literal["message_id", "content"],
        Meta(
            description="The id of a message that has no message_id: random ('message_id'), or a hash of "
            "routing key, timestamp and body ('content'), which makes equal messages one event."
        ),
    ] = "message_id"
    malformed: Annotated[
        Literal["log", "exchange", "both"],
        Meta(
            description="Where a message goes that cannot be read: to the dead letters of the log, to the "
            "queue's dead-letter exchange (which drops it if the queue has none), or to both."
        ),
    ] = "log"


class RabbitMQSource(UsesConnection):
    """Reads a queue of RabbitMQ."""

    kind: ClassVar[str] = "rabbitmq"
    config: ClassVar[type[RabbitMQConfig]] = RabbitMQConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        once="with id",
        tested="RabbitMQ 3.10 (classic and quorum queues)",
        notes="Once needs a message_id, a CloudEvent, or identity='content'.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"prefetch", "hold"})

    def __init__(self, config: RabbitMQConfig) -> None:
        self.options = config
        self._source = f"rabbitmq://{config.conn_id}/{config.queue}"
        self._where = f"queue {config.queue!r} on RabbitMQ of connection {config.conn_id!r}"
        self._connection: AbstractConnection | None = None
        self._reset()

    def _reset(self) -> None:
        self._channel: AbstractChannel | None = None
        self._consumer: str | None = None
        self._arrived: deque[DeliveredMessage] = deque()
        self._news = asyncio.Event()
        self._out = 0
        self._failure: SourceError | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._acking: asyncio.Task[None] | None = None
        self._due, self._due_tag, self._acked_tag = asyncio.Event(), 0, 0

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        self._reset()
        connection = await self.connection()
        try:
            await self._open(connection)
        except BaseException:
            await self.close()
            raise

    async def read(self) -> AsyncIterator[Delivery]:
        loop = asyncio.get_running_loop()
        while (channel := self._channel) is not None:
            if self._failure is not None:
                raise self._failure
            if self._arrived:
                count = min(len(self._arrived), MAX_DELIVERY)
                delivery = self._delivery(channel, [self._arrived.popleft() for _ in range(count)])
                standstill = loop.call_later(self.options.hold, self._release, channel)
                try:
                    yield delivery
                finally:
                    standstill.cancel()
                await self._consume(channel)
            else:
                self._news.clear()
                await self._news.wait()

    async def lag(self) -> int | None:
        if (channel := self._channel) is None:
            return None
        if self._failure is not None:
            raise self._failure
        with translated(self._where):
            declared = await channel.queue_declare(self.options.queue, passive=True, timeout=_ANSWER)
        return (declared.message_count or 0) + self._out

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        connection, self._connection = self._connection, None
        self._news.set()
        for task in (self._releasing, self._acking):
            if task is not None:
                task.cancel()
        if connection is not None:
            # Whatever goes wrong here, the server gives back what was not acknowledged.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_ANSWER):
                    if channel is not None:
                        await self._acknowledge(channel)
                    await connection.close()

    async def _open(self, connection: Connection) -> None:
        self._connection = await client_of(connection, name=f"windsock {self.options.queue}")
        with translated(self._where, connection):
            await self._connection.connect(timeout=_ANSWER)
            async with asyncio.timeout(_ANSWER):
                self._channel = await self._open_channel(self._connection)
                await self._consume(self._channel)
        self._acking = asyncio.create_task(self._keep_acknowledging(self._channel))

    async def _open_channel(self, connection: AbstractConnection) -> AbstractChannel:
        outer = connection.channel(publisher_confirms=False)
        await outer.initialize()
        outer.close_callbacks.add(self._on_close)
        # aio-pika makes two tasks and an object of thirty fields of each message; below it there is one task.
        channel = await outer.get_underlay_channel()
        channel.on_consumer_cancel_callbacks.add(self._on_cancel)
        await channel.basic_qos(prefetch_count=self.options.prefetch)
        await self._declare(channel)
        return channel

    async def _declare(self, channel: AbstractChannel) -> None:
        options = self.options
        if options.declare:
            arguments = {"x-queue-type": options.queue_type, **options.arguments}
            if options.dead_letter_exchange is not None:
                arguments["x-dead-letter-exchange"] = options.dead_letter_exchange
            await channel.queue_declare(options.queue, durable=True, arguments=arguments)
        else:
            await channel.queue_declare(options.queue, passive=True)
        if not options.exchange:
            return
        if options.declare and not options.exchange.startswith("amq."):
            await channel.exchange_declare(
                options.exchange, exchange_type=options.exchange_type, durable=True
            )
        for key in options.routing_keys:
            await channel.queue_bind(
                options.queue, options.exchange, routing_key=key, arguments=options.binding_arguments
            )

    async def _consume(self, channel: AbstractChannel) -> None:
        """Let messages come, unless they do."""
        if self._releasing is not None:
            await asyncio.wait({self._releasing})
            self._releasing = None
        if self._consumer is None and self._failure is None and channel is self._channel:
            with translated(self._where):
                started = await channel.basic_consume(self.options.queue, self._on_message, timeout=_ANSWER)
            self._consumer = started.consumer_tag

    async def _on_message(self, message: DeliveredMessage) -> None:
        self._arrived.append(message)
        self._out += 1
        self._news.set()

    def _on_cancel(self, frame: Any) -> None:
        self._fail(
            f"queue {self.options.queue!r} was deleted or moved while it was read: create it again, or set "
            "declare=True"
        )

    def _on_close(self, channel: Any, error: BaseException | None) -> None:
        if self._connection is not None:
            self._fail(
                f"the connection to queue {self.options.queue!r} was lost ({reason(error)}): if it does not "
                "come back by itself, look at the server's log"
            )

    def _fail(self, what: str) -> None:
        self._failure = self._failure or SourceError(what)
        self._news.set()

    def _release(self, channel: AbstractChannel) -> None:
        """Nobody has asked for the next delivery for long: give back what waits here."""
        self._releasing = asyncio.create_task(self._give_back(channel))

    async def _give_back(self, channel: AbstractChannel) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        # A channel that breaks meanwhile says so itself, and gives everything back.
        with contextlib.suppress(Exception):
            await channel.basic_cancel(consumer)
            await asyncio.sleep(0)  # what came before the confirmation is on its way to _on_message
            while self._arrived:
                await channel.basic_nack(self._arrived.popleft().delivery_tag or 0, requeue=True)
                self._out -= 1

    async def _keep_acknowledging(self, channel: AbstractChannel) -> None:
        """Acknowledge what fell due, at intervals.

        A quorum queue keeps the acknowledgements of a consumer that sends them faster than it stores them to
        itself, and forgets them when the consumer goes.
        """
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._acknowledge(channel)
                await asyncio.sleep(_ACK_EVERY)
        except SourceError as error:
            self._fail(str(error))

    async def _acknowledge(self, channel: AbstractChannel) -> None:
        tag = self._due_tag
        if tag > self._acked_tag:
            with translated(self._where):
                await channel.basic_ack(tag, multiple=True)
            self._acked_tag = tag

    def _delivery(self, channel: AbstractChannel, messages: Sequence[DeliveredMessage]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        rejected: list[int] = []
        last = 0
        for message in messages:
            tag = message.delivery_tag or 0
            try:
                events.append(self._event(message))
            except InvalidEvent as error:
                if self.options.malformed != "exchange":
                    dead.append(unreadable(message.body, error, where=message.header.properties.message_id))
                if self.options.malformed != "log":
                    rejected.append(tag)
                    continue
            last = tag

        async def ack() -> None:
            if channel.is_closed or channel is not self._channel:
                raise self._failure or SourceError(
                    f"queue {self.options.queue!r}: the connection was lost before messages could be "
                    "acknowledged: they come again"
                )
            with translated(self._where):
                for tag in rejected:
                    await channel.basic_nack(tag, requeue=False)
            self._out -= len(messages)
            if last:
                self._due_tag = last
                self._due.set()

        return Delivery(events, ack=ack, dead=dead)

    def _event(self, message: DeliveredMessage) -> Event:
        properties = message.header.properties
        headers = dict(properties.headers or {})
        if message.exchange:
            headers["amqp-exchange"] = message.exchange
        if message.redelivered:
            headers["amqp-redelivered"] = True
        for name in _PROPERTIES:
            value = getattr(properties, name)
            if value:
                headers[f"amqp-{name.replace('_', '-')}"] = value
        options: MessageOptions = self.options
        if properties.message_type:
            options = msgspec.structs.replace(options, type=properties.message_type)
        return event_of(
            Message(
                body=message.body,
                id=properties.message_id or self._content_id(message),
                headers=headers,
                content_type=properties.content_type,
                subject=message.routing_key,
                time=properties.timestamp,
                correlation=properties.correlation_id,
            ),
            options,
            source=self._source,
            kind=self.kind,
        )

    def _content_id(self, message: DeliveredMessage) -> str | None:
        if self.options.identity != "content":
            return None
        sent = message.header.properties.timestamp
        digest = hashlib.blake2b(digest_size=16)
        for part in (message.routing_key or "", str(sent or "")):
            digest.update(f"{len(part)}:{part}".encode())
        digest.update(message.body)
        return digest.hexdigest()
