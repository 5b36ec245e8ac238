"""Azure storage queues over Azurite."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from windsock.connections import Connection
from windsock.events import Event
from windsock.sources._azure import service
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import Service
from windsock.testing.services.azurite import KEY, Azurite
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

PARALLEL = 32
WRONG_KEY = "bm90IHRoZSBrZXk="


class TestAzureQueue(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """The whole contract."""

    kind = "azure_queue"
    patience = 600.0
    burst = 2_000  # Azurite looks through all its messages for each one that it hands out
    large = 60_000  # of the 64 KiB that a message of a storage queue may have

    @pytest.fixture(autouse=True)
    async def system(self, serve: Callable[[str], Service]) -> AsyncIterator[None]:
        azurite = serve("azurite")
        assert isinstance(azurite, Azurite)
        self.azurite = azurite
        self.name = f"windsock-{uuid.uuid4().hex[:12]}"
        with Wire(LOOPBACK, azurite.queue_port) as self.wire:
            async with self.queue() as queue:
                await queue.create_queue()
            yield

    @asynccontextmanager
    async def queue(self) -> AsyncIterator[Any]:
        """A client that does not go through the wire."""
        async with AsyncExitStack() as stack:
            client = await service("queue", self.azurite.connection("azure"), stack)
            yield client.get_queue_client(self.name)

    def options(self) -> dict[str, Any]:
        return {"conn_id": "azure", "queue": self.name, "visibility": 5, "interval": 0.1}

    def at(self, key: str = KEY) -> Connection:
        return self.azurite.connection_at(
            "azure", blob_port=self.azurite.port, queue_port=self.wire.port, key=key
        )

    def connections(self) -> Sequence[Connection]:
        return [self.at()]

    async def send(self, bodies: Sequence[str]) -> list[str]:
        """Messages, several at a time; their ids."""
        ids = [""] * len(bodies)
        waiting = iter(enumerate(bodies))

        async def work(queue: Any) -> None:
            for place, body in waiting:
                ids[place] = (await queue.send_message(body)).id

        async with self.queue() as queue:
            await asyncio.gather(*(work(queue) for _ in range(min(PARALLEL, len(bodies)))))
        return ids

    async def produce(self, count: int) -> list[str]:
        return await self.send([json.dumps({"n": n}) for n in range(count)])

    async def produce_malformed(self) -> bytes:
        await self.send(['{"n": '])
        return b'{"n": '

    async def produce_large(self, size: int) -> str:
        (made,) = await self.send([json.dumps("x" * size)])
        return made

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.send(["{}"] * len(keys))

    async def restart_server(self) -> None:
        # Azurite writes what it knows to disk every few seconds, and when it ends in order.
        await asyncio.to_thread(self.azurite.stop)
        await asyncio.to_thread(self.azurite.start)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        self.wire.cut()
        return self.options(), self.connections()

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.at(WRONG_KEY)]

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "queue": "not-there"}, self.connections()

    async def test_an_event_has_what_the_message_says(self) -> None:
        """Id, time and how often it was handed out are the message's."""
        (made,) = await self.send(['{"n": 1}'])
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert event.id == made
        assert event.data == {"n": 1}
        assert event.source.endswith(self.name)
        assert event.time is not None
        assert event.headers["azure.dequeue_count"] == "1"

    async def test_a_held_message_stays_hidden(self) -> None:
        """What waits for its commit longer than its visibility is handed out to nobody else."""
        short = {**self.options(), "visibility": 2}
        self.options = lambda: short  # type: ignore[method-assign]
        await self.produce(3)
        async with self.reading() as reader:
            held = [await reader.next()]
            while len(reader.events) < 3:
                held.append(await reader.next())
            first = set(self._receipts(reader))
            async with asyncio.timeout(30):
                while first & set(self._receipts(reader)):
                    await asyncio.sleep(0.05)  # until every one was extended
            again = asyncio.create_task(reader.next())
            done, _ = await asyncio.wait({again}, timeout=3)
            assert not done
            for delivery in held:
                await delivery.ack()
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)
        async with self.queue() as queue:
            assert (await queue.get_queue_properties()).approximate_message_count == 0

    def _receipts(self, reader: Any) -> list[str]:
        return [held.receipt for held in reader.source._held.values()]

    async def test_a_message_in_base64(self) -> None:
        """What Azure's clients encode is decoded."""
        await self.send(["eyJuIjogMX0="])
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert event.data == {"n": 1}

    def identity(self, event: Event) -> str:
        return event.id
