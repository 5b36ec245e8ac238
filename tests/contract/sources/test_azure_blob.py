"""Azure Blob by listing, and by Event Grid's messages in a storage queue, over Azurite."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event
from windsock.sources import make_source
from windsock.sources._azure import service
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import Service
from windsock.testing.services.azurite import ACCOUNT, KEY, Azurite
from windsock.testing.sources import (
    MalformedInput,
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    SourceHooks,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

PARALLEL = 32
WRONG_KEY = base64.b64encode(b"not the key").decode()


class Storage:
    """A container and a queue of their own, and wires to the server that can be cut."""

    def __init__(self, azurite: Azurite, blob_wire: Wire, queue_wire: Wire) -> None:
        self.azurite = azurite
        self.wires = (blob_wire, queue_wire)
        self.name = f"windsock-{uuid.uuid4().hex[:12]}"
        self.numbers = count()

    def connection(self, key: str = KEY) -> Connection:
        """To the server, through the wires."""
        blob, queue = self.wires
        return self.azurite.connection_at("azure", blob_port=blob.port, queue_port=queue.port, key=key)

    @asynccontextmanager
    async def container(self) -> AsyncIterator[Any]:
        """A client that does not go through the wires."""
        async with AsyncExitStack() as stack:
            client = await service("blob", self.azurite.connection("azure"), stack)
            yield client.get_container_client(self.name)

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[Any]:
        """A client that does not go through the wires."""
        async with AsyncExitStack() as stack:
            client = await service("queue", self.azurite.connection("azure"), stack)
            yield client.get_queue_client(self.name)

    async def put(self, *keys: str, body: bytes = b"content") -> list[str]:
        """Blobs of these names, several at a time and never far from their order."""
        async with self.container() as container:
            for at in range(0, len(keys), PARALLEL):
                together = keys[at : at + PARALLEL]
                await asyncio.gather(*(container.upload_blob(key, body, overwrite=True) for key in together))
        return list(keys)

    async def send(self, *bodies: str) -> None:
        """Messages, several at a time."""
        waiting = iter(bodies)

        async def work(queue: Any) -> None:
            for body in waiting:
                await queue.send_message(body)

        async with self.queue() as queue:
            await asyncio.gather(*(work(queue) for _ in range(min(PARALLEL, len(bodies)))))


@pytest.fixture
async def storage(serve: Callable[[str], Service]) -> AsyncIterator[Storage]:
    """A new container and a new queue."""
    azurite = serve("azurite")
    assert isinstance(azurite, Azurite)
    with Wire(LOOPBACK, azurite.port) as blob_wire, Wire(LOOPBACK, azurite.queue_port) as queue_wire:
        made = Storage(azurite, blob_wire, queue_wire)
        async with made.container() as container, made.queue() as queue:
            await container.create_container()
            await queue.create_queue()
        yield made


def grid_event(container: str, key: str, *, name: str = "BlobCreated", **data: Any) -> dict[str, Any]:
    """What Event Grid says of a blob, in its own schema."""
    account = f"http://{LOOPBACK}/{ACCOUNT}"
    return {
        "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/windsock",
        "subject": f"/blobServices/default/containers/{container}/blobs/{key}",
        "eventType": f"Microsoft.Storage.{name}",
        "eventTime": "2026-11-15T12:00:00.1234567Z",
        "id": str(uuid.uuid4()),
        "data": {"eTag": "0x8D4", "contentLength": 7, "url": f"{account}/{container}/{key}", **data},
        "dataVersion": "",
        "metadataVersion": "1",
    }


def cloud_event(container: str, key: str, **data: Any) -> dict[str, Any]:
    """The same as a CloudEvent."""
    plain = grid_event(container, key, **data)
    return {
        "specversion": "1.0",
        "id": plain["id"],
        "source": plain["topic"],
        "type": plain["eventType"],
        "subject": plain["subject"],
        "time": plain["eventTime"],
        "data": plain["data"],
    }


def in_base64(document: Any) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


class Azure(SourceHooks):
    """What the two ways have in common."""

    kind = "azure_blob"
    patience = 600.0

    @pytest.fixture(autouse=True)
    def system(self, storage: Storage) -> None:
        self.storage = storage

    def connections(self) -> Sequence[Connection]:
        return [self.storage.connection()]

    def identity(self, event: Event) -> str:
        return event.subject or ""

    async def restart_server(self) -> None:
        # Azurite writes what it knows to disk every few seconds, and when it ends in order.
        await asyncio.to_thread(self.storage.azurite.stop)
        await asyncio.to_thread(self.storage.azurite.start)

    async def cut(self) -> None:
        for wire in self.storage.wires:
            wire.cut()

    async def mend(self) -> None:
        for wire in self.storage.wires:
            wire.mend()

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        for wire in self.storage.wires:
            wire.cut()
        return self.options(), self.connections()

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.storage.connection(WRONG_KEY)]


class TestListing(
    Azure, SourceContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing
):
    """A container that is listed, by time."""

    more: dict[str, Any] = {}

    def options(self) -> dict[str, Any]:
        return {
            "conn_id": "azure",
            "container": self.storage.name,
            "prefix": "in/",
            "interval": 0.2,
            **self.more,
        }

    async def produce(self, count: int) -> list[str]:
        return await self.storage.put(*[f"in/{next(self.storage.numbers):06}" for _ in range(count)])

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "container": "not-there"}, self.connections()


class TestListingByKey(TestListing):
    """A container that is listed, by key; the whole suite with a smaller burst."""

    more = {"order": "key"}
    burst = 2_000


class TestNotifications(
    Azure,
    SourceContract,
    MalformedInput,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
    Missing,
):
    """Event Grid's messages out of a storage queue."""

    burst = 2_000  # Azurite looks through all its messages for each one that it hands out

    def options(self) -> dict[str, Any]:
        return {
            "conn_id": "azure",
            "mode": "notifications",
            "queue": self.storage.name,
            "visibility": 5,
            "poll": 0.1,
        }

    async def produce(self, count: int) -> list[str]:
        keys = [f"in/{next(self.storage.numbers):06}" for _ in range(count)]
        await self.storage.send(*(in_base64(grid_event("shop", key)) for key in keys))
        return keys

    async def produce_malformed(self) -> bytes:
        await self.storage.send(in_base64({"subject": "/blobServices/default/containers/c/blobs/broken"}))
        return b"broken"

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "queue": "not-there"}, self.connections()


@asynccontextmanager
async def reading(storage: Storage, cursor: Any = None, **options: Any) -> AsyncIterator[Reader]:
    """A source on the storage, connected inside."""
    source = make_source("azure_blob", {"conn_id": "azure", **options}, fixed(storage.connection()))
    async with asyncio.timeout(60):
        await source.connect(cursor)
        try:
            yield Reader(source)
        finally:
            await source.close()


async def test_a_listed_blob(storage: Storage) -> None:
    """An event has what the listing says of the blob."""
    await storage.put("in/a b+ü%.csv", body=b"12345")
    async with reading(storage, container=storage.name, prefix="in/", pattern="*.csv") as reader:
        (event,) = await reader.read(1)
    assert event.type == "windsock.object.created"
    assert event.source.endswith(f"/{ACCOUNT}/{storage.name}")
    assert event.subject == event.key == event.data["key"] == "in/a b+ü%.csv"
    assert event.data["uri"] == f"{event.source}/in/a%20b%2B%C3%BC%25.csv"
    assert event.data["container"] == storage.name
    assert event.data["size"] == 5
    assert event.data["etag"]
    assert event.time is not None
    assert event.data["last_modified"] == event.time.isoformat()


async def test_a_listed_blob_is_overwritten(storage: Storage) -> None:
    """New content under an old name is news, also if it is the same content within the same second."""
    await storage.put("a")
    async with reading(storage, container=storage.name, interval=0.1) as reader:
        await reader.read(1)
        await storage.put("a")
        first, second = await reader.read(2)
    assert [first.type, second.type] == ["windsock.object.created", "windsock.object.overwritten"]
    assert first.id != second.id


async def test_a_directory_of_a_data_lake(storage: Storage) -> None:
    """A blob that only marks a directory is left out."""
    async with storage.container() as container:
        await container.upload_blob("folder", b"", metadata={"hdi_isfolder": "true"})
    await storage.put("folder/a")
    async with reading(storage, container=storage.name) as reader:
        (event,) = await reader.read(1)
    assert event.subject == "folder/a"


@pytest.mark.parametrize("schema", [grid_event, cloud_event])
@pytest.mark.parametrize("encode", [in_base64, json.dumps])
@pytest.mark.parametrize("several", [False, True])
async def test_each_form_of_a_notification(
    storage: Storage, schema: Callable[..., dict[str, Any]], encode: Callable[[Any], str], several: bool
) -> None:
    """Both schemas, in base64 and plain, alone and in a list, give the same event."""
    event = schema("shop", "in/orders.csv", contentType="text/csv", sequencer="01")
    await storage.send(encode([event] if several else event))
    async with reading(storage, mode="notifications", queue=storage.name, poll=0.1) as reader:
        (got,) = await reader.read(1)
    assert reader.dead == []
    assert got.id == "in/orders.csv#0x8D4-01"
    assert got.type == "windsock.object.created"
    assert got.source == f"http://{LOOPBACK}/{ACCOUNT}/shop"
    assert got.subject == "in/orders.csv"
    assert got.data["container"] == "shop"
    assert got.data["size"] == 7
    assert got.data["contentType"] == "text/csv"
    assert got.data["event"] == "BlobCreated"


async def test_filters_of_notifications(storage: Storage) -> None:
    """Container, prefix, pattern and kind of change leave out what is not wanted, and delete its message."""
    events = [
        grid_event("shop", "in/a.csv"),
        grid_event("shop", "in/a.csv", name="BlobDeleted"),
        grid_event("shop", "in/a.log"),
        grid_event("shop", "out/a.csv"),
        grid_event("other", "in/a.csv"),
    ]
    await storage.send(*map(in_base64, events))
    chosen = {"container": "shop", "prefix": "in/", "pattern": "*.csv", "poll": 0.1}
    async with reading(storage, mode="notifications", queue=storage.name, **chosen) as reader:
        await reader.read(1)
        while await reader.source.lag():
            await asyncio.sleep(0.05)
            await (await reader.next()).ack()
    assert [event.subject for event in reader.events] == ["in/a.csv"]
