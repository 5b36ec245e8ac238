"""Google Cloud Storage by listing, over fake-gcs-server, and by notifications through a fake Pub/Sub."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from msgspec.structs import replace

from windsock.connections import Connection, fixed
from windsock.events import Event
from windsock.sources import make_source
from windsock.sources.base import Guarantees
from windsock.sources.gcs import _client
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import Service
from windsock.testing.services.gcs import PROJECT, FakeGcs
from windsock.testing.services.pubsub import PubSub
from windsock.testing.sources import (
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

PARALLEL = 8
TOGETHER = 160
"""How many names may get out of order: less than a listing by key forgives."""


class Bucket:
    """A bucket of its own, and a wire to the server that can be cut."""

    def __init__(self, service: FakeGcs, wire: Wire) -> None:
        self.service, self.wire = service, wire
        self.name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.numbers = count()

    def connection(self) -> Connection:
        """To the server, through the wire."""
        return self.service.connection_at("gcp", self.wire.port)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client that does not go through the wire."""
        made = _client(self.service.connection("gcp"))
        try:
            yield made
        finally:
            made.close()

    def create(self) -> None:
        with self.client() as client:
            client.create_bucket(self.name)

    async def put(self, *keys: str, body: bytes = b"content") -> list[str]:
        """Objects of these names, several at a time and never far from their order."""
        for at in range(0, len(keys), TOGETHER):
            await asyncio.to_thread(self._put, keys[at : at + TOGETHER], body)
        return list(keys)

    def _put(self, keys: Sequence[str], body: bytes) -> None:
        def work(mine: Sequence[str]) -> None:
            with self.client() as client:
                bucket = client.bucket(self.name)
                for key in mine:
                    bucket.blob(key).upload_from_string(body)

        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(work, [keys[at::PARALLEL] for at in range(min(PARALLEL, len(keys)))]))


@pytest.fixture
def bucket(serve: Callable[[str], Service]) -> Iterator[Bucket]:
    """A new bucket."""
    service = serve("gcs")
    assert isinstance(service, FakeGcs)
    with Wire(LOOPBACK, service.port) as wire:
        made = Bucket(service, wire)
        made.create()
        yield made


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of somebody who gives nobody a token, as Google does to a key that was revoked."""

    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}')

        def log_message(self, *arguments: Any) -> None:
            """Nothing to say."""

    server = HTTPServer((LOOPBACK, 0), Refusal)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://{LOOPBACK}:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


class TestListing(SourceContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """A bucket that is listed, by time."""

    kind = "gcs"
    burst = 3_000  # fake-gcs-server reads all its objects for each page
    patience = 600.0
    more: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def system(self, bucket: Bucket, refusing: str) -> None:
        self.bucket, self.refusing = bucket, refusing

    def options(self) -> dict[str, Any]:
        return {"conn_id": "gcp", "bucket": self.bucket.name, "prefix": "in/", "interval": 0.2, **self.more}

    def connections(self) -> Sequence[Connection]:
        return [self.bucket.connection()]

    async def produce(self, count: int) -> list[str]:
        return await self.bucket.put(*[f"in/{next(self.bucket.numbers):06}" for _ in range(count)])

    def identity(self, event: Event) -> str:
        return event.subject or ""

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.bucket.service.restart)

    async def cut(self) -> None:
        self.bucket.wire.cut()

    async def mend(self) -> None:
        self.bucket.wire.mend()

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        self.bucket.wire.cut()
        return self.options(), self.connections()

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        connection = self.bucket.connection()
        key = json.dumps(service_account_key(self.refusing))
        extra = {**connection.extra, "is_anonymous": False, "keyfile_dict": key}
        return self.options(), [replace(connection, extra=extra)]

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "bucket": "not-there"}, self.connections()


class TestListingByKey(TestListing):
    """A bucket that is listed, by key; the whole suite with a smaller burst."""

    more = {"order": "key"}
    burst = 2_000


def service_account_key(token_uri: str) -> dict[str, str]:
    """A key of a service account that nobody knows."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "nobody@windsock.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }


@asynccontextmanager
async def reading(bucket: Bucket, cursor: Any = None, **options: Any) -> AsyncIterator[Reader]:
    """A source on the bucket, connected inside."""
    chosen = {"conn_id": "gcp", "bucket": bucket.name, "interval": 0.1, **options}
    source = make_source("gcs", chosen, fixed(bucket.connection()))
    async with asyncio.timeout(60):
        await source.connect(cursor)
        try:
            yield Reader(source)
        finally:
            await source.close()


async def test_a_listed_object(bucket: Bucket) -> None:
    """An event has what the listing says of the object; its id is that of a notification."""
    await bucket.put("in/a b+ü%.csv", body=b"12345")
    async with reading(bucket, prefix="in/", pattern="*.csv") as reader:
        (event,) = await reader.read(1)
    assert event.type == "windsock.object.created"
    assert event.source == f"gs://{bucket.name}"
    assert event.subject == event.key == event.data["key"] == "in/a b+ü%.csv"
    assert event.data["uri"] == f"gs://{bucket.name}/in/a%20b%2B%C3%BC%25.csv"
    assert event.data["bucket"] == bucket.name
    assert event.data["size"] == 5
    assert event.id == f"in/a%20b%2B%C3%BC%25.csv#{event.data['version']}"
    assert event.time is not None
    assert event.data["last_modified"] == event.time.isoformat()


async def test_a_listed_object_is_overwritten(bucket: Bucket) -> None:
    """A new generation is news, also with the same content within the same second."""
    await bucket.put("a")
    async with reading(bucket) as reader:
        await reader.read(1)
        await bucket.put("a")
        first, second = await reader.read(2)
    assert [first.type, second.type] == ["windsock.object.created", "windsock.object.overwritten"]
    assert first.id != second.id


async def test_many_pages(bucket: Bucket) -> None:
    """The source reads many pages, and after a restart only what is new."""
    await bucket.put(*[f"in/{number:05}" for number in range(2300)])
    async with reading(bucket) as reader:
        events = await reader.read(2300)
        cursor = reader.cursor()
    assert len({event.id for event in events}) == 2300
    await bucket.put("in/00000a")
    async with reading(bucket, cursor) as reader:
        (event,) = await reader.read(1)
    assert event.subject == "in/00000a"


class Notified:
    """A Pub/Sub topic that an own Cloud Storage notifies, and a subscription for each test."""

    def __init__(self, service: FakeGcs, pubsub: PubSub) -> None:
        self.service, self.pubsub = service, pubsub

    def connection(self) -> Connection:
        """To Pub/Sub only: notifications need nothing of Storage."""
        return self.pubsub.connection("gcp")

    async def subscribe(self) -> str:
        """A new subscription, which gets what is published from now on; its name."""
        name = f"subscription-{uuid.uuid4().hex[:12]}"
        async with self._client(SubscriberAsyncClient, SubscriberGrpcAsyncIOTransport) as subscriber:
            await subscriber.create_subscription(
                name=f"projects/{PROJECT}/subscriptions/{name}",
                topic=f"projects/{PROJECT}/topics/{self.service.topic}",
            )
        return name

    async def create_topic(self) -> None:
        async with self._client(PublisherAsyncClient, PublisherGrpcAsyncIOTransport) as publisher:
            await publisher.create_topic(name=f"projects/{PROJECT}/topics/{self.service.topic}")

    @asynccontextmanager
    async def _client(self, kind: Any, transport: Any) -> AsyncIterator[Any]:
        async with grpc.aio.insecure_channel(f"{LOOPBACK}:{self.pubsub.port}") as channel:
            yield kind(transport=transport(channel=channel))


@pytest.fixture(scope="module")
def notifying(
    serve: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Notified]:
    """Cloud Storage that notifies Pub/Sub."""
    serve("gcs")
    pubsub = serve("pubsub")
    assert isinstance(pubsub, PubSub)
    service = FakeGcs(tmp_path_factory.mktemp("notifying"))
    service.pubsub, service.topic = f"{LOOPBACK}:{pubsub.port}", "notifications"
    made = Notified(service, pubsub)
    asyncio.run(made.create_topic())
    with service:
        yield made


class TestNotifications(SourceContract, ReaderProcesses, Missing):
    """A bucket that notifies Pub/Sub; what the servers may do to it is proven of the pubsub source."""

    kind = "gcs"
    patience = 600.0
    burst = 1_000  # each object is an upload of its own

    @pytest.fixture(autouse=True)
    async def system(self, notifying: Notified) -> AsyncIterator[None]:
        self.notifying = notifying
        self.subscription = await notifying.subscribe()
        with Wire(LOOPBACK, notifying.service.port) as wire:
            self.bucket = Bucket(notifying.service, wire)
            await asyncio.to_thread(self.bucket.create)
            yield

    @property
    def guarantees(self) -> Guarantees:
        return replace(super().guarantees, lag=False)  # Pub/Sub does not tell

    def options(self) -> dict[str, Any]:
        return {"conn_id": "gcp", "mode": "notifications", "subscription": self.subscription, "prefix": "in/"}

    def connections(self) -> Sequence[Connection]:
        return [self.notifying.connection()]

    async def produce(self, count: int) -> list[str]:
        return await self.bucket.put(*[f"in/{next(self.bucket.numbers):06}" for _ in range(count)])

    def identity(self, event: Event) -> str:
        return event.subject or ""

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "subscription": "not-there"}, self.connections()

    async def test_what_a_notification_says(self) -> None:
        """An object that is made, overwritten and deleted gives events with what Cloud Storage says of it."""
        chosen = {**self.options(), "events": ["created", "overwritten", "deleted"]}
        self.options = lambda: chosen  # type: ignore[method-assign]
        async with self.reading() as reader:
            for size in (5, 6):
                await self.bucket.put("in/a b+ü%.csv", body=b"x" * size)
                await reader.read(size - 4)
            with self.bucket.client() as client:
                await asyncio.to_thread(client.bucket(self.bucket.name).delete_blob, "in/a b+ü%.csv")
            events = await reader.read(3)
        assert {event.subject for event in events} == {"in/a b+ü%.csv"}
        assert {event.source for event in events} == {f"gs://{self.bucket.name}"}
        assert [event.data["size"] for event in events[:2]] == [5, 6]
        assert events[0].type == "windsock.object.created"
        assert events[2].type == "windsock.object.deleted"
        assert len({event.id for event in events}) == 3
