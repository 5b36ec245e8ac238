"""NATS JetStream: pull of 1000 and one ack for each message, as explicit acks ask for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.nats import Nats

__all__ = ["Bench"]

_BATCH = 1000


class Bench:
    """A NATS server with one stream at a time."""

    kind = "nats"

    def __init__(self, directory: Path) -> None:
        self._server = Nats(directory)
        self._server.start()
        self._number = 0

    def fresh(self) -> None:
        """Go on with an empty stream."""
        self._number += 1

    @property
    def stream(self) -> str:
        """The present stream's name."""
        return f"ORDERS-{self._number}"

    def options(self) -> dict[str, Any]:
        return {"conn_id": "bench", "stream": self.stream, "create": True}

    def connections(self) -> list[Connection]:
        return [self._server.connection("bench")]

    async def fill(self, count: int) -> None:
        """Publish so many messages."""
        client = await self._client()
        jetstream = client.jetstream(publish_async_max_pending=_BATCH)
        await jetstream.add_stream(name=self.stream, subjects=[f"{self.stream}.>"])
        for start in range(0, count, _BATCH):
            answers = [
                await jetstream.publish_async(
                    f"{self.stream}.new", json.dumps({"order": number, "note": "x" * 430}).encode()
                )
                for number in range(start, min(start + _BATCH, count))
            ]
            await asyncio.gather(*answers)
        await client.close()

    async def bare(self, count: int) -> None:
        """Read and ack them with nothing but the client."""
        client = await self._client()
        wished = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=20_000)
        consumer = await client.jetstream().pull_subscribe(
            f"{self.stream}.>", durable="bare", stream=self.stream, config=wished
        )
        while count > 0:
            messages = await consumer.fetch(_BATCH, timeout=5)
            for message in messages:
                await message.ack()
            count -= len(messages)
        await client.close()

    def close(self) -> None:
        """Stop the server."""
        self._server.stop()

    async def _client(self) -> Client:
        address = f"nats://{LOOPBACK}:{self._server.port}"
        return await nats.connect(address, user="windsock", password=self._server.password)
