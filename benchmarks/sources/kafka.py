"""Kafka: one topic of two partitions on a real broker, read as a consumer group of one."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import msgspec

from windsock.connections import Connection
from windsock.testing.services.kafka import Kafka

__all__ = ["Bench"]

PARTITIONS = 2


class Bench:
    """A broker, and a new topic for each measurement."""

    kind = "kafka"

    def __init__(self, directory: Path) -> None:
        Kafka.install()
        self._server = Kafka(directory)
        self._server.start()
        self.fresh()

    def fresh(self) -> None:
        """Go on with a new topic, and so with a new group."""
        self._topic = f"bench-{uuid.uuid4().hex[:12]}"
        self._server.create(self._topic, PARTITIONS)

    def options(self) -> dict[str, Any]:
        return {"conn_id": "kafka_bench", "topic": self._topic}

    def connections(self) -> list[Connection]:
        return [self._server.connection("kafka_bench")]

    async def fill(self, count: int) -> None:
        await asyncio.to_thread(self._fill, count)

    async def bare(self, count: int) -> None:
        await asyncio.to_thread(self._bare, count)

    def close(self) -> None:
        self._server.forget()

    def _fill(self, count: int) -> None:
        producer = self._server.producer(**{"linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
        for number in range(count):
            producer.produce(self._topic, _body(number), f"customer-{number % 1000}")
            if number % 1000 == 0:
                producer.poll(0)
        if left := producer.flush(120):
            raise RuntimeError(f"{left} of {count} messages did not reach the broker")

    def _bare(self, count: int) -> None:
        """The client's fastest plain loop: batches of 1000, their offsets committed without waiting."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self._server.port}",
                "group.id": f"bare-{uuid.uuid4().hex}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._topic])
        read = 0
        try:
            while read < count:
                messages = consumer.consume(min(1000, count - read), 1.0)
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(str(message.error()))
                    message.value()
                read += len(messages)
                if messages:
                    consumer.commit(asynchronous=True)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()


def _body(number: int) -> bytes:
    """A message of some 460 bytes."""
    return msgspec.json.encode(
        {
            "order_id": f"order-{number:012}",
            "customer": {"id": number % 1000, "name": "Ada Lovelace", "country": "GB", "tier": "gold"},
            "lines": [
                {"sku": f"sku-{number % 97:05}", "count": 1 + number % 5, "price": 12.5, "tax": 0.2},
                {"sku": f"sku-{number % 89:05}", "count": 1 + number % 3, "price": 7.25, "tax": 0.2},
            ],
            "total": 12.5 + number % 100,
            "currency": "EUR",
            "placed_at": "2026-01-31T12:30:00.123456Z",
            "shipping": {"street": "12 Analytical Way", "city": "London", "code": "N1 7AA", "floor": 3},
            "note": "Leave it with the neighbour at number 14 if nobody opens.",
        }
    )
