"""Server-sent events over the published contract suite, and each feature, against a real server."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from contract.sources.http_server import TOKEN, Api, Reply
from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.testing.processes import free_port
from windsock.testing.sources import (
    MessageContract,
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


@pytest.fixture
def api() -> Iterator[Api]:
    """A fresh server, and nothing of it after the test."""
    api = Api()
    yield api
    api.stop()


def shop(port: int, password: str = TOKEN) -> Connection:
    return Connection(conn_id="shop", conn_type="http", host="127.0.0.1", port=port, password=password)


class TestStream(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """A stream whose server keeps its events and goes on behind the Last-Event-ID."""

    kind = "sse"

    @pytest.fixture(autouse=True)
    def system(self, api: Api) -> Iterator[None]:
        self.api = api
        with Wire("127.0.0.1", api.port) as wire:
            self.wire = wire
            yield

    def connections(self) -> Sequence[Connection]:
        return [shop(self.wire.port)]

    def options(self) -> dict[str, Any]:
        return {"conn_id": "shop", "endpoint": "stream", "start_id": "0"}

    async def produce(self, count: int) -> list[str]:
        names = [uuid.uuid4().hex for _ in range(count)]
        self.api.add(*({"name": name} for name in names))
        return names

    def identity(self, event: Event) -> str:
        return str(event.data["name"])

    async def produce_malformed(self) -> bytes:
        self.api.add({"raw": '{"name": "cut off'})
        return b"cut off"

    async def produce_large(self, size: int) -> str:
        name = uuid.uuid4().hex
        self.api.add({"name": name, "text": "x" * size})
        return name

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        names = [f"{key}-{uuid.uuid4().hex}" for key in keys]
        self.api.add(*({"name": name} for name in names))
        return names

    async def restart_server(self) -> None:
        self.api.stop()
        self.api.start()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [shop(free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [shop(self.wire.port, password="not-the-token")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "endpoint": "nowhere"}, list(self.connections())


@asynccontextmanager
async def reading(api: Api, cursor: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Reader]:
    """A stream of the server, open."""
    source = make_source("sse", {"conn_id": "shop", "endpoint": "stream", **options}, fixed(shop(api.port)))
    async with asyncio.timeout(30):
        await source.connect(cursor)
        try:
            yield Reader(source)
        finally:
            await source.close()


async def test_the_name_is_the_type_and_lines_are_joined(api: Api) -> None:
    """A named event has its name as type, several data lines are one text, and ids are the server's."""
    api.add({"event": "order.created", "raw": '{"total":\n12}'}, {"raw": '"plain"'})
    async with reading(api) as reader:
        first, second = await reader.read(2)
    assert (first.type, first.data, first.id) == ("order.created", {"total": 12}, "1")
    assert (second.type, second.data, second.id) == ("windsock.sse", "plain", "2")
    assert first.source == f"{api.url}/stream"


async def test_cloudevents_are_recognised(api: Api) -> None:
    """A CloudEvent in the data keeps its own id, source and type."""
    event = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.created", "data": {"a": 1}}
    api.add({"raw": json.dumps(event)})
    async with reading(api) as reader:
        [got] = await reader.read(1)
    assert (got.id, got.source, got.type, got.data) == ("e-1", "/shop", "order.created", {"a": 1})


async def test_only_the_wanted_names(api: Api) -> None:
    """Events of other names are passed over, and the position moves on with them."""
    api.add({"event": "noise", "raw": "1"}, {"event": "order", "raw": "2"}, {"event": "noise", "raw": "3"})
    async with reading(api, events=["order"]) as reader:
        assert [event.data for event in await reader.read(1)] == [2]
        await reader.until(lambda reader: reader.cursor() == {"id": "3"})


async def test_a_stream_that_ends_is_opened_again(api: Api) -> None:
    """When the server ends the stream it is asked for the rest, after the time that the server named."""
    api.add({"raw": "1"})
    api.stream_tail = b""
    async with reading(api, reconnect=300) as reader:
        waiting = asyncio.create_task(reader.read(2))
        while len(api.requests) < 3:
            await asyncio.sleep(0.01)
        api.add({"raw": "2"})
        assert [event.data for event in await waiting] == [1, 2]
    assert {request.headers.get("last-event-id") for request in api.requests} == {None, "1"}


async def test_events_without_an_id_of_their_own(api: Api) -> None:
    """They are counted from the last id, and in the same way when the server sends them again."""
    api.add({"raw": "1"})
    api.stream_tail = b"data: 2\n\ndata: 3\n\n"
    async with reading(api) as reader:
        events = list(await reader.read(3))
        await reader.read(5)
    assert [event.id for event in events] == ["1", "1/1", "1/2"]
    assert [event.id for event in reader.events[3:5]] == ["1/1", "1/2"]


async def test_an_event_that_is_too_large(api: Api) -> None:
    """It becomes a dead letter with its beginning, and the next one goes through."""
    api.add({"raw": '"' + "x" * 5000 + '"'}, {"raw": '"small"'})
    async with reading(api, max_body=1000) as reader:
        [event] = await reader.read(1)
    assert event.data == "small"
    [dead] = reader.dead
    assert "larger than 1000 bytes: raise max_body" in dead.reason
    assert len(dead.body) <= 1000


async def test_silence_is_a_broken_connection(api: Api) -> None:
    """A server that sends not even a keepalive is taken for gone."""
    with pytest.raises(SourceError, match=r"ReadTimeout\): check that it is there"):
        async with reading(api, silence=0.2) as reader:
            await reader.next()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(b"", 204, {}), "no event stream now .HTTP 204"),
        (Reply(b"[]", 200), "no event stream now .HTTP 200, application/json"),
        (Reply(b"", 429, {"Retry-After": "1"}), "no event stream now .HTTP 429"),
        (Reply(b"", 500, {}), "answered HTTP 500"),
    ],
)
async def test_something_else_than_a_stream(api: Api, reply: Reply, message: str) -> None:
    """An answer that is no event stream is an error with the remedy."""
    api.once = [reply]
    with pytest.raises(SourceError, match=message):
        async with reading(api):
            pass
