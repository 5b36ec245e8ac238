"""The Pub/Sub source over Google's own fake of Pub/Sub.

The fake forgets everything when it ends, so that topic and subscription are made again after a restart: what
is proved there is that reading goes on, not that messages are kept.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from windsock.connections import Connection, fixed
from windsock.events import SourceError
from windsock.sources import make_source
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.pubsub import PROJECT, PubSub
from windsock.testing.sources import (
    MessageContract,
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    SourceHooks,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


class Subscribed(SourceHooks):
    """A fresh topic and subscription for each test, reached through a wire."""

    kind = "pubsub"
    settings: dict[str, Any] = {}
    """Fields of the subscription."""

    @pytest.fixture(autouse=True)
    async def system(self, serve: Callable[[str], Service]) -> AsyncIterator[None]:
        service = serve("pubsub")
        assert isinstance(service, PubSub)
        self.service = service
        self.name = f"windsock-{uuid.uuid4()}"
        self.more: dict[str, Any] = {}
        self.sent = 0
        with Wire(LOOPBACK, service.port) as self.wire:
            await self.create()
            yield

    @property
    def topic(self) -> str:
        return f"projects/{PROJECT}/topics/{self.name}"

    @property
    def path(self) -> str:
        return f"projects/{PROJECT}/subscriptions/{self.name}"

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[PublisherAsyncClient]:
        async with grpc.aio.insecure_channel(f"{LOOPBACK}:{self.service.port}") as channel:
            yield PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))

    @asynccontextmanager
    async def subscriber(self) -> AsyncIterator[SubscriberAsyncClient]:
        async with grpc.aio.insecure_channel(f"{LOOPBACK}:{self.service.port}") as channel:
            yield SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))

    async def create(self) -> None:
        async with self.publisher() as publisher, self.subscriber() as subscriber:
            await publisher.create_topic(name=self.topic)
            fields = {"name": self.path, "topic": self.topic, "ack_deadline_seconds": 10, **self.settings}
            await subscriber.create_subscription(fields)

    def options(self) -> dict[str, Any]:
        return {"conn_id": "gcp", "subscription": self.name, "deadline": 10, **self.more}

    def connections(self) -> list[Connection]:
        return [self.service.connection_at("gcp", self.wire.port)]

    async def publish(self, *bodies: bytes, keys: Sequence[str] = (), **attributes: str) -> list[str]:
        """Publish messages; their ids."""
        messages = [
            {"data": body, "attributes": attributes, "ordering_key": keys[at] if keys else ""}
            for at, body in enumerate(bodies)
        ]
        made: list[str] = []
        self.sent += len(messages)
        async with self.publisher() as publisher:
            for at in range(0, len(messages), 1000):
                answer = await publisher.publish(topic=self.topic, messages=messages[at : at + 1000])
                made += answer.message_ids
        return made

    async def produce(self, count: int) -> list[str]:
        return await self.publish(*(b'{"n": %d}' % n for n in range(count)))

    async def pull(self) -> list[str]:
        """What another reader would get now: the ids of the messages."""
        async with self.subscriber() as subscriber:
            answer = await subscriber.pull(subscription=self.path, max_messages=1000)
        return [each.message.message_id for each in answer.received_messages]


class Suite(Subscribed, MessageContract, ReaderProcesses, ServerFaults, Unreachable, Missing):
    """The whole contract."""

    async def produce_malformed(self) -> bytes:
        await self.publish(b'{"n": ')
        return b'{"n": '

    async def produce_large(self, size: int) -> str:
        return (await self.publish(json.dumps("x" * size).encode()))[0]

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.publish(*[b"{}"] * len(keys), keys=keys)

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.service.restart)
        await self.create()
        async with self.publisher() as publisher:  # which counts its ids from the start, as Google does not
            elsewhere = await publisher.create_topic(name=f"{self.topic}-elsewhere")
            await publisher.publish(topic=elsewhere.name, messages=[{"data": b"-"}] * self.sent)

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.service.connection_at("gcp", free_port())]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "subscription": "not-there"}, self.connections()


class TestPubSub(Suite):
    """A subscription with message ordering, which the promised order needs."""

    settings = {"enable_message_ordering": True}


class TestExactlyOnce(Suite):
    """A subscription with exactly-once delivery and ordering; the fake only marks it as such."""

    settings = {"enable_message_ordering": True, "enable_exactly_once_delivery": True}
    burst = 2000


class TestFeatures(Subscribed):
    """What the source does beyond the contract."""

    async def test_attributes_key_and_time(self) -> None:
        """Attributes are headers, the ordering key is the key, and source, id and time are Pub/Sub's."""
        (made,) = await self.publish(b'{"n": 1}', keys=["shop-7"], tenant="blue", colour="grün")
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert (event.id, event.key, event.data) == (made, "shop-7", {"n": 1})
        assert (event.source, event.type) == (f"pubsub://{self.path}", "windsock.pubsub")
        assert event.headers == {"tenant": "blue", "colour": "grün"}
        assert event.time is not None

    async def test_cloudevents(self) -> None:
        """CloudEvents come in binary mode, as attributes, and in structured mode, as the body."""
        attributes = {"ce-specversion": "1.0", "ce-id": "a", "ce-source": "/shop", "ce-type": "order"}
        body = b'{"specversion": "1.0", "id": "b", "source": "/shop", "type": "order", "data": {"total": 12}}'
        async with self.reading() as reader:
            await self.publish(b'{"total": 12}', **attributes, **{"content-type": "application/json"})
            await self.publish(body, **{"content-type": "application/cloudevents+json"})
            events = await reader.read(2)
        assert sorted(event.id for event in events) == ["a", "b"]
        assert [(event.source, event.type, event.data) for event in events] == [
            ("/shop", "order", {"total": 12})
        ] * 2

    async def test_an_attribute_alone_is_an_event(self) -> None:
        """A message may have no body at all."""
        await self.publish(b"", what="nightly")
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert (event.data, event.headers) == (None, {"what": "nightly"})

    async def test_a_full_path(self) -> None:
        """A subscription can be named by its whole path, whatever the project of the Connection."""
        self.more = {"subscription": self.path, "project": "another"}
        produced = await self.produce(2)
        async with self.reading() as reader:
            self.check(await reader.read(2), produced)

    async def test_extends_the_ack_deadline_of_what_waits(self) -> None:
        """Messages that wait for longer than their ack deadline are given to nobody else."""
        produced = await self.produce(25)
        async with self.reading() as reader:
            await reader.read(25, ack=False)
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 15:  # longer than the deadline of ten seconds
                assert await self.pull() == []
            for delivery in reader.deliveries:
                await delivery.ack()
        self.check(reader.events, produced)
        assert await self.pull() == []

    async def test_gives_back_at_close(self) -> None:
        """After close another reader gets at once what was held, however long the deadline is."""
        self.more = {"deadline": 600}
        produced = await self.produce(3)
        async with self.reading() as reader:
            await reader.read(3, ack=False)
        assert sorted(await self.pull()) == sorted(produced)

    async def test_acks_nothing_before_it_is_told_to(self) -> None:
        """Only the delivery that is acknowledged leaves the subscription."""
        first = await self.produce(2)
        async with self.reading() as reader:
            await reader.read(2)
            second = await self.produce(2)
            await reader.read(4, ack=False)
        self.check(reader.events, first + second)
        assert sorted(await self.pull()) == sorted(second)

    async def test_holds_no_more_than_it_may(self) -> None:
        """At the limit of outstanding messages it stops pulling, and goes on with the acks."""
        self.more = {"outstanding": 5}
        produced = await self.produce(12)
        async with self.reading() as reader, self.subscriber() as subscriber:
            await reader.read(5, ack=False)
            others = await subscriber.pull(subscription=self.path, max_messages=1000)
            free = [each.ack_id for each in others.received_messages]
            assert len(free) == 7
            await subscriber.modify_ack_deadline(subscription=self.path, ack_ids=free, ack_deadline_seconds=0)
            for delivery in reader.deliveries:
                await delivery.ack()
            self.check(await reader.read(12), produced)

    async def test_a_dead_letter_topic_counts_attempts(self) -> None:
        """With a dead letter topic each event says how often it was delivered."""
        async with self.subscriber() as subscriber:
            await subscriber.delete_subscription(subscription=self.path)
            async with self.publisher() as publisher:
                await publisher.create_topic(name=f"{self.topic}-dead")
            policy = {"dead_letter_topic": f"{self.topic}-dead", "max_delivery_attempts": 5}
            fields = {"name": self.path, "topic": self.topic, "dead_letter_policy": policy}
            await subscriber.create_subscription({**fields, "ack_deadline_seconds": 10})
        await self.produce(1)
        for attempt in (1, 2):
            async with self.reading() as reader:
                (event,) = await reader.read(1, ack=False)
            assert event.headers == {"pubsub.delivery_attempt": str(attempt)}

    async def test_a_push_subscription(self) -> None:
        """A subscription that pushes is refused, with the remedy."""
        async with self.subscriber() as subscriber:
            await subscriber.delete_subscription(subscription=self.path)
            push = {"push_endpoint": "https://shop.example.com/hook"}
            await subscriber.create_subscription(
                {"name": self.path, "topic": self.topic, "push_config": push}
            )
        with pytest.raises(SourceError, match=r"pushes its messages: name one to pull from"):
            async with self.reading():
                pass

    async def test_a_subscription_that_is_deleted(self) -> None:
        """A subscription that goes away while it is read ends the read with the remedy."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.next())
            async with self.subscriber() as subscriber:
                await subscriber.delete_subscription(subscription=self.path)
            with pytest.raises(SourceError, match=r"does not exist: create it"):
                await waiting


class _Tokens(BaseHTTPRequestHandler):
    """Google's token endpoint as far as a service account sees it."""

    answer: tuple[int, dict[str, Any]] = (200, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, body = self.answer
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def secured(serve: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSub]:
    """A second server, which speaks TLS and asks for a token."""
    serve("pubsub")  # which skips if the software is not there
    with PubSub(tmp_path_factory.mktemp("secured"), tls=True) as server:
        yield server


class TestServiceAccount(WrongCredentials):
    """A server that speaks TLS and asks for a token, and a service account's key that gets one."""

    kind = "pubsub"

    @pytest.fixture(autouse=True)
    def system(self, secured: PubSub) -> Iterator[None]:
        self.server = secured
        handler = type("Tokens", (_Tokens,), {})
        self.handler: Any = handler
        with HTTPServer((LOOPBACK, 0), handler) as tokens:
            self.tokens = f"http://{LOOPBACK}:{tokens.server_port}/token"
            thread = threading.Thread(target=tokens.serve_forever, daemon=True)
            thread.start()
            self.grant(secured.token)
            yield
            tokens.shutdown()
            thread.join()

    def grant(self, token: str) -> None:
        self.handler.answer = (200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600})

    def options(self) -> dict[str, Any]:
        return {"conn_id": "gcp", "subscription": "orders"}

    def connections(self) -> list[Connection]:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        keyfile = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key": plain.decode(),
            "client_email": "reader@windsock.iam.gserviceaccount.com",
            "token_uri": self.tokens,
        }
        extra = {
            "keyfile_dict": json.dumps(keyfile),
            "pubsub_endpoint": f"https://{LOOPBACK}:{self.server.port}",
            "ssl_ca_certs": str(self.server.certificates.authority),
        }
        return [Connection(conn_id="gcp", conn_type="google_cloud_platform", extra=extra)]

    async def produce(self, count: int) -> list[str]:
        topic, path = f"projects/{PROJECT}/topics/orders", f"projects/{PROJECT}/subscriptions/orders"
        authority = self.server.certificates.authority.read_bytes()
        secure = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(authority), grpc.access_token_call_credentials(self.server.token)
        )
        async with grpc.aio.secure_channel(f"{LOOPBACK}:{self.server.port}", secure) as channel:
            publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
            subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
            await publisher.create_topic(name=topic)
            await subscriber.create_subscription(name=path, topic=topic)
            messages = [{"data": b"%d" % n} for n in range(count)]
            return list((await publisher.publish(topic=topic, messages=messages)).message_ids)

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        self.grant("another token")
        return self.options(), self.connections()

    async def test_reads_with_a_key(self) -> None:
        """A service account's key gets a token, and the token gets the messages; the project is the key's."""
        produced = await self.produce(3)
        async with self.reading() as reader:
            self.check(await reader.read(3), produced)

    async def test_a_key_that_google_refuses(self) -> None:
        """A key for which there is no token is a SourceError that names the Connection."""
        self.handler.answer = (400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        with pytest.raises(SourceError, match=r"refused the credentials: correct the key .*'gcp'"):
            async with self.reading():
                pass

    async def test_an_authority_that_is_not_trusted(self, tmp_path: Path) -> None:
        """A certificate of another authority is no server to talk to."""
        (known,) = self.connections()
        extra = {name: value for name, value in known.extra.items() if name != "ssl_ca_certs"}
        source = make_source(self.kind, self.options(), fixed(msgspec.structs.replace(known, extra=extra)))
        with pytest.raises(SourceError, match=r"cannot be reached .*: check"):
            await source.connect(None)
        await source.close()


class TestGcsNotifications(Subscribed):
    """The whole way of a bucket's notification: topic, subscription, GCS source."""

    async def test_notifications_become_object_events(self) -> None:
        """What Cloud Storage publishes of an object arrives as its event, and is acked."""
        resource = {
            "kind": "storage#object",
            "bucket": "shop",
            "name": "in/a ü.csv",
            "generation": "1700000000000001",
            "metageneration": "1",
            "contentType": "text/csv",
            "size": "12",
            "etag": base64.b64encode(b"etag").decode(),
            "timeCreated": "2026-01-02T03:04:05.678Z",
            "updated": "2026-01-02T03:04:05.678Z",
        }
        attributes = {
            "bucketId": "shop",
            "objectId": "in/a ü.csv",
            "objectGeneration": "1700000000000001",
            "eventTime": "2026-01-02T03:04:05.678901Z",
            "eventType": "OBJECT_FINALIZE",
            "payloadFormat": "JSON_API_V1",
            "notificationConfig": "projects/_/buckets/shop/notificationConfigs/1",
        }
        await self.publish(json.dumps(resource).encode(), **attributes)
        options = {
            "conn_id": "gcp", "mode": "notifications", "bucket": "shop", "subscription": self.name
        }  # fmt: skip
        source = make_source("gcs", options, fixed(*self.connections()))
        async with asyncio.timeout(self.patience):
            await source.connect(None)
            reader = Reader(source)
            (event,) = await reader.read(1)
            await source.close()
        assert (event.type, event.source, event.subject) == (
            "windsock.object.created",
            "gs://shop",
            "in/a ü.csv",
        )
        assert (event.data["version"], event.data["event"]) == ("1700000000000001", "OBJECT_FINALIZE")
        assert await self.pull() == []
