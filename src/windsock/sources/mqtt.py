"""MQTT 5: the messages of topics, by a session that the broker keeps.

**Guarantee.** With ``qos=1`` at least once, in the order of each topic, for messages that were published with
QoS 1 or 2: a message is acknowledged after the log committed it, and what was not comes again. Messages that
were published with QoS 0, and all with ``qos=0``, come at most once: what arrives while nobody reads, or was
read and not committed when the reader died, is gone, and what comes on top of ``buffer`` waiting ones is
dropped. **Where it resumes.** The broker's session keeps the position, from the first connect on, for
``session_expiry`` seconds without a reader. **Id.** MQTT has none. The user property ``id_property`` is
taken, or a CloudEvent's own id; otherwise the id is random, and a message that is delivered again is stored
twice, unless ``identity="content"`` makes it a hash of topic and payload: then equal messages are one event.

::

    MqttAssetWatcher(
        name="sensors", conn_id="mqtt_default", topics=["site/+/temperature"],
        share="windsock", id_property="reading-id",
    )

The topic becomes the event's subject and key, the correlation data its correlation, user properties its
headers; a stored message that the broker sends to a new subscriber has the header ``mqtt-retained``. There is
nothing to count behind the position, so lag is unknown. QoS 2 is not offered: the client library keeps no
state of its own across a crash, so that it could lose what QoS 1 delivers.

**Connection** (type ``mqtt``, or ``mqtts`` for TLS): host, port, login, password. Extras: ``keepalive``
(seconds), and those of :mod:`windsock.tls`.

The broker knows us by ``client_id``, which by default follows from the options. Two installations with equal
options on one broker throw each other out: give each a ``client_id``. A session keeps its subscriptions:
when the topics of a watcher with a fixed ``client_id`` change, change that, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, clean_text
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees
from windsock.tls import tls_context

if TYPE_CHECKING:
    import aiomqtt

__all__ = ["QOS_0", "MqttConfig", "MqttSource"]

_ATTRIBUTE = re.compile(r"[a-z0-9]+")
_RETAINED = {"always": 0, "new": 1, "never": 2}
_FAILED = 128
"""Reason codes from here on say no."""

QOS_0 = Guarantees(
    delivery="at most once",
    order="key",
    position="none",
    once="with id",
    lag=False,
    tested="Mosquitto 2.0",
    notes="What is published while nobody reads is gone.",
)
"""What a source with ``qos=0`` promises."""


class MqttConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics to subscribe to, and how."""

    topics: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="Topics, with the wildcards '+' and '#'.", min_length=1),
    ]
    qos: Annotated[
        Literal[0, 1],
        Meta(description="1: the broker keeps messages until they are stored. 0: at most once."),
    ] = 1
    share: Annotated[
        Annotated[str, Meta(pattern=r"^[^/+#]+$")] | None,
        Meta(description="Group of a shared subscription: each message goes to one reader of the group."),
    ] = None
    client_id: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Name of our session on the broker; by default it follows from the options."),
    ] = None
    session_expiry: Annotated[
        int,
        Meta(
            description="Seconds for which the broker keeps the session when nobody reads; 4294967295 is for "
            "ever.",
            ge=1,
            le=0xFFFF_FFFF,
        ),
    ] = 7 * 24 * 3600
    receive_maximum: Annotated[
        int, Meta(description="Most messages that are here and not acknowledged.", ge=1, le=65535)
    ] = 2000
    buffer: Annotated[
        int,
        Meta(description="Most messages of QoS 0 that wait here; what comes on top is dropped.", ge=1),
    ] = 50_000
    retained: Annotated[
        Literal["new", "always", "never"],
        Meta(
            description="When the broker sends the message that it retained for a topic: to a new "
            "subscription, at every connect, or not at all."
        ),
    ] = "new"
    id_property: Annotated[
        str, Meta(description="User property that holds a message's id.", min_length=1)
    ] = "id"
    identity: Annotated[
        Literal["property", "content"],
        Meta(
            description="The id of a message without that property: random ('property'), or a hash of topic "
            "and payload ('content'), which makes equal messages one event."
        ),
    ] = "property"


class MqttSource(UsesConnection):
    """Reads topics of an MQTT broker."""

    kind: ClassVar[str] = "mqtt"
    config: ClassVar[type[MqttConfig]] = MqttConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        once="with id",
        lag=False,
        tested="Mosquitto 2.0",
        notes="From the first connect on. At most once for qos=0 and for messages that were published with "
        "QoS 0. Once needs an id as user property, a CloudEvent, or identity='content'.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"session_expiry", "receive_maximum", "buffer"})

    def __init__(self, config: MqttConfig) -> None:
        self.options = config
        self._client: aiomqtt.Client | None = None
        self._source = f"mqtt://{config.conn_id}"

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        connection = await self.connection()
        try:
            import aiomqtt
        except ImportError as error:
            raise SourceError(
                "MQTT needs a client library that is not installed: pip install 'windsock[mqtt]'"
            ) from error
        client = await self._make(connection)
        where = f"MQTT broker of connection {connection.conn_id!r} at {connection.host}:{connection.port}"
        try:
            await client.__aenter__()
        except aiomqtt.MqttCodeError as error:
            raise SourceError(
                f"{where} refuses us: {_reason(error)}: check login and password of the Connection, and that "
                "the broker speaks MQTT 5"
            ) from error
        except (aiomqtt.MqttError, ValueError) as error:
            raise SourceError(
                f"{where} cannot be reached: {_reason(error)}: check host, port and TLS (extra 'ssl') of the "
                "Connection, and that the broker runs"
            ) from error
        self._client = client
        try:
            await self._subscribe(client, where)
        except BaseException:
            await self.close()
            raise

    async def read(self) -> AsyncIterator[Delivery]:
        import aiomqtt

        while (client := self._client) is not None:
            messages = client.messages
            try:
                taken = [await anext(messages)]
                while len(messages) and len(taken) < MAX_DELIVERY:
                    taken.append(await anext(messages))
            except aiomqtt.MqttError as error:
                if self._client is None:
                    return
                raise self._lost(error) from error
            yield self._delivery(client, taken)

    async def lag(self) -> int | None:
        if self._client is not None and not _paho(self._client).is_connected():
            raise self._lost()
        return None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            # Whatever goes wrong here, the broker keeps what was not acknowledged.
            with contextlib.suppress(Exception):
                await client.__aexit__(None, None, None)

    async def _make(self, connection: Connection) -> aiomqtt.Client:
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        options = self.options
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = options.receive_maximum
        if options.qos:
            properties.SessionExpiryInterval = options.session_expiry
        context = await tls_context(connection, implied=connection.conn_type == "mqtts")
        if context is not None:
            context.sslsocket_class = _PromptSocket
        client = aiomqtt.Client(
            connection.host or "localhost",
            connection.port or (8883 if context else 1883),
            username=connection.login,
            password=connection.password,
            identifier=options.client_id or self._session_name(),
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=options.qos == 0,
            keepalive=int(connection.get("keepalive", 60)),
            properties=properties,
            tls_context=context,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            queue_type=_Inbox,
            max_queued_incoming_messages=options.buffer,
        )
        _paho(client).manual_ack_set(True)
        return client

    def _session_name(self) -> str:
        """The same for the same options, whatever their tuning."""
        identity = msgspec.to_builtins(self.options)
        plain = msgspec.json.encode(
            {name: value for name, value in identity.items() if name not in self.tuning}, order="sorted"
        )
        return f"windsock-{hashlib.blake2b(plain, digest_size=6).hexdigest()}"

    async def _subscribe(self, client: aiomqtt.Client, where: str) -> None:
        import aiomqtt
        from paho.mqtt.subscribeoptions import SubscribeOptions

        group = f"$share/{self.options.share}/" if self.options.share else ""
        how = SubscribeOptions(self.options.qos, retainHandling=_RETAINED[self.options.retained])
        try:
            granted = await client.subscribe([(group + topic, how) for topic in self.options.topics])
        except ValueError as error:
            raise SourceError(f"{where}: {error}: check the topics and their wildcards") from error
        except aiomqtt.MqttError as error:
            raise self._lost(error) from error
        for topic, code in zip(self.options.topics, granted, strict=True):
            value: Any = getattr(code, "value", code)
            if value >= _FAILED:
                raise SourceError(
                    f"{where}: subscription to {group + topic!r} is refused: {code}: let the user read the "
                    "topic, or correct it"
                )
            if value < self.options.qos:
                raise SourceError(
                    f"{where}: {group + topic!r} is granted with QoS {value} only: allow QoS 1 on the "
                    "broker, or set qos=0 and live with at most once"
                )

    def _lost(self, error: BaseException | None = None) -> SourceError:
        cause = error and (error.__cause__ or error)
        said = f" ({_reason(cause)})" if cause else ""
        return SourceError(
            f"MQTT broker of connection {self.options.conn_id!r}: the connection was lost{said}: if it does "
            "not come back by itself, look at the broker's log, and for another reader with our client_id"
        )

    def _delivery(self, client: aiomqtt.Client, messages: Sequence[aiomqtt.Message]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for message in messages:
            try:
                events.append(self._event(message))
            except InvalidEvent as error:
                dead.append(unreadable(bytes(message.payload), error, where=message.topic.value))

        async def ack() -> None:
            paho = _paho(client)
            if client is not self._client or not paho.is_connected():
                raise self._lost()
            for message in messages:
                paho.ack(message.mid, message.qos)

        return Delivery(events, ack=ack, dead=dead)

    def _event(self, message: aiomqtt.Message) -> Event:
        properties = message.properties
        sent: list[tuple[str, str]] = getattr(properties, "UserProperty", [])
        topic = message.topic.value
        event = event_of(
            Message(
                body=bytes(message.payload),
                id=next((value for name, value in sent if name == self.options.id_property), None)
                or self._content_id(message),
                # A CloudEvent's attributes have no prefix here; what cannot be one must not spoil it.
                headers=[pair for pair in sent if _ATTRIBUTE.fullmatch(pair[0])],
                content_type=getattr(properties, "ContentType", None),
                subject=topic,
                key=topic,
                correlation=getattr(properties, "CorrelationData", None),
            ),
            self.options,
            source=self._source,
            kind=self.kind,
        )
        others = {
            clean_text(name): clean_text(value) for name, value in sent if not _ATTRIBUTE.fullmatch(name)
        }
        if message.retain:
            others["mqtt-retained"] = "true"
        if reply_to := getattr(properties, "ResponseTopic", None):
            others["mqtt-response-topic"] = clean_text(reply_to)
        return msgspec.structs.replace(event, headers={**event.headers, **others}) if others else event

    def _content_id(self, message: aiomqtt.Message) -> str | None:
        if self.options.identity != "content":
            return None
        topic = message.topic.value
        digest = hashlib.blake2b(f"{len(topic)}:{topic}".encode(), digest_size=16)
        digest.update(bytes(message.payload))
        return digest.hexdigest()


class _Inbox(asyncio.Queue[Any]):
    """What arrived and was not read; full for QoS 0 only: of QoS 1 the broker sends no more than told."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__()
        self._limit = maxsize

    def put_nowait(self, item: Any) -> None:
        if item.qos == 0 and self.qsize() >= self._limit:
            raise asyncio.QueueFull
        super().put_nowait(item)


class _PromptSocket(ssl.SSLSocket):
    """Closes itself when there is no agreement; paho leaves that to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def _paho(client: aiomqtt.Client) -> Any:
    """The client inside, for acknowledging after the commit: aiomqtt has no door to it."""
    return client._client  # noqa: SLF001 - see above


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
