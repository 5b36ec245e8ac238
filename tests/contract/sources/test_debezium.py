"""Debezium over Kafka: the contract suite on a real broker, with change events in a topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event
from windsock.sources import make_source
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.kafka import Kafka
from windsock.testing.sources import (
    MessageContract,
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)

LIVE = Path(__file__).parents[2] / "corpora" / "debezium" / "postgres-live.jsonl"


@pytest.fixture(scope="module")
def kafka(serve: Callable[[str], Service]) -> Kafka:
    """The broker."""
    server = serve("kafka")
    assert isinstance(server, Kafka)
    return server


def change(number: int, **row: Any) -> bytes:
    """An insert into the table of orders, as a connector with schemas switched off writes it."""
    source = {"connector": "postgresql", "name": "srv", "db": "shop", "schema": "public", "table": "orders",
              "lsn": number, "txId": number, "ts_ms": 1_700_000_000_000}  # fmt: skip
    return json.dumps({"before": None, "after": {"id": number, **row}, "source": source, "op": "c"}).encode()


class TestDebezium(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """A topic of change events."""

    kind = "debezium"

    @pytest.fixture(autouse=True)
    def system(self, kafka: Kafka) -> Iterator[None]:
        self.kafka = kafka
        self.topic = f"srv.{uuid4()}"
        kafka.create(self.topic, partitions=2, max_message_bytes="2000000")
        self.numbers = count(1)
        with kafka.wire() as self.wire:
            yield

    def options(self) -> dict[str, Any]:
        return {"conn_id": "kafka", "topic": self.topic, "group": f"group-of-{self.topic}"}

    def connections(self) -> list[Connection]:
        return [self.kafka.wired_connection("kafka")]

    def identity(self, event: Event) -> str:
        return str(event.data["after"]["id"])

    async def produce(self, count: int) -> list[str]:
        return await self.produce_keyed([str(number) for number in range(count)])

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        producer = self.kafka.producer(**{"linger.ms": 5})
        made = []
        for key in keys:
            number = next(self.numbers)
            made.append(str(number))
            producer.produce(self.topic, change(number), key=json.dumps({"key": key}))
            producer.poll(0)
        producer.flush(30)
        return made

    async def produce_large(self, size: int) -> str:
        number = next(self.numbers)
        producer = self.kafka.producer(**{"message.max.bytes": 2_000_000})
        producer.produce(self.topic, change(number, note="x" * size), key=b'{"key":"large"}')
        producer.flush(30)
        return str(number)

    async def produce_malformed(self) -> bytes:
        self.kafka.send(self.topic, [b'{"op": "c", "source": "broken'])
        return b"broken"

    async def restart_server(self) -> None:
        self.kafka.restart()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [
            Connection(conn_id="kafka", conn_type="kafka", host=LOOPBACK, port=free_port())
        ]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.kafka.sasl_connection("kafka", password="wrong-horse")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "topic": "not-there"}, self.connections()


async def test_what_a_live_connector_sent(kafka: Kafka) -> None:
    """Real events, tombstones among them, replayed into their topics and read by pattern and filters."""
    prefix = f"live-{uuid4()}"
    messages = [json.loads(line) for line in LIVE.read_text().splitlines()]
    topics = {message["dest"]: message["dest"].replace("srv", prefix, 1) for message in messages}
    for topic in topics.values():
        kafka.create(topic)
    producer = kafka.producer()
    for message in messages:
        value = message["value"] and message["value"].encode()
        producer.produce(topics[message["dest"]], value, key=message["key"].encode())
    producer.flush(30)
    options = {
        "conn_id": "kafka",
        "pattern": f"{prefix}\\..*",
        "tables": ["public.orders"],
        "operations": ["create", "update", "delete"],
        "decimals": {"amount": 2},
        "tombstones": True,
    }
    source = make_source("debezium", options, fixed(kafka.connection("kafka")))
    await source.connect(None)
    reader = Reader(source)
    await reader.read(8)
    await source.close()
    types = [event.type.removeprefix("debezium.") for event in reader.events]
    assert types == ["create", "update", "delete", "tombstone", "create", "delete", "tombstone", "create"]
    assert [event.data["after"]["amount"] for event in reader.events[:2]] == ["99.50", "100.00"]
    assert reader.dead == []
