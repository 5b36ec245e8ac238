"""Messages of an Azure Service Bus queue or topic subscription, with or without sessions.

::

    source = ServiceBusSource(ServiceBusConfig(conn_id="azure_service_bus_default", queue="orders"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()                     # completes the messages

**Events.** The body is read as ``format`` and the content type say. The id is the message id, or the sequence
number if there is none (see ``identity``); source is ``servicebus://<namespace>/<entity>``, time when it was
enqueued, subject the message's subject (its label), sequence its sequence number, the session id is the key
and the correlation id the correlation. Application properties become headers; what else Service Bus knows is
in headers that begin with ``servicebus.``: ``servicebus.delivery_count``, ``servicebus.reply_to``.

**Guarantee.** At least once: messages are received in peek-lock mode and completed after the commit, and what
comes twice keeps its id and is stored once. With ``sessions`` the order of each session is kept; without,
none is promised.

**Where it resumes.** Service Bus knows: what was received and not completed comes again. At an orderly close
that is at once; after a crash when the lock is over, which is renewed in the background for as long as a
message waits to be committed. Each such return counts as a delivery, and after the queue's maximum (10 by
default) Service Bus moves the message to its dead-letter queue.

**Dead letters.** Messages that cannot be read are dead letters in the log and completed, unless ``malformed``
sends them to the dead-letter queue of Service Bus. To watch that queue, set ``dead_letters``: its events have
the type ``windsock.servicebus.dead_letter`` and reason and description as headers.

**Connection.** Type ``azure_service_bus``, as Airflow's Azure provider writes it: the schema is the
connection string. Without one, extra ``fully_qualified_namespace`` (or the host) names the namespace, and
login and password are name and key of a shared access policy; with extra ``tenant_id``, id and secret of a
client; without them Azure's default credentials are used, with extra ``managed_identity_client_id`` if it is
given. Extra ``transport_type`` ``AmqpOverWebsocket`` goes through port 443, and ``ssl_ca_certs`` is the file
of an authority to trust. The right to listen is enough. How much waits is told only to those who may manage
the namespace, so there is no lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources._servicebus_receivers import BATCH, POLL, Held, Receivers
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["ServiceBusConfig", "ServiceBusSource", "message_of"]

_SESSION_WAIT = 60
"""Seconds for which Service Bus is asked to wait for the next session."""
_PROPERTIES = (
    *("delivery_count", "to", "reply_to", "reply_to_session_id", "partition_key", "enqueued_sequence_number"),
    *("dead_letter_source", "dead_letter_reason", "dead_letter_error_description"),
)
"""What becomes a header; the rest has a place of its own in the event."""


class ServiceBusConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue or subscription to read."""

    queue: Annotated[str | None, Meta(description="Name of the queue.")] = None
    topic: Annotated[str | None, Meta(description="Name of the topic, instead of a queue.")] = None
    subscription: Annotated[str | None, Meta(description="Name of the topic's subscription.")] = None
    sessions: Annotated[
        bool,
        Meta(description="The queue or subscription has sessions: each is read in order, by one at a time."),
    ] = False
    dead_letters: Annotated[
        bool, Meta(description="Read the dead-letter queue of the queue or subscription, not itself.")
    ] = False
    identity: Annotated[
        Literal["message_id", "sequence_number"],
        Meta(
            description="The id of an event: what its sender called the message, or, for senders that use "
            "an id twice, the number that Service Bus gave it."
        ),
    ] = "message_id"
    malformed: Annotated[
        Literal["log", "queue", "both"],
        Meta(
            description="Where a message goes that cannot be read: to the dead letters of the log, to the "
            "dead-letter queue of Service Bus, or to both."
        ),
    ] = "log"
    outstanding: Annotated[
        int, Meta(description="Most messages, about, that are here and not yet completed.", ge=1)
    ] = 2000
    receivers: Annotated[
        int,
        Meta(
            description="How many receivers run at once while the queue is busy; with sessions, how many "
            "sessions are read at once.",
            ge=1,
            le=100,
        ),
    ] = 4

    def __post_init__(self) -> None:
        if bool(self.queue) == bool(self.topic):
            raise ValueError("name either a queue, or a topic and its subscription")
        if bool(self.topic) != bool(self.subscription):
            raise ValueError("a topic is read through a subscription: name both")
        if self.dead_letters and self.sessions:
            raise ValueError("a dead-letter queue has no sessions: leave out sessions")
        if self.dead_letters and self.malformed != "log":
            raise ValueError("a dead-letter queue has none of its own: leave out malformed")


class ServiceBusSource(UsesConnection):
    """Reads one queue or subscription."""

    kind: ClassVar[str] = "servicebus"
    config: ClassVar[type[ServiceBusConfig]] = ServiceBusConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        lag=False,
        tested="A protocol peer (AMQP 1.0 with Azure's client library), not Azure: no server can be had",
        notes="Order needs sessions; other messages come in any order. The lag is known only to those who "
        "may manage the namespace.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"outstanding", "receivers"})

    def __init__(self, config: ServiceBusConfig) -> None:
        self.options = config
        self._entity = config.queue or f"{config.topic}/Subscriptions/{config.subscription}"
        self._where = f"Service Bus {'queue' if config.queue else 'subscription'} {self._entity!r}"
        self._source = ""
        self._stack = AsyncExitStack()
        self._receivers: Receivers | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        connection = await self.connection()
        try:
            client = await asyncio.to_thread(_client, connection, self._stack)
            self._stack.push_async_callback(client.close)
            self._source = f"servicebus://{client.fully_qualified_namespace.partition(':')[0]}/{self._entity}"
            self._receivers = Receivers(
                lambda sessions: self._receiver(client, sessions),
                self._where,
                self.options.conn_id,
                sessions=self.options.sessions,
                receivers=self.options.receivers,
                most=self.options.outstanding,
            )
            await self._receivers.start()
        except BaseException:
            await self.close()
            raise

    async def read(self) -> AsyncIterator[Delivery]:
        receivers = self._receivers
        if receivers is None:
            raise SourceError(f"{self._where} is not connected: call connect first")
        while held := await receivers.take():
            yield self._delivery(receivers, held)

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        receivers, self._receivers = self._receivers, None
        try:
            if receivers is not None:
                await receivers.close()
        finally:
            await self._stack.aclose()

    def _receiver(self, client: Any, sessions: bool) -> Any:
        from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue

        options = self.options
        fields: dict[str, Any] = {"prefetch_count": min(BATCH, options.outstanding), "socket_timeout": POLL}
        if sessions:
            fields |= {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": _SESSION_WAIT}
        if options.dead_letters:
            fields["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER
        if options.queue:
            return client.get_queue_receiver(options.queue, **fields)
        return client.get_subscription_receiver(options.topic, options.subscription, **fields)

    def _delivery(self, receivers: Receivers, held: Sequence[Held]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for each in held:
            message = message_of(each.message, self.options.identity)
            kind = f"{self.kind}.dead_letter" if self.options.dead_letters else self.kind
            try:
                events.append(event_of(message, self.options, source=self._source, kind=kind))
            except InvalidEvent as error:
                if self.options.malformed != "queue":
                    dead.append(unreadable(message.body, error, where=message.id))
                if self.options.malformed != "log":
                    each.reason = str(error)
        return Delivery(events, ack=lambda: receivers.settle(held), dead=dead)


def message_of(received: Any, identity: str = "message_id") -> Message:
    """A message as Azure's client hands it over."""
    headers = {_text(name): value for name, value in (received.application_properties or {}).items()}
    for name in _PROPERTIES:
        value = getattr(received, name, None)
        if value is not None and value != "":
            headers[f"servicebus.{name}"] = value
    number = str(received.sequence_number)
    return Message(
        body=_body(received),
        id=str(received.message_id) if identity == "message_id" and received.message_id else number,
        headers=headers,
        content_type=received.content_type,
        key=received.session_id,
        subject=received.subject,
        time=received.enqueued_time_utc,
        sequence=number,
        correlation=received.correlation_id,
    )


def _body(received: Any) -> bytes:
    """The bytes of a message; a value of AMQP, which has none, as text or JSON."""
    if received.body_type.value == "data":
        return b"".join(received.body)
    value = received.body if received.body_type.value == "value" else list(received.body)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return b"" if value is None else msgspec.json.encode(_plain(value), enc_hook=str)


def _plain(value: Any) -> Any:
    """A value of AMQP with text where Azure's client leaves bytes."""
    if isinstance(value, Mapping):
        return {_text(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _text(value) if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _client(connection: Connection, stack: AsyncExitStack) -> Any:
    """A client out of a Connection; blocks while it is imported."""
    try:
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.servicebus import TransportType
        from azure.servicebus.aio import ServiceBusClient
    except ImportError:
        raise SourceError(
            f"connection {connection.conn_id!r}: Service Bus's client is not installed: "
            "pip install 'windsock[azure]'"
        ) from None
    settings: dict[str, Any] = {"retry_total": 0}  # the runner has its own backoff
    if authority := connection.get("ssl_ca_certs"):
        settings["connection_verify"] = str(authority)
    namespace = connection.get("fully_qualified_namespace", connection.host)
    try:
        if transport := connection.get("transport_type"):
            settings["transport_type"] = TransportType(str(transport))
        if connection.schema:
            return ServiceBusClient.from_connection_string(connection.schema, **settings)
        if not namespace:
            raise SourceError(
                f"connection {connection.conn_id!r} names no namespace: set the connection string as its "
                "schema, or fully_qualified_namespace in its extra"
            )
        if connection.password and not connection.get("tenant_id"):
            if not connection.login:
                raise ValueError("a key without the name of its policy")
            key = AzureNamedKeyCredential(connection.login, connection.password)
            return ServiceBusClient(namespace, key, **settings)
        identity = _identity(connection)
        stack.push_async_callback(identity.close)
        return ServiceBusClient(namespace, identity, **settings)
    except (ValueError, TypeError):
        # The message may quote the connection string.
        raise SourceError(
            f"connection {connection.conn_id!r}: its connection string, key or transport_type cannot be "
            "read: copy it from the shared access policy of the namespace"
        ) from None


def _identity(connection: Connection) -> Any:
    try:
        from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
    except ImportError:
        raise SourceError(
            f"connection {connection.conn_id!r} has neither connection string nor key, and Azure's identity, "
            "which would sign in, is not installed: pip install azure-identity"
        ) from None
    if tenant := connection.get("tenant_id"):
        return ClientSecretCredential(str(tenant), connection.login or "", connection.password or "")
    client = connection.get("managed_identity_client_id")
    return DefaultAzureCredential(managed_identity_client_id=client)
