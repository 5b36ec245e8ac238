"""RabbitMQ: a classic queue with persistent messages, read and acknowledged."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection
from pamqp.commands import Basic

from windsock.connections import Connection
from windsock.testing.services.rabbitmq import RabbitMQ

PREFETCH = 2000
"""The source's default, for both sides."""


class Bench:
    """One server, a fresh queue for each measurement."""

    kind = "rabbitmq"

    def __init__(self, directory: Path) -> None:
        RabbitMQ.install()
        self._server = RabbitMQ(directory)
        self._server.start()
        self.fresh()

    def fresh(self) -> None:
        """Go on with a new queue."""
        self._queue = f"bench-{uuid.uuid4()}"

    def options(self) -> dict[str, Any]:
        return {"conn_id": "bench", "queue": self._queue, "declare": True}

    def connections(self) -> list[Connection]:
        return [self._server.connection("bench")]

    async def fill(self, count: int) -> None:
        """Publish without waiting for each confirmation, and return when all are in the queue."""
        async with await self._connect() as connection, connection.channel(publisher_confirms=False) as outer:
            queue = await self._declare(outer)
            channel = await outer.get_underlay_channel()
            for number in range(count):
                properties = Basic.Properties(
                    message_id=str(uuid.uuid4()), content_type="application/json", delivery_mode=2
                )
                await channel.basic_publish(
                    _body(number), routing_key=self._queue, properties=properties, wait=False
                )
            while (await queue.declare()).message_count != count:
                pass

    async def bare(self, count: int) -> None:
        """The client library's iterator, one acknowledgement for many messages."""
        async with await self._connect() as connection, connection.channel() as channel:
            await channel.set_qos(PREFETCH)
            queue = await self._declare(channel)
            done = 0
            async with queue.iterator() as messages:
                async for message in messages:
                    done += 1
                    if done % (PREFETCH // 4) == 0 or done == count:
                        await message.ack(multiple=True)
                    if done == count:
                        return

    def close(self) -> None:
        self._server.stop()

    async def _connect(self) -> AbstractConnection:
        at = self._server.connection("bench")
        return await aio_pika.connect(
            host=at.host, port=at.port, login=at.login, password=at.password, virtualhost=at.schema
        )

    async def _declare(self, channel: Any) -> Any:
        return await channel.declare_queue(self._queue, durable=True, arguments={"x-queue-type": "classic"})


def _body(number: int) -> bytes:
    """About 460 bytes."""
    order = {"order": number, "total": number % 997 / 10, "region": "north", "text": "x" * 390}
    return json.dumps(order).encode()
