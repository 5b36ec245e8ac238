"""Messages of a NATS JetStream stream, through a durable pull consumer.

::

    source = NatsSource(NatsConfig(conn_id="nats_default", stream="ORDERS", create=True))
    await source.connect(None)
    async for delivery in source.read():
        print([event.subject for event in delivery.events])   # ['orders.new', ...]
        await delivery.ack()

**Events.** Type ``windsock.nats``, source ``nats://<conn_id>/<stream>``, id the stream sequence (with
``message_id``, the header ``Nats-Msg-Id`` where there is one), subject the message's subject, time when it
was stored, headers as they came. CloudEvents are recognised in structured and in binary mode (``ce-``
headers).

**Guarantee.** At least once, in the order of the stream. Each message is acked after the log's commit;
while it waits for that, its ack wait is extended.

**Where it resumes.** The consumer in NATS keeps the position. With ``create`` it is made if it is missing,
to begin at ``start``, and belongs to this source alone: after a crash, what was delivered and not acked
comes first (at once from NATS 2.14 on, otherwise after ``ack_wait``). A consumer that others made is used
as it is, if it is a pull consumer with explicit acks; after a crash it redelivers when its own ack wait is
over, behind newer messages.

**Connection.** Type ``nats``: host (or several, with commas), port (4222), login and password; in the
extras ``token``, ``nkey_seed`` or ``nkey_seed_file``, ``creds`` or ``creds_file`` (text or file of JWT
credentials), ``tls``, ``tls_ca_file``, ``tls_cert_file``, ``tls_key_file``, ``tls_hostname``,
``tls_verify``, ``tls_handshake_first``, ``domain`` (of JetStream).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import InvalidEvent, SourceError, parse_time
from windsock.messages import Message, MessageOptions, events_of
from windsock.sources._ending import Ended, Ending
from windsock.sources._nats import open_client
from windsock.sources._nats_consumer import Consumer
from windsock.sources.base import Cursor, Delivery, Guarantees

if TYPE_CHECKING:
    from nats.aio.msg import Msg

__all__ = ["NatsConfig", "NatsSource"]


class NatsConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stream to read, through which consumer."""

    stream: Annotated[str, Meta(description="The JetStream stream.", pattern=r"^[^\s.*>/\\]+$")]
    consumer: Annotated[
        str, Meta(description="The durable consumer, which keeps the position.", pattern=r"^[^\s.*>/\\]+$")
    ] = "windsock"
    create: Annotated[
        bool, Meta(description="Make the consumer if it is missing; it then belongs to this source alone.")
    ] = False
    subject: Annotated[
        str | tuple[str, ...] | None,
        Meta(
            description="Only messages of this subject, or of these: `orders.*`, `orders.>`. By default all "
            "of the stream, or what an existing consumer filters."
        ),
    ] = None
    start: Annotated[
        str,
        Meta(
            description="Where a new consumer begins: 'earliest' (what the stream holds), 'latest' (what "
            "comes from now on), a stream sequence such as '1200', or a time such as '2026-01-31T08:00:00Z'."
        ),
    ] = "earliest"
    ack_wait: Annotated[
        float,
        Meta(description="Seconds after which NATS redelivers to a new reader, for a new consumer.", ge=1),
    ] = 30.0
    max_ack_pending: Annotated[
        int, Meta(description="Messages that may be on their way at once, for a new consumer.", ge=1)
    ] = 20_000
    message_id: Annotated[
        bool,
        Meta(description="Take the header Nats-Msg-Id as the event's id, so that a repeated one is dropped."),
    ] = False

    def __post_init__(self) -> None:
        if self.start not in ("earliest", "latest") and not self.start.isdecimal():
            try:
                parse_time(self.start)
            except InvalidEvent as error:
                raise ValueError(
                    f"start {self.start!r} is neither 'earliest', 'latest', a sequence nor a time"
                ) from error

    @property
    def subjects(self) -> list[str]:
        """The subjects to filter by; none for all."""
        return [self.subject] if isinstance(self.subject, str) else list(self.subject or ())


class NatsSource(UsesConnection):
    """Reads a JetStream stream."""

    kind: ClassVar[str] = "nats"
    config: ClassVar[type[NatsConfig]] = NatsConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        tested="NATS 2.15",
        notes="A consumer that others made (create=False) redelivers after a crash behind newer messages.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"ack_wait", "max_ack_pending", "create"})

    def __init__(self, config: NatsConfig) -> None:
        self.options = config
        self._consumer: Consumer | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        connection, ending = await self.connection(), Ending()
        client = await ending.first(open_client(connection, ending))
        consumer = Consumer(self.options, connection, client, ending)
        try:
            await consumer.ending.first(consumer.open())
        except BaseException:
            await consumer.close()
            raise
        self._consumer = consumer

    async def read(self) -> AsyncIterator[Delivery]:
        consumer = self._consumer
        if consumer is None:
            raise SourceError(f"stream {self.options.stream!r} is not being read: call connect first")
        source = f"nats://{self.options.conn_id}/{self.options.stream}"
        try:
            async for received in consumer.messages():
                messages = [message_of(message, message_id=self.options.message_id) for message in received]
                events, dead = events_of(messages, self.options, source=source, kind=self.kind)
                yield Delivery(events, ack=partial(consumer.ack, received), dead=dead)
        except Ended:
            return

    async def lag(self) -> int | None:
        consumer = self._consumer
        try:
            return await consumer.ending.first(consumer.lag()) if consumer else None
        except Ended:
            return None

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer:
            await consumer.close()


def message_of(message: Msg, *, message_id: bool) -> Message:
    """The message as JetStream delivered it."""
    known = message.metadata
    headers = message.headers or {}
    return Message(
        body=message.data,
        id=(headers.get("Nats-Msg-Id") if message_id else None) or str(known.sequence.stream),
        headers=headers,
        subject=message.subject,
        time=known.timestamp,
    )
