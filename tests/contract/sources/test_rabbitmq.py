"""RabbitMQ over the contract suite and its own features, against a real server."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import msgspec
import pytest
from aio_pika.abc import AbstractChannel
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.rabbitmq import RabbitMQ
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


@pytest.fixture
def rabbit(serve: Callable[[str], Service]) -> RabbitMQ:
    """The server."""
    server = serve("rabbitmq")
    assert isinstance(server, RabbitMQ)
    return server


@pytest.fixture
def wire(rabbit: RabbitMQ) -> Iterator[Wire]:
    """A connection to the server that can be cut."""
    with Wire(LOOPBACK, rabbit.port) as wire:
        yield wire


class OnRabbitMQ(SourceHooks):
    """A fresh queue for each test, read through a wire and filled beside it."""

    kind = "rabbitmq"
    queue_type = "classic"
    arguments: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    async def system(self, rabbit: RabbitMQ, wire: Wire) -> AsyncIterator[None]:
        self.rabbit, self.wire = rabbit, wire
        self.queue = f"queue-{uuid.uuid4()}"
        async with self.channel() as channel:
            await channel.declare_queue(
                self.queue, durable=True, arguments={"x-queue-type": self.queue_type, **self.arguments}
            )
        yield
        async with self.channel() as channel:
            await channel.queue_delete(self.queue)

    def options(self) -> dict[str, Any]:
        return {"conn_id": "rabbit", "queue": self.queue}

    def connections(self) -> Sequence[Connection]:
        return [self.changed(port=self.wire.port)]

    def changed(self, **fields: Any) -> Connection:
        return msgspec.structs.replace(self.rabbit.connection("rabbit"), **fields)

    async def produce(self, count: int) -> list[str]:
        messages = [_message({"n": number}) for number in range(count)]
        await self.send(*messages)
        return [message.message_id or "" for message in messages]

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[AbstractChannel]:
        """A channel of a sender, with publisher confirms."""
        at = self.rabbit.connection("sender")
        connection = await aio_pika.connect(
            host=at.host, port=at.port, login=at.login, password=at.password, virtualhost=at.schema
        )
        async with connection, connection.channel(on_return_raises=True) as channel:
            yield channel

    async def send(self, *messages: aio_pika.Message, exchange: str = "", key: str | None = None) -> None:
        """Publish in this order, each one confirmed by the server."""
        async with self.channel() as channel:
            to = await channel.get_exchange(exchange) if exchange else channel.default_exchange
            await asyncio.gather(*(to.publish(message, key or self.queue) for message in messages))

    async def ready(self, queue: str | None = None) -> int:
        """How many messages wait in the queue itself."""
        async with self.channel() as channel:
            declared = await channel.declare_queue(queue or self.queue, passive=True)
            return declared.declaration_result.message_count or 0

    async def until_ready(self, count: int, queue: str | None = None) -> None:
        async with asyncio.timeout(self.patience):
            while await self.ready(queue) != count:
                await asyncio.sleep(0.02)


class TestRabbitMQ(
    OnRabbitMQ, MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing
):
    """A classic queue."""

    async def produce_large(self, size: int) -> str:
        message = _message({"text": "x" * size})
        await self.send(message)
        return message.message_id or ""

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        messages = [_message({"key": key}) for key in keys]
        await self.send(*messages)
        return [message.message_id or "" for message in messages]

    async def produce_malformed(self) -> bytes:
        await self.send(_message(b'{"cut": '))
        return b'{"cut": '

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.rabbit.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.changed(port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.changed(password="not-the-password")]

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "queue": "not-there"}, self.connections()


class TestRabbitMQQuorum(TestRabbitMQ):
    """A quorum queue."""

    queue_type = "quorum"

    async def restart_server(self) -> None:
        await asyncio.to_thread(
            self.rabbit.wait, lambda: self.rabbit.remembers(self.queue), "write down the queue"
        )
        await super().restart_server()


class TestRabbitMQFeatures(OnRabbitMQ):
    """What a user of RabbitMQ expects beyond the contract."""

    async def events(self, count: int, **options: Any) -> list[Event]:
        """The next events of a source with these options besides its own."""
        async with asyncio.timeout(self.patience):
            source = make_source(self.kind, {**self.options(), **options}, fixed(*self.connections()))
            await source.connect(None)
            events: list[Event] = []
            try:
                stream = source.read()
                while len(events) < count:
                    delivery = await anext(stream)
                    events += delivery.events
                    await delivery.ack()
            finally:
                await source.close()
            return events

    async def refused(self, match: str, connection: Connection | None = None, **options: Any) -> str:
        """The error of a source that cannot connect with these options."""
        known = [connection] if connection else self.connections()
        source = make_source(self.kind, {**self.options(), **options}, fixed(*known))
        with pytest.raises(SourceError, match=match) as refused:
            await source.connect(None)
        return str(refused.value)

    async def test_properties_become_attributes(self) -> None:
        """Routing key, type, time, correlation and headers of every kind arrive where a filter finds them."""
        sent = dt.datetime(2026, 5, 1, 12, 30, tzinfo=dt.UTC)
        await self.send(
            aio_pika.Message(
                b'{"total": 12}',
                message_id="order-1",
                type="order.created",
                timestamp=sent,
                correlation_id="basket-7",
                content_type="application/json",
                app_id="shop",
                priority=3,
                headers={"region": "north", "attempt": 2, "tags": ["a", "b"], "raw": bytearray(b"\xff")},
            )
        )
        (event,) = await self.events(1)
        assert (event.id, event.type, event.subject) == ("order-1", "order.created", self.queue)
        assert (event.time, event.correlation, event.data) == (sent, "basket-7", {"total": 12})
        assert event.source == f"rabbitmq://rabbit/{self.queue}"
        assert event.headers == {
            "region": "north",
            "attempt": "2",
            "tags": '["a","b"]',
            "raw": "\\xff",
            "amqp-app-id": "shop",
            "amqp-priority": "3",
        }

    async def test_redelivery_is_visible(self) -> None:
        """A message that comes again says so in its headers."""
        await self.produce(1)
        async with self.reading() as reader:
            await reader.read(1, ack=False)
        (again,) = await self.events(1)
        assert "amqp-redelivered" not in reader.events[0].headers
        assert again.headers["amqp-redelivered"] == "true"

    async def test_declares_queue_exchange_and_bindings(self) -> None:
        """With declare, queue, exchange and bindings are made, and messages to a bound key arrive."""
        queue, exchange = f"queue-{uuid.uuid4()}", f"exchange-{uuid.uuid4()}"
        options = {
            "queue": queue,
            "queue_type": "quorum",
            "exchange": exchange,
            "exchange_type": "topic",
            "routing_keys": ["order.*", "refund.#"],
            "declare": True,
        }
        source = make_source(self.kind, {**self.options(), **options}, fixed(*self.connections()))
        await source.connect(None)
        await source.close()
        wanted = [_message({}), _message({})]
        await self.send(wanted[0], exchange=exchange, key="order.created")
        await self.send(wanted[1], exchange=exchange, key="refund.asked.twice")
        async with self.channel() as channel:
            unwanted = await (await channel.get_exchange(exchange)).publish(
                _message({}), "other", mandatory=False
            )
            assert unwanted is not None
        events = await self.events(2, **options)
        assert [event.id for event in events] == [message.message_id for message in wanted]
        assert [event.subject for event in events] == ["order.created", "refund.asked.twice"]
        assert events[0].headers["amqp-exchange"] == exchange
        async with self.channel() as channel:
            await channel.queue_delete(queue)
            await channel.exchange_delete(exchange)

    async def test_binds_to_a_headers_exchange(self) -> None:
        """A queue that exists can be bound to an exchange that exists, by headers."""
        options = {
            "exchange": "amq.headers",
            "routing_keys": [""],
            "binding_arguments": {"x-match": "all", "region": self.queue},
        }
        source = make_source(self.kind, {**self.options(), **options}, fixed(*self.connections()))
        await source.connect(None)
        await source.close()
        message = _message({})
        message.headers = {"region": self.queue}
        await self.send(message, exchange="amq.headers", key="anything")
        (event,) = await self.events(1, **options)
        assert event.id == message.message_id

    async def test_a_missing_exchange(self) -> None:
        """An exchange that is not there is an error that names it and the remedy."""
        said = await self.refused("declare=True", exchange="no-such-exchange")
        assert "no-such-exchange" in said

    async def test_other_settings_than_declared(self) -> None:
        """A queue that exists with other settings is an error, and the queue stays as it is."""
        await self.refused("declare=False", declare=True, queue_type="quorum")
        assert await self.ready() == 0

    async def test_a_missing_virtual_host(self) -> None:
        """A virtual host that is not there is an error that says where it is set."""
        await self.refused("schema", self.changed(schema="elsewhere"))

    async def test_a_deleted_queue_is_noticed(self) -> None:
        """A queue that is deleted while it is read is an error, not silence."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.next())
            await asyncio.wait({waiting}, timeout=0.05)
            async with self.channel() as channel:
                await channel.queue_delete(self.queue)
            with pytest.raises(SourceError, match="deleted"):
                await waiting

    async def test_prefetch_bounds_what_is_here(self) -> None:
        """No more than prefetch messages leave the queue before they are acknowledged."""
        await self.produce(50)
        source = make_source(self.kind, {**self.options(), "prefetch": 10}, fixed(*self.connections()))
        await source.connect(None)
        try:
            await self.until_ready(40)
            assert await source.lag() == 50
        finally:
            await source.close()
        await self.until_ready(50)

    async def test_gives_back_what_it_cannot_hand_over(self) -> None:
        """After hold seconds of standstill messages go back to the queue, and come in order later."""
        first = await self.produce(1)
        options = {**self.options(), "hold": 0.1}
        source = make_source(self.kind, options, fixed(*self.connections()))
        async with asyncio.timeout(self.patience):
            await source.connect(None)
            try:
                stream = source.read()
                delivery = await anext(stream)
                rest = await self.produce(20)
                await self.until_ready(20)
                assert await source.lag() == 21
                await delivery.ack()
                events = list(delivery.events)
                while len(events) < 21:
                    delivery = await anext(stream)
                    events += delivery.events
                    await delivery.ack()
                assert await source.lag() == 0
            finally:
                await source.close()
        assert [event.id for event in events] == first + rest
        assert await self.ready() == 0

    async def test_identity_by_content(self) -> None:
        """Without message ids the content can be the identity: the same at every redelivery."""
        sent = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
        later_sent = sent + dt.timedelta(seconds=1)
        for body, at in [(b"1", sent), (b"2", sent), (b"1", sent), (b"1", later_sent)]:
            await self._send_without_id(body, at)
        async with self.reading() as reader:
            await reader.read(4, ack=False)
            random = [event.id for event in reader.events]
        one, two, again, later = [event.id for event in await self.events(4, identity="content")]
        assert len({*random, one, two, later}) == 7
        assert one == again

    async def _send_without_id(self, body: bytes, sent: dt.datetime) -> None:
        """Publish below the client library, which gives an id to every message."""
        header = ContentHeader(body_size=len(body), properties=Basic.Properties(timestamp=sent))
        async with self.channel() as channel:
            inner = await channel.get_underlay_channel()
            frames = [Basic.Publish(exchange="", routing_key=self.queue), header, ContentBody(body)]
            await inner.write_queue.put(ChannelFrame.marshall(inner.number, frames))

    async def test_malformed_to_the_dead_letter_exchange(self) -> None:
        """With malformed='exchange' the queue's own dead-letter exchange gets it, and the log nothing."""
        await self._malformed("exchange", dead_letters=0)

    async def test_malformed_to_both(self) -> None:
        """With malformed='both' the dead-letter exchange gets it and the log has its dead letter."""
        await self._malformed("both", dead_letters=1)

    async def _malformed(self, malformed: str, dead_letters: int) -> None:
        queue, graveyard = f"queue-{uuid.uuid4()}", f"graveyard-{uuid.uuid4()}"
        options = {**self.options(), "queue": queue, "declare": True, "malformed": malformed}
        options |= {"dead_letter_exchange": graveyard}
        async with self.channel() as channel:
            fanout = await channel.declare_exchange(graveyard, "fanout", durable=True)
            await (await channel.declare_queue(graveyard, durable=True)).bind(fanout)
        source = make_source(self.kind, options, fixed(*self.connections()))
        async with asyncio.timeout(self.patience):
            await source.connect(None)
            good = [_message({"n": 1}), _message({"n": 2})]
            await self.send(good[0], _message(b"{"), good[1], _message(b"["), key=queue)
            events, dead = [], []
            stream = source.read()
            while len(events) + len(dead) < 2 + 2 * dead_letters or await source.lag():
                delivery = await anext(stream)
                events += delivery.events
                dead += delivery.dead
                await delivery.ack()
            await source.close()
        assert [event.id for event in events] == [message.message_id for message in good]
        assert [letter.body for letter in dead] == [b"{", b"["][: 2 * dead_letters]
        await self.until_ready(2, graveyard)
        assert await self.ready(queue) == 0
        async with self.channel() as channel:
            for name in (queue, graveyard):
                await channel.queue_delete(name)
            await channel.exchange_delete(graveyard)

    @pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
    async def test_cloudevents_in_binary_mode(self, prefix: str) -> None:
        """A CloudEvent whose attributes are application properties keeps its own id, source and type."""
        attributes = {"specversion": "1.0", "id": "ce-1", "source": "/shop", "type": "order.created"}
        await self.send(
            aio_pika.Message(
                b'{"total": 12}',
                message_id="transport-1",
                content_type="application/json",
                headers={prefix + name: value for name, value in attributes.items()} | {"region": "north"},
            )
        )
        (event,) = await self.events(1)
        assert (event.id, event.source, event.type) == ("ce-1", "/shop", "order.created")
        assert (event.data, event.headers) == ({"total": 12}, {"region": "north"})

    async def test_cloudevents_in_structured_mode(self) -> None:
        """A CloudEvent that is the whole body is recognised by its content type."""
        document = {
            "specversion": "1.0",
            "id": "ce-2",
            "source": "/shop",
            "type": "order.created",
            "data": {"total": 12},
        }
        await self.send(
            aio_pika.Message(json.dumps(document).encode(), content_type="application/cloudevents+json")
        )
        (event,) = await self.events(1, format="cloudevents")
        assert (event.id, event.source, event.type) == ("ce-2", "/shop", "order.created")
        assert event.data == {"total": 12}

    async def test_tls(self) -> None:
        """Over TLS the server's certificate is checked against the authority of the Connection."""
        await self.produce(1)
        extra = {"ssl_ca_certs": str(self.rabbit.certificates.authority)}
        encrypted = self.changed(conn_type="amqps", port=self.rabbit.tls_port, extra=extra)
        assert await self._reads(encrypted)
        await self.refused("TLS", self.changed(port=self.rabbit.tls_port, extra={"ssl": "true"}))
        await self.refused(
            "certificates cannot be read",
            self.changed(port=self.rabbit.tls_port, extra={"ssl": True, "ssl_ca_certs": "/not/there.pem"}),
        )

    async def test_a_client_certificate_is_the_login(self) -> None:
        """With auth=external the certificate says who we are; no password is needed."""
        await self.produce(1)
        certificates = self.rabbit.certificates
        extra = {
            "ssl": True,
            "auth": "external",
            "ssl_ca_certs": str(certificates.authority),
            "ssl_certfile": str(certificates.client),
            "ssl_keyfile": str(certificates.client_key),
        }
        assert await self._reads(
            self.changed(port=self.rabbit.tls_port, login=None, password=None, extra=extra)
        )

    async def test_plain_text_to_the_tls_port(self) -> None:
        """Speaking without TLS to a port that wants it is an error that names the extra."""
        await self.refused("extra 'ssl'", self.changed(port=self.rabbit.tls_port))

    async def _reads(self, connection: Connection) -> bool:
        source = make_source(self.kind, self.options(), fixed(connection))
        async with asyncio.timeout(self.patience):
            await source.connect(None)
            delivery = await anext(source.read())
            await delivery.ack()
            await source.close()
        return len(delivery.events) == 1


def _message(body: dict[str, Any] | bytes) -> aio_pika.Message:
    return aio_pika.Message(
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        message_id=str(uuid.uuid4()),
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )
