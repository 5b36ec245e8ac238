"""MQTT over the contract suite and its own features, against a real broker."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiomqtt
import msgspec
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.sources.base import Guarantees
from windsock.sources.mqtt import QOS_0
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.mosquitto import Mosquitto
from windsock.testing.sources import (
    MessageContract,
    ReaderProcesses,
    ServerFaults,
    SourceHooks,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


@pytest.fixture
def mosquitto(serve: Callable[[str], Service]) -> Mosquitto:
    """The broker."""
    server = serve("mosquitto")
    assert isinstance(server, Mosquitto)
    return server


@pytest.fixture
def wire(mosquitto: Mosquitto) -> Iterator[Wire]:
    """A connection to the broker that can be cut."""
    with Wire(LOOPBACK, mosquitto.port) as wire:
        yield wire


class OnMosquitto(SourceHooks):
    """Fresh topics for each test, read through a wire and published beside it."""

    kind = "mqtt"
    qos = 1
    more: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    async def system(self, mosquitto: Mosquitto, wire: Wire) -> None:
        self.mosquitto, self.wire = mosquitto, wire
        self.topic = f"test/{uuid.uuid4()}"
        async with self.reading():
            pass  # from now on the broker keeps messages for this session

    def options(self) -> dict[str, Any]:
        return {"conn_id": "broker", "topics": [f"{self.topic}/#"], "qos": self.qos, **self.more}

    def connections(self) -> Sequence[Connection]:
        return [self.changed(port=self.wire.port)]

    def changed(self, **fields: Any) -> Connection:
        return msgspec.structs.replace(self.mosquitto.connection("broker"), **fields)

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[aiomqtt.Client]:
        at = self.mosquitto.connection("sender")
        async with aiomqtt.Client(
            str(at.host),
            at.port or 0,
            username=at.login,
            password=at.password,
            protocol=aiomqtt.ProtocolVersion.V5,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        ) as client:
            client.pending_calls_threshold = 1000  # we do send more at a time than it thinks good
            yield client

    async def send(
        self, body: bytes, *, topic: str = "a", qos: int = 1, retain: bool = False, **properties: Any
    ) -> None:
        """Publish one message, acknowledged by the broker, with these MQTT properties."""
        async with self.sender() as sender:
            await sender.publish(f"{self.topic}/{topic}", body, qos, retain, _properties(**properties))

    async def produce(self, count: int) -> list[str]:
        return await self.produce_keyed(["a"] * count)

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        messages = [(key, str(uuid.uuid4())) for key in keys]
        async with self.sender() as sender:
            for start in range(0, len(messages), 100):
                some = messages[start : start + 100]
                await asyncio.gather(*(self._publish(sender, key, id) for key, id in some))
        return [id for _, id in messages]

    async def _publish(self, sender: aiomqtt.Client, key: str, id: str) -> None:
        properties = _properties(UserProperty=("id", id))
        await sender.publish(f"{self.topic}/{key}", json.dumps({"id": id}), self.qos, properties=properties)

    async def produce_large(self, size: int) -> str:
        id = str(uuid.uuid4())
        await self.send(json.dumps({"text": "x" * size}).encode(), qos=self.qos, UserProperty=("id", id))
        return id

    async def produce_malformed(self) -> bytes:
        await self.send(b'{"cut": ', qos=self.qos)
        return b'{"cut": '


class TestMqtt(OnMosquitto, MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials):
    """QoS 1: a session that the broker keeps."""

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.mosquitto.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.changed(port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.changed(password="not-the-password")]


class TestMqttShared(TestMqtt):
    """QoS 1 through a shared subscription."""

    more = {"share": "group"}


class TestMqttQos0(TestMqtt):
    """QoS 0: at most once, and nothing is kept for a reader that is away."""

    qos = 0

    @property
    def guarantees(self) -> Guarantees:
        return QOS_0


class TestMqttFeatures(OnMosquitto):
    """What a user of MQTT expects beyond the contract."""

    @asynccontextmanager
    async def source(self, connection: Connection | None = None, **options: Any) -> AsyncIterator[Any]:
        """A connected source with these options besides its own."""
        known = [connection] if connection else self.connections()
        async with asyncio.timeout(self.patience):
            source = make_source(self.kind, {**self.options(), **options}, fixed(*known))
            await source.connect(None)
            try:
                yield source
            finally:
                await source.close()

    async def events(self, source: Any, count: int) -> list[Event]:
        events: list[Event] = []
        stream = source.read()
        while len(events) < count:
            delivery = await anext(stream)
            events += delivery.events
            await delivery.ack()
        return events

    async def refused(self, match: str, connection: Connection | None = None, **options: Any) -> None:
        with pytest.raises(SourceError, match=match):
            async with self.source(connection, **options):
                pass

    async def test_properties_become_attributes(self) -> None:
        """Topic, content type, correlation data and user properties arrive where a filter finds them."""
        async with self.source(id_property="Reading-Id") as source:
            await self.send(
                b"21.5 C",
                ContentType="text/plain",
                CorrelationData=b"basket-7",
                ResponseTopic="answers/here",
                UserProperty=[("Reading-Id", "r-1"), ("region", "north"), ("X-Room", "12")],
            )
            (event,) = await self.events(source, 1)
        topic = f"{self.topic}/a"
        assert (event.id, event.subject, event.key, event.source) == ("r-1", topic, topic, "mqtt://broker")
        assert (event.data, event.datacontenttype, event.correlation) == ("21.5 C", "text/plain", "basket-7")
        assert event.headers == {
            "Reading-Id": "r-1",
            "region": "north",
            "X-Room": "12",
            "mqtt-response-topic": "answers/here",
        }

    async def test_several_topics_and_wildcards(self) -> None:
        """Several filters are one subscription; what matches none of them does not come."""
        async with self.source(topics=[f"{self.topic}/+/in", f"{self.topic}/alarm/#"]) as source:
            for topic in ("x/in", "x/out", "alarm/a/b"):
                await self.send(b"1", topic=topic)
            events = await self.events(source, 2)
        assert [event.subject for event in events] == [f"{self.topic}/x/in", f"{self.topic}/alarm/a/b"]

    async def test_the_session_survives_a_stop_of_the_broker(self) -> None:
        """What was sent while nobody read, and before the broker was stopped, is there afterwards."""
        produced = await self.produce(3)
        await asyncio.to_thread(self.mosquitto.stop)
        await asyncio.to_thread(self.mosquitto.start)
        async with self.source() as source:
            events = await self.events(source, 3)
        assert [event.id for event in events] == produced

    async def test_nothing_is_acknowledged_before_the_ack(self) -> None:
        """No more than receive_maximum messages come before one of them is acknowledged."""
        produced = await self.produce(30)
        async with self.source(receive_maximum=10) as source:
            stream = source.read()
            deliveries = [await anext(stream)]
            while sum(len(delivery.events) for delivery in deliveries) < 10:
                deliveries.append(await anext(stream))
            following = asyncio.create_task(anext(stream))
            await asyncio.wait({following}, timeout=0.2)
            assert not following.done()
            for delivery in deliveries:
                await delivery.ack()
            deliveries.append(await following)
            events = [event for delivery in deliveries for event in delivery.events]
            await deliveries[-1].ack()
            events += await self.events(source, 30 - len(events))
        assert [event.id for event in events] == produced

    async def test_two_readers_of_a_shared_subscription(self) -> None:
        """Each message of a shared subscription goes to one of its readers."""
        first = self.source(share="pair", client_id=f"one-{self.topic}")
        second = self.source(share="pair", client_id=f"two-{self.topic}")
        async with first as one, second as two:
            readers = [asyncio.create_task(self.events(source, 50)) for source in (one, two)]
            produced = await self.produce(100)
            shares = await asyncio.gather(*readers)
        assert sorted(event.id for share in shares for event in share) == sorted(produced)

    async def test_retained_messages(self) -> None:
        """A retained message comes to a new subscription, at every connect, or never, as chosen."""
        await self.send(b"1", retain=True)
        seen: dict[str, list[str | None]] = {}
        for retained in ("new", "always", "never"):
            options = {"retained": retained, "client_id": f"{retained}-{self.topic}"}
            seen[retained] = []
            for end in ("first", "second"):
                async with self.source(**options) as source:
                    await self.send(json.dumps(end).encode(), topic="end")
                    while end not in seen[retained]:
                        for event in await self.events(source, 1):
                            seen[retained].append(event.headers.get("mqtt-retained") or event.data)
        assert seen == {
            "new": ["true", "first", "second"],
            "always": ["true", "first", "true", "second"],
            "never": ["first", "second"],
        }
        await self.send(b"", retain=True)

    async def test_identity_by_content(self) -> None:
        """Without ids the content can be the identity: one for equal messages, at every redelivery."""
        options = {"identity": "content", "client_id": self.topic}
        async with self.source(**options) as source:
            for topic, body in [("a", b"1"), ("a", b"2"), ("b", b"1"), ("a", b"1")]:
                await self.send(body, topic=topic)
            stream, events = source.read(), []
            while len(events) < 4:
                events += (await anext(stream)).events
        async with self.source(**options) as source:
            again = await self.events(source, 4)
        assert [event.id for event in again] == [event.id for event in events]
        assert len({event.id for event in events}) == 3
        assert events[0].id == events[3].id

    async def test_an_overflow_of_qos_0_is_dropped(self) -> None:
        """Past its buffer a source drops messages of QoS 0, and takes those of QoS 1 all the same."""
        async with self.source(buffer=5) as source:
            async with self.sender() as sender:
                for number in range(20):
                    await sender.publish(f"{self.topic}/a", str(number), 0)
                await sender.publish(f"{self.topic}/a", "20", 1)
            while len(source._client.messages) < 6:
                await asyncio.sleep(0.01)
            events = await self.events(source, 6)
        assert [event.data for event in events] == [0, 1, 2, 3, 4, 20]

    async def test_a_topic_without_permission(self) -> None:
        """A subscription that the broker refuses is an error that names the topic."""
        await self.refused("'secret/#' is refused", topics=["secret/#"])

    async def test_a_filter_that_is_none(self) -> None:
        """A filter with a misplaced wildcard is an error, retried like any other."""
        await self.refused("check the topics", topics=["a/#/b"])

    async def test_another_reader_with_our_name(self) -> None:
        """Being thrown out by a second reader with the same client id is an error that says so."""
        async with self.source(client_id=self.topic) as first:
            waiting = asyncio.create_task(anext(first.read()))
            await asyncio.wait({waiting}, timeout=0.05)
            async with self.source(client_id=self.topic):
                with pytest.raises(SourceError, match="client_id"):
                    await waiting

    async def test_cloudevents_in_binary_mode(self) -> None:
        """A CloudEvent whose attributes are user properties keeps its own id, source and type."""
        attributes = {"specversion": "1.0", "id": "ce-1", "source": "/shop", "type": "order.created"}
        async with self.source() as source:
            await self.send(
                b'{"total": 12}',
                ContentType="application/json",
                UserProperty=[*attributes.items(), ("X-Region", "north")],
            )
            (event,) = await self.events(source, 1)
        assert (event.id, event.source, event.type) == ("ce-1", "/shop", "order.created")
        assert event.data == {"total": 12}
        assert event.headers["X-Region"] == "north"

    async def test_cloudevents_in_structured_mode(self) -> None:
        """A CloudEvent that is the whole payload is recognised by its content type."""
        document = {
            "specversion": "1.0",
            "id": "ce-2",
            "source": "/shop",
            "type": "order.created",
            "data": {"total": 12},
        }
        async with self.source(format="cloudevents") as source:
            await self.send(json.dumps(document).encode(), ContentType="application/cloudevents+json")
            (event,) = await self.events(source, 1)
        assert (event.id, event.source, event.type) == ("ce-2", "/shop", "order.created")
        assert event.data == {"total": 12}

    async def test_tls(self) -> None:
        """Over TLS the broker's certificate is checked against the authority of the Connection."""
        extra = {"ssl_ca_certs": str(self.mosquitto.certificates.authority)}
        encrypted = self.changed(conn_type="mqtts", port=self.mosquitto.tls_port, extra=extra)
        async with self.source(encrypted) as source:
            produced = await self.produce(1)
            (event,) = await self.events(source, 1)
        assert [event.id] == produced
        await self.refused("TLS", self.changed(port=self.mosquitto.tls_port, extra={"ssl": True}))


def _properties(**values: Any) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties
