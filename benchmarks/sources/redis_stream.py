"""Redis streams: XREADGROUP of 1000 and one XACK for each batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from redis.asyncio import Redis as Client

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.redis import Redis

__all__ = ["Bench"]

_BATCH = 1000


class Bench:
    """A Redis 6.2 server with one stream at a time."""

    kind = "redis_stream"

    def __init__(self, directory: Path) -> None:
        self._server = Redis(directory)
        self._server.start()
        self._number = 0

    def fresh(self) -> None:
        """Go on with an empty stream."""
        self._number += 1

    @property
    def stream(self) -> str:
        """The present stream's key."""
        return f"orders-{self._number}"

    def options(self) -> dict[str, Any]:
        return {"conn_id": "bench", "stream": self.stream, "field": "data"}

    def connections(self) -> list[Connection]:
        return [self._server.connection("bench")]

    async def fill(self, count: int) -> None:
        """Add so many entries."""
        async with self._client() as client:
            for start in range(0, count, _BATCH):
                async with client.pipeline(transaction=False) as pipeline:
                    for number in range(start, min(start + _BATCH, count)):
                        order = {"order": number, "note": "x" * 430}
                        pipeline.xadd(self.stream, {"data": json.dumps(order)})
                    await pipeline.execute()

    async def bare(self, count: int) -> None:
        """Read and ack them with nothing but the client."""
        async with self._client() as client:
            await client.xgroup_create(self.stream, "bare", "0")
            while count > 0:
                found = await client.xreadgroup("bare", "bare", {self.stream: ">"}, count=_BATCH, block=1000)
                for stream, entries in found:
                    await client.xack(stream, "bare", *(entry for entry, _ in entries))
                    count -= len(entries)

    def close(self) -> None:
        """Stop the server."""
        self._server.stop()

    def _client(self) -> Client:
        return Client(host=LOOPBACK, port=self._server.port, password=self._server.password, protocol=2)
