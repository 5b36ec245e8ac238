"""The Service Bus source over a peer that speaks its AMQP; a real protocol, but not Azure."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage

from windsock.connections import Connection, fixed
from windsock.events import SourceError
from windsock.sources import make_source
from windsock.sources.base import Guarantees
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.servicebus import KEY, POLICY, ServiceBusPeer, connection_string
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceHooks,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


class Entities(SourceHooks):
    """A fresh queue for each test, reached through a wire."""

    kind = "servicebus"
    patience = 240.0  # a message at a time is completed, and each waits for its answer
    sessions = False

    @pytest.fixture(autouse=True)
    def system(self, serve: Callable[[str], Service], request: pytest.FixtureRequest) -> Iterator[None]:
        peer = serve("servicebus")
        assert isinstance(peer, ServiceBusPeer)
        self.peer = peer
        self.name = f"windsock-{uuid.uuid4()}"
        self.more: dict[str, Any] = {}
        # How long the messages of a killed reader stay away; elsewhere more than a slow machine needs.
        peer.queue(self.name, sessions=self.sessions, lock=4 if "killed" in request.node.name else 30)
        with Wire(LOOPBACK, peer.port) as self.wire:
            yield

    def options(self) -> dict[str, Any]:
        return {"conn_id": "servicebus", "queue": self.name, "sessions": self.sessions, **self.more}

    def connections(self) -> list[Connection]:
        return [self.peer.connection_at("servicebus", self.wire.port)]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ServiceBusClient]:
        """A client that does not go through the wire."""
        address = connection_string(self.peer.port)
        async with ServiceBusClient.from_connection_string(address, retry_total=0) as client:
            yield client

    async def send(self, *messages: ServiceBusMessage, to: str = "") -> list[str]:
        """Send messages; their ids."""
        for message in messages:
            message.message_id = message.message_id or str(uuid.uuid4())
        async with self.client() as client, client.get_queue_sender(to or self.name) as sender:
            for at in range(0, len(messages), 1000):
                await sender.send_messages(list(messages[at : at + 1000]))
        return [str(message.message_id) for message in messages]

    def message(self, body: bytes, number: int = 0, **fields: Any) -> ServiceBusMessage:
        if self.sessions:
            fields.setdefault("session_id", f"session-{number % 3}")
        return ServiceBusMessage(body, **fields)

    async def produce(self, count: int) -> list[str]:
        return await self.send(*(self.message(b'{"n": %d}' % n, n) for n in range(count)))

    async def left(self, *, dead: bool = False) -> list[str]:
        """The ids of what is in the queue, or in its dead-letter queue, without taking it."""
        sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead else None
        async with (
            self.client() as client,
            client.get_queue_receiver(self.name, sub_queue=sub_queue) as receiver,
        ):
            found = await receiver.peek_messages(1000, sequence_number=1)
        return [str(message.message_id) for message in found]


class Suite(Entities, MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """The whole contract."""

    async def produce_malformed(self) -> bytes:
        await self.send(self.message(b'{"n": '))
        return b'{"n": '

    async def produce_large(self, size: int) -> str:
        return (await self.send(self.message(json.dumps("x" * size).encode())))[0]

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        fields = [{"session_id": key} if self.sessions else {} for key in keys]
        return await self.send(*(self.message(b"{}", **each) for each in fields))

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.peer.restart)

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.peer.connection_at("servicebus", free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.peer.connection_at("servicebus", self.wire.port, key="another-key")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "queue": "not-there"}, self.connections()


class TestQueue(Suite):
    """A queue without sessions, of which no order is promised."""

    @property
    def guarantees(self) -> Guarantees:
        return msgspec.structs.replace(super().guarantees, order="none")


class TestSessions(Suite):
    """A queue with sessions, which keeps the order of each."""

    sessions = True


class TestFeatures(Entities):
    """What the source does beyond the contract."""

    async def test_properties_become_headers(self) -> None:
        """Application properties are headers, and each property of a message has its place in the event."""
        (made,) = await self.send(
            ServiceBusMessage(
                b'{"n": 1}',
                message_id="order-17",
                subject="created",
                correlation_id="c-1",
                content_type="application/json",
                reply_to="answers",
                application_properties={"tenant": "blau", "count": 3, "urgent": True},
            )
        )
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert (event.id, event.subject, event.correlation, event.data) == (made, "created", "c-1", {"n": 1})
        assert (event.source, event.type) == (f"servicebus://{LOOPBACK}/{self.name}", "windsock.servicebus")
        assert event.time is not None
        assert event.headers["servicebus.reply_to"] == "answers"
        assert {name: event.headers[name] for name in ("tenant", "count", "urgent")} == {
            "tenant": "blau",
            "count": "3",
            "urgent": "true",
        }

    async def test_a_message_without_an_id(self) -> None:
        """A message that its sender did not name has its sequence number as id; on wish every one has."""
        async with self.client() as client, client.get_queue_sender(self.name) as sender:
            await sender.send_messages(AmqpAnnotatedMessage(data_body=b"1"))
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert event.id == str(event.sequence)
        self.more = {"identity": "sequence_number"}
        await self.send(
            ServiceBusMessage(b"1", message_id="twice"), ServiceBusMessage(b"2", message_id="twice")
        )
        async with self.reading() as reader:
            events = await reader.read(2)
        assert len({event.id for event in events} - {"twice"}) == 2

    async def test_cloudevents(self) -> None:
        """CloudEvents come in binary mode, as application properties, and in structured mode, as the body."""
        attributes = {
            "cloudEvents:specversion": "1.0",
            "cloudEvents:id": "a",
            "cloudEvents:source": "/shop",
            "cloudEvents:type": "order",
        }
        body = b'{"specversion": "1.0", "id": "b", "source": "/shop", "type": "order", "data": {"total": 12}}'
        await self.send(
            ServiceBusMessage(
                b'{"total": 12}', content_type="application/json", application_properties=attributes
            ),
            ServiceBusMessage(body, content_type="application/cloudevents+json"),
        )
        async with self.reading() as reader:
            events = await reader.read(2)
        assert sorted(event.id for event in events) == ["a", "b"]
        assert [(event.source, event.type, event.data) for event in events] == [
            ("/shop", "order", {"total": 12})
        ] * 2

    async def test_values_of_amqp(self) -> None:
        """A body that is a value of AMQP instead of bytes is read as what it says."""
        async with self.client() as client, client.get_queue_sender(self.name) as sender:
            await sender.send_messages(AmqpAnnotatedMessage(value_body={"total": 12, "items": ["a"]}))
            await sender.send_messages(AmqpAnnotatedMessage(value_body='{"text": true}'))
        async with self.reading() as reader:
            events = await reader.read(2)
        assert [event.data for event in events] == [{"total": 12, "items": ["a"]}, {"text": True}]

    async def test_a_subscription_of_a_topic(self) -> None:
        """A topic is read through its subscription; others keep what they have."""
        self.peer.topic(f"{self.name}-topic", "all", "others", lock=4)
        produced = await self.send(ServiceBusMessage(b"1"), ServiceBusMessage(b"2"), to=f"{self.name}-topic")
        for subscription in ("all", "others"):
            self.more = {"queue": None, "topic": f"{self.name}-topic", "subscription": subscription}
            async with self.reading() as reader:
                events = await reader.read(2)
            self.check(events, produced)
            assert events[0].source.endswith(f"{self.name}-topic/Subscriptions/{subscription}")

    async def test_renews_the_lock_of_what_waits(self) -> None:
        """Messages that wait for longer than their lock are given to nobody else, and can be completed."""
        self.peer.queue(self.name, lock=4)
        produced = await self.produce(10)
        async with self.reading() as reader, self.client() as client:
            await reader.read(10, ack=False)
            async with client.get_queue_receiver(self.name) as other:
                assert await other.receive_messages(10, max_wait_time=9) == []
            for delivery in reader.deliveries:
                await delivery.ack()
        self.check(reader.events, produced)
        assert await self.left() == []

    async def test_gives_back_at_close(self) -> None:
        """After close another reader gets at once what was held, however long the lock is."""
        self.peer.queue(self.name, lock=300)
        produced = await self.produce(3)
        async with self.reading() as reader:
            await reader.read(3, ack=False)
        async with self.client() as client, client.get_queue_receiver(self.name) as other:
            got: list[str] = []
            async with asyncio.timeout(self.patience):
                while len(got) < 3:
                    received = await other.receive_messages(3, max_wait_time=5)
                    got += [str(message.message_id) for message in received]
        assert sorted(got) == sorted(produced)

    async def test_completes_nothing_before_it_is_told_to(self) -> None:
        """Only the delivery that is acknowledged leaves the queue."""
        first = await self.produce(2)
        async with self.reading() as reader:
            await reader.read(2)
            second = await self.produce(2)
            await reader.read(4, ack=False)
            self.check(reader.events, first + second)
            while sorted(left := await self.left()) != sorted(second):  # completed in the background
                assert set(second) <= set(left)

    async def test_holds_no_more_than_it_may(self) -> None:
        """At the limit of outstanding messages it hands out no more, and goes on with the acks."""
        self.more = {"outstanding": 5}
        produced = await self.produce(12)
        async with self.reading() as reader:
            await reader.read(5, ack=False)
            waiting = asyncio.create_task(reader.next())
            await asyncio.wait({waiting}, timeout=1.5)
            assert not waiting.done()
            for delivery in list(reader.deliveries):
                await delivery.ack()
            await (await waiting).ack()
            self.check(await reader.read(12), produced)

    @pytest.mark.parametrize("malformed", ["log", "queue", "both"])
    async def test_malformed_messages(self, malformed: str) -> None:
        """What cannot be read goes to the log's dead letters, to Service Bus's own, or to both."""
        self.more = {"malformed": malformed}
        (bad,) = await self.send(ServiceBusMessage(b'{"cut": '))
        good = await self.produce(1)
        async with self.reading() as reader:
            await reader.read(1)
        self.check(reader.events, good)
        assert len(reader.dead) == (0 if malformed == "queue" else 1)
        assert await self.left() == []
        assert await self.left(dead=True) == ([] if malformed == "log" else [bad])

    async def test_watches_the_dead_letter_queue(self) -> None:
        """With dead_letters=True the dead letters of a queue are events that say why they died."""
        self.more = {"malformed": "queue"}
        (bad,) = await self.send(ServiceBusMessage(b'{"cut": '))
        async with self.reading() as reader:
            await self.produce(1)
            await reader.read(1)
        self.more = {"dead_letters": True, "format": "text"}
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert (event.id, event.type, event.data) == (bad, "windsock.servicebus.dead_letter", '{"cut": ')
        assert event.headers["servicebus.dead_letter_reason"] == "Unreadable"
        assert "JSON" in event.headers["servicebus.dead_letter_error_description"]
        assert await self.left(dead=True) == []

    async def test_sessions_must_be_asked_for(self) -> None:
        """A queue with sessions that is read without them is refused, with the remedy."""
        self.peer.queue(f"{self.name}-sessions", sessions=True)
        self.more = {"queue": f"{self.name}-sessions"}
        with pytest.raises(SourceError, match=r"requires sessions.*: set sessions if it has them"):
            async with self.reading():
                pass

    async def test_sessions_must_be_there(self) -> None:
        """A queue without sessions that is read with them is refused, with the remedy."""
        self.more = {"sessions": True}
        with pytest.raises(SourceError, match=r"has no sessions: leave out sessions"):
            async with self.reading():
                pass

    async def test_a_key_without_a_connection_string(self) -> None:
        """Namespace, policy and key come from the Connection's fields; here nobody speaks TLS."""
        known = Connection(
            conn_id="servicebus",
            conn_type="azure_service_bus",
            host=LOOPBACK,
            login=POLICY,
            password=KEY,
        )
        source = make_source(self.kind, self.options(), fixed(known))
        async with asyncio.timeout(self.patience):
            with pytest.raises(SourceError, match=r"cannot be reached .*: check namespace"):
                await source.connect(None)
            await source.close()


class TestSessionFeatures(Entities):
    """What sessions add."""

    sessions = True

    async def test_the_session_is_the_key(self) -> None:
        """An event's key is its session, and sessions that come later are found, too."""
        async with self.reading() as reader:
            for session in ("one", "two", "three", "four", "five", "six"):  # more than are read at once
                await self.send(self.message(b"{}", session_id=session))
                events = await reader.read(len(reader.events) + 1)
                assert events[-1].key == session

    async def test_renews_the_lock_of_a_session(self) -> None:
        """A session whose messages wait for longer than its lock is given to nobody else."""
        self.peer.queue(self.name, sessions=True, lock=4)
        produced = await self.produce(3)
        async with self.reading() as reader, self.client() as client:
            await reader.read(3, ack=False)
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 9:  # longer than two locks
                with pytest.raises(Exception, match="is locked"):
                    async with client.get_queue_receiver(self.name, session_id="session-0") as other:
                        await other.receive_messages(1, max_wait_time=1)
            for delivery in reader.deliveries:
                await delivery.ack()
        self.check(reader.events, produced)
