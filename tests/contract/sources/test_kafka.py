"""Kafka, over a real broker and a real schema registry."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import _kafka_member
from windsock.sources.kafka import KafkaConfig, KafkaSource
from windsock.testing.processes import free_port
from windsock.testing.services import Service
from windsock.testing.services.kafka import Kafka
from windsock.testing.services.schema_registry import SchemaRegistry
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

CONN = "kafka_test"
QUICK = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}
"""A dead reader is noticed within a test's patience."""


@pytest.fixture(scope="module")
def kafka(serve: Callable[[str], Service]) -> Kafka:
    server = serve("kafka")
    assert isinstance(server, Kafka)
    return server


@pytest.fixture(scope="module")
def wire(kafka: Kafka) -> Iterator[Wire]:
    with kafka.wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def registry(serve: Callable[[str], Service]) -> SchemaRegistry:
    server = serve("schema_registry")
    assert isinstance(server, SchemaRegistry)
    return server


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A new topic with two partitions."""
    name = f"orders-{uuid.uuid4().hex[:12]}"
    kafka.create(name, 2)
    return name


def quickly(connection: Connection, **extra: Any) -> Connection:
    """The Connection with short times and more extras, whose underscores stand for dots."""
    dotted = {name.replace("_", "."): value for name, value in extra.items()}
    return Connection(
        conn_id=connection.conn_id,
        conn_type="kafka",
        host=connection.host,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        extra={**QUICK, **connection.extra, **dotted},
    )


@asynccontextmanager
async def reading(connection: Connection, *others: Connection, **options: Any) -> Any:
    """A reader of a new source on this Connection."""
    async with asyncio.timeout(60):
        source = KafkaSource(KafkaConfig(conn_id=CONN, **options))
        source.connections = fixed(connection, *others)
        try:
            await source.connect(None)
            yield Reader(source)
        finally:
            await source.close()


@pytest.fixture
def connection(kafka: Kafka) -> Connection:
    return quickly(kafka.connection(CONN))


class TestKafka(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """Kafka topics, read in a consumer group."""

    kind = "kafka"

    @pytest.fixture(autouse=True)
    def system(self, kafka: Kafka, wire: Wire, topic: str) -> None:
        self.kafka, self.wire, self.topic = kafka, wire, topic
        self.numbers = count()

    def options(self) -> dict[str, Any]:
        return {"conn_id": CONN, "topic": self.topic}

    def connections(self) -> Sequence[Connection]:
        return [quickly(self.kafka.wired_connection(CONN))]

    async def produce(self, count: int) -> list[str]:
        return await self._send([{"n": next(self.numbers)} for _ in range(count)])

    async def produce_large(self, size: int) -> str:
        return (await self._send([{"n": next(self.numbers), "filling": "x" * size}]))[0]

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self._send([{"n": next(self.numbers)} for _ in keys], keys)

    async def produce_malformed(self) -> bytes:
        body = b'{"n": 1'
        await asyncio.to_thread(self.kafka.send, self.topic, [body])
        return body

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.kafka.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [Connection(conn_id=CONN, conn_type="kafka", host="127.0.0.1", port=1)]

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [self.kafka.sasl_connection(CONN, password="not-the-one")]

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "topic": "not-there"}, self.connections()

    def identity(self, event: Event) -> str:
        return str(event.data["n"])

    async def _send(self, bodies: list[dict[str, Any]], keys: Sequence[str] = ()) -> list[str]:
        def send() -> None:
            producer = self.kafka.producer()
            for number, body in enumerate(bodies):
                producer.produce(self.topic, json.dumps(body), keys[number] if keys else None)
                producer.poll(0)
            assert producer.flush(30) == 0

        await asyncio.to_thread(send)
        return [str(body["n"]) for body in bodies]


class TestRecords:
    """What becomes of a record."""

    async def test_a_record_is_an_event(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """Key, headers, timestamp, topic, partition and offset are all in the event."""
        at = dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.UTC)
        kafka.send(
            topic,
            [b'{"total": 12}'],
            key="order-7",
            partition=1,
            headers=[("trace", b"a"), ("trace", b"b"), ("none", None), ("traceparent", b"00-1-2-01")],
            timestamp=int(at.timestamp() * 1000),
        )
        async with reading(connection, topic=topic, type="order.created") as reader:
            (event,) = await reader.read(1)
        assert event.id == f"{topic}/1/0"
        assert event.source == f"kafka://127.0.0.1/{topic}"
        assert (event.type, event.data, event.key, event.time) == (
            "order.created",
            {"total": 12},
            "order-7",
            at,
        )
        assert event.headers["trace"] == "a, b"
        assert event.traceparent == "00-1-2-01"

    async def test_a_tombstone(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """A record without a value is an event without data that says so; an empty value is none."""
        kafka.send(topic, [None, b""], key="order-7")
        async with reading(connection, topic=topic) as reader:
            tombstone, empty = await reader.read(2)
        assert (tombstone.type, tombstone.data, tombstone.key) == (
            "windsock.kafka.tombstone",
            None,
            "order-7",
        )
        assert tombstone.extensions == {"tombstone": True}
        assert (empty.type, empty.extensions) == ("windsock.kafka", {})

    async def test_cloud_events(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """CloudEvents in binary and in structured mode keep their own id, source and type."""
        attributes = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.created"}
        headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
        kafka.send(
            topic, [b'{"total": 1}'], partition=0, headers=[*headers, ("content-type", b"application/json")]
        )
        structured = json.dumps({**attributes, "id": "e-2", "data": {"total": 2}}).encode()
        kafka.send(
            topic, [structured], partition=0, headers=[("content-type", b"application/cloudevents+json")]
        )
        async with reading(connection, topic=topic) as reader:
            binary, structured_event = await reader.read(2)
        assert (binary.id, binary.source, binary.type) == ("e-1", "/shop", "order.created")
        assert (binary.data, structured_event.data) == ({"total": 1}, {"total": 2})
        assert structured_event.id == "e-2"

    async def test_aborted_transactions_are_not_read(
        self, kafka: Kafka, topic: str, connection: Connection
    ) -> None:
        """What a transaction aborted is left out, what it committed comes, and the lag still falls to 0."""
        producer = kafka.producer(**{"transactional.id": topic})
        producer.init_transactions(30)
        for value, commit in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            producer.flush(30)
            producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        async with reading(connection, topic=topic) as reader:
            events = list(await reader.read(2))
            while await reader.source.lag():
                await asyncio.sleep(0.02)
        async with reading(connection, topic=topic, read_committed=False, group="all") as reader:
            everything = await reader.read(4)
        assert [event.data for event in events] == [1, 3]
        assert [event.data for event in everything] == [1, 2, 3, 4]


class TestSubscription:
    """What is read, and where it begins."""

    async def test_several_topics(self, kafka: Kafka, connection: Connection) -> None:
        """Topics that are named one by one are all read."""
        names = [f"list-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        for name in names:
            kafka.create(name)
            kafka.send(name, [b"1"])
        async with reading(connection, topics=tuple(names)) as reader:
            events = await reader.read(2)
        assert {event.source.rpartition("/")[2] for event in events} == set(names)

    async def test_a_pattern_finds_new_topics(self, kafka: Kafka, connection: Connection) -> None:
        """A pattern fits whole names, and a topic that is made later is read from its beginning."""
        prefix = f"p{uuid.uuid4().hex[:8]}"
        for name in (f"{prefix}.a", f"x{prefix}.a", f"{prefix}.ab"):
            kafka.create(name)
            kafka.send(name, [b"1"])
        quick = quickly(connection, topic_metadata_refresh_interval_ms=200)
        async with reading(quick, pattern=rf"{prefix}\.[a-z]", start="latest") as reader:
            waiting = asyncio.create_task(reader.read(2))
            kafka.create(f"{prefix}.b")
            kafka.send(f"{prefix}.b", [b"2"])
            kafka.send(f"{prefix}.a", [b"3"])
            events = await waiting
        assert sorted(event.data for event in events) == [2, 3]

    async def test_latest_stays_where_it_was(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """'latest' is the moment of the first connect: what comes before the first ack is not skipped."""
        kafka.send(topic, [b"1"])
        async with reading(connection, topic=topic, start="latest"):
            pass
        kafka.send(topic, [b"2"])
        async with reading(connection, topic=topic, start="latest") as reader:
            (event,) = await reader.read(1)
        assert event.data == 2

    async def test_starts_at_a_time(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """A time begins with the first record from then on, and with the next one where there is none."""
        noon = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
        for hours in (-1, 0, 1):
            at = noon + dt.timedelta(hours=hours)
            kafka.send(topic, [b"%d" % hours], partition=0, timestamp=int(at.timestamp() * 1000))
        kafka.send(topic, [b"8"], partition=1, timestamp=int(noon.timestamp() * 1000) - 1)
        async with reading(connection, topic=topic, start=noon.isoformat()) as reader:
            await reader.read(2)
            kafka.send(topic, [b"9"], partition=1, timestamp=int(noon.timestamp() * 1000) - 1)
            events = await reader.read(3)
        assert [event.data for event in events] == [0, 1, 9]


class TestGroup:
    """How readers share a group."""

    async def test_a_late_ack_after_a_rebalance(
        self, kafka: Kafka, topic: str, connection: Connection
    ) -> None:
        """A partition that went to another reader is not committed by us any more, and that one reads it."""
        kafka.send(topic, [b"1"], partition=0)
        kafka.send(topic, [b"2"], partition=1)
        async with reading(connection, topic=topic, group=topic) as first:
            await first.read(2, ack=False)
            async with reading(connection, topic=topic, group=topic) as second:
                (moved,) = await second.read(1, ack=False)
                for delivery in first.deliveries:
                    await delivery.ack()
            await first.until(lambda reader: len(reader.events) > 2, ack=False)
            again = first.events[2]
        assert again.id == moved.id

    async def test_a_static_member_comes_back_at_once(
        self, kafka: Kafka, topic: str, connection: Connection
    ) -> None:
        """A reader with an instance name is the same member after a restart: nobody is rebalanced."""
        kafka.send(topic, [b"1"], partition=0)
        slow = quickly(connection, session_timeout_ms=45_000)
        async with reading(slow, topic=topic, group=topic, instance="one") as reader:
            await reader.read(1)
            before = await asyncio.to_thread(_members, kafka, topic)
        kafka.send(topic, [b"2"], partition=0)
        async with reading(slow, topic=topic, group=topic, instance="one") as reader:
            (event,) = await reader.read(1)
            after = await asyncio.to_thread(_members, kafka, topic)
        assert event.data == 2
        assert before == after == {"one": {0, 1}}

    async def test_a_second_reader_under_one_instance_name(
        self, kafka: Kafka, topic: str, connection: Connection
    ) -> None:
        """Two readers under one instance name: the newer has the place, the older says why it ended."""
        async with reading(connection, topic=topic, group=topic, instance="one") as first:
            waiting = asyncio.create_task(first.next())
            while not await first.source.partition_lag():
                await asyncio.sleep(0.02)
            async with reading(connection, topic=topic, group=topic, instance="one") as second:
                while not await second.source.partition_lag():
                    await asyncio.sleep(0.02)
                with pytest.raises(SourceError, match=r"gave our place to another reader.*`instance`"):
                    await waiting

    async def test_lag_per_partition(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """The lag is known for each partition, before and after the acks."""
        kafka.send(topic, [b"1"] * 3, partition=0)
        kafka.send(topic, [b"1"] * 2, partition=1)
        async with reading(connection, topic=topic) as reader:
            while await reader.source.partition_lag() != {f"{topic}/0": 3, f"{topic}/1": 2}:
                await asyncio.sleep(0.02)
            await reader.read(5)
            assert await reader.source.partition_lag() == {f"{topic}/0": 0, f"{topic}/1": 0}

    async def test_stays_a_member_while_nobody_reads(
        self, kafka: Kafka, topic: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reader that stands still for longer than max.poll.interval.ms keeps its place; one that does not
        poll at all loses it."""
        monkeypatch.setattr(_kafka_member, "_PATIENCE", 0.1)
        kafka.send(topic, [b"%d" % number for number in range(5000)], partition=0)
        short = quickly(connection, max_poll_interval_ms=2000)
        async with reading(short, topic=topic, group=topic) as reader:
            await reader.next()
            before = await asyncio.to_thread(_members, kafka, topic)
            await _standing_still(reader)
            await asyncio.to_thread(_lose_a_place, kafka, topic)
            after = await asyncio.to_thread(_members, kafka, topic)
            kafka.send(topic, [b"5000"], partition=0)
            while await reader.source.lag() != 5001:
                await asyncio.sleep(0.02)
            await reader.deliveries[0].ack()
            events = await reader.read(5001)
        assert [event.data for event in events] == list(range(5001))
        assert list(before) == list(after)

    async def test_shares_with_a_second_reader_while_nobody_reads(
        self, kafka: Kafka, topic: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reader that stands still does not hold up the group: another one joins and gets a partition."""
        monkeypatch.setattr(_kafka_member, "_PATIENCE", 0.1)
        for partition in (0, 1):
            kafka.send(topic, [b"%d" % number for number in range(5000)], partition=partition)
        async with reading(connection, topic=topic, group=topic) as first:
            await first.next()
            await _standing_still(first)
            async with reading(connection, topic=topic, group=topic) as second:
                await second.read(1, ack=False)
                shared = await asyncio.to_thread(_members, kafka, topic)
        assert sorted(map(len, shared.values())) == [1, 1]


class TestAccess:
    """Who may read."""

    async def test_a_login_over_tls(self, kafka: Kafka, topic: str) -> None:
        """With a login the connection is TLS by default, and the broker's certificate is checked."""
        kafka.send(topic, [b"1"])
        async with reading(quickly(kafka.tls_connection(CONN)), topic=topic) as reader:
            await reader.read(1)
        trusted = kafka.tls_connection(CONN)
        strange = {name: value for name, value in trusted.extra.items() if name != "ssl.ca.location"}
        with pytest.raises(SourceError, match=r"certificate.*ssl\.ca\.location"):
            async with reading(msgspec.structs.replace(trusted, extra=strange), topic=topic):
                pass

    async def test_airflows_own_connection(self, kafka: Kafka, topic: str) -> None:
        """A Connection as Airflow's provider has it, with everything in the extra, works as it is."""
        kafka.send(topic, [b"1"])
        extra = {
            "bootstrap.servers": f"127.0.0.1:{kafka.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": kafka.user,
            "sasl.password": kafka.password,
            "group.id": f"airflow-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "true",
            "error_cb": "somebodys.module.callback",
        }
        async with reading(Connection(conn_id=CONN, conn_type="kafka", extra=extra), topic=topic) as reader:
            await reader.read(1)
            members = await asyncio.to_thread(_members, kafka, f"airflow-{topic}")
        assert list(members.values()) == [{0, 1}]

    async def test_a_setting_that_does_not_exist(self, kafka: Kafka, topic: str) -> None:
        """A misspelt setting is an error that names it and the Connection."""
        wrong = quickly(kafka.connection(CONN), sesion_timeout_ms=1)
        with pytest.raises(SourceError, match=r"sesion\.timeout\.ms.*kafka_test"):
            async with reading(wrong, topic=topic):
                pass


PROTO = """
syntax = "proto3";
package shop;
import "common.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Ignored { string nothing = 1; }
message Order {
  enum State { OPEN = 0; PAID = 1; }
  message Line { string sku = 1; uint64 count = 2; }
  int64 id = 1;
  repeated Line lines = 2;
  map<string, Money> prices = 3;
  State state = 4;
  google.protobuf.Timestamp at = 5;
  optional string note = 6;
  google.protobuf.Int64Value weight = 7;
  double rate = 8;
  oneof payment { string card = 9; string cash = 10; }
}
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'


class TestSchemaRegistry:
    """Confluent's wire format, over a real registry."""

    @pytest.fixture
    def known(self, connection: Connection, registry: SchemaRegistry) -> Connection:
        """The Connection with the registry in its extras."""
        return quickly(connection, schema_registry_url=registry.url)

    async def test_avro(self, kafka: Kafka, registry: SchemaRegistry, topic: str, known: Connection) -> None:
        """An Avro value is decoded with its logical types and references; its schema is named."""
        line = {
            "type": "record",
            "name": "Line",
            "namespace": "shop",
            "fields": [{"name": "sku", "type": "string"}],
        }
        registry.register(f"{topic}-line", line)
        order = {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [
                {"name": "id", "type": "long"},
                {
                    "name": "total",
                    "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                },
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "lines", "type": {"type": "array", "items": "shop.Line"}},
                {"name": "note", "type": ["null", "string"]},
            ],
        }
        reference = {"name": "shop.Line", "subject": f"{topic}-line", "version": 1}
        number = registry.register(f"{topic}-value", order, references=[reference])
        named: dict[str, Any] = {}
        fastavro.parse_schema(line, named_schemas=named)
        at = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
        value = {"id": 7, "total": Decimal("12.50"), "at": at, "lines": [{"sku": "a"}], "note": None}
        kafka.send(topic, [_coded(number, _avro(fastavro.parse_schema(order, named_schemas=named), value))])
        async with reading(known, topic=topic) as reader:
            (event,) = await reader.read(1)
        assert event.data == {
            "id": 7, "total": "12.50", "at": at.isoformat(), "lines": [{"sku": "a"}], "note": None,
        }  # fmt: skip
        assert event.dataschema == f"{registry.url}/schemas/ids/{number}"

    async def test_json_schema(
        self, kafka: Kafka, registry: SchemaRegistry, topic: str, known: Connection
    ) -> None:
        """A JSON value with a schema is read as JSON."""
        schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
        number = registry.register(f"{topic}-value", schema, "JSON")
        kafka.send(topic, [_coded(number, b'{"total": 12}')])
        async with reading(known, topic=topic) as reader:
            (event,) = await reader.read(1)
        assert (event.data, event.datacontenttype) == ({"total": 12}, None)

    async def test_protobuf(
        self, kafka: Kafka, registry: SchemaRegistry, topic: str, known: Connection, tmp_path: Path
    ) -> None:
        """A Protobuf value, of a nested or a later message of its file, is decoded with what it imports."""
        registry.register(f"{topic}-money", MONEY, "PROTOBUF")
        reference = {"name": "common.proto", "subject": f"{topic}-money", "version": 1}
        number = registry.register(f"{topic}-value", PROTO, "PROTOBUF", [reference])
        types = _protobuf_types(tmp_path)
        line = types["shop.Order"].Line(sku="a", count=2**63 - 1)
        order = types["shop.Order"](id=2**53 + 1, lines=[line], state="PAID", cash="yes")
        order.prices["eu"].cents = 1250
        order.at.FromJsonString("2026-01-31T12:00:00Z")
        order.weight.value = 5
        ignored = types["shop.Ignored"](nothing="n")
        places = ((b"\x02\x02", order), (b"\x04\x02\x00", line), (b"\x00", ignored))
        values = [_coded(number, place, message.SerializeToString()) for place, message in places]
        kafka.send(topic, values, partition=0)
        async with reading(known, topic=topic) as reader:
            events = await reader.read(3)
        assert [event.data for event in events] == [
            {
                "id": 2**53 + 1,
                "lines": [{"sku": "a", "count": 2**63 - 1}],
                "prices": {"eu": {"cents": 1250}},
                "state": "PAID",
                "at": "2026-01-31T12:00:00Z",
                "weight": 5,
                "rate": 0.0,
                "cash": "yes",
            },
            {"sku": "a", "count": 2**63 - 1},
            {"nothing": "n"},
        ]

    async def test_a_key_and_a_cloud_event(
        self, kafka: Kafka, registry: SchemaRegistry, topic: str, known: Connection
    ) -> None:
        """A key in the wire format is decoded when asked for; CloudEvents headers count for Avro, too."""
        number = registry.register(
            f"{topic}-key", {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}
        )
        schema = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}
        coded = _coded(number, _avro(schema, {"k": 7}))
        names = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.created"}
        headers = [
            *((f"ce_{name}", text.encode()) for name, text in names.items()),
            ("content-type", b"application/avro"),
        ]
        kafka.send(topic, [coded], key=coded, headers=headers)
        async with reading(known, topic=topic, key_format="confluent") as reader:
            (event,) = await reader.read(1)
        assert (event.key, event.data, event.id) == ('{"k":7}', {"k": 7}, "e-1")

    async def test_what_cannot_be_decoded(
        self, kafka: Kafka, registry: SchemaRegistry, topic: str, known: Connection
    ) -> None:
        """A value that does not fit its schema, or whose schema is unknown, is a dead letter that says so."""
        number = registry.register(f"{topic}-value", {"type": "array", "items": "string"})
        kafka.send(topic, [_coded(number, b"\x08"), _coded(99_999, b"\x00"), b"1"], partition=0)
        async with reading(known, topic=topic) as reader:
            await reader.until(lambda reader: len(reader.events) + len(reader.dead) == 3)
        broken, unknown = reader.dead
        assert f"schema {number}" in broken.reason
        assert "99999" in unknown.reason
        assert [event.data for event in reader.events] == [1]

    async def test_without_a_registry(self, kafka: Kafka, topic: str, connection: Connection) -> None:
        """A value in the wire format without a known registry is a dead letter that says what to set."""
        kafka.send(topic, [_coded(1, b"\x02a")])
        async with reading(connection, topic=topic) as reader:
            await reader.until(lambda reader: bool(reader.dead))
        assert "schema.registry.url" in reader.dead[0].reason

    async def test_a_registry_that_is_away(
        self, kafka: Kafka, registry: SchemaRegistry, topic: str, connection: Connection
    ) -> None:
        """A registry that does not answer costs no message: it is an error, and all come when it is back."""
        number = registry.register(f"{topic}-value", '"string"')
        kafka.send(topic, [_coded(number, b"\x02a")])
        away = Connection(conn_id="registry", host=f"http://127.0.0.1:{free_port()}")
        options = {"topic": topic, "registry_conn_id": "registry"}
        async with reading(connection, away, **options) as reader:
            with pytest.raises(SourceError, match=r"registry.*cannot be reached"):
                await reader.next()
        async with reading(connection, registry.connection("registry"), **options) as reader:
            (event,) = await reader.read(1)
        assert event.data == "a"


def _members(kafka: Kafka, group: str) -> dict[str, set[int]]:
    """The members of a group by instance name (or id), with the partitions that they have, at rest."""
    from confluent_kafka import ConsumerGroupState

    admin = kafka.admin()
    while True:
        found = admin.describe_consumer_groups([group])[group].result(30)
        if found.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            return {
                member.group_instance_id or member.member_id: {
                    p.partition for p in member.assignment.topic_partitions
                }
                for member in found.members
            }


async def _standing_still(reader: Reader) -> None:
    """Wait until the reader has paused its partitions."""
    while not reader.source._member._paused:
        await asyncio.sleep(0.02)


def _lose_a_place(kafka: Kafka, topic: str) -> None:
    """Join another group without polling, and wait until it is thrown out for that."""
    from confluent_kafka import Consumer

    group = f"{topic}-lazy"
    settings = {"group.id": group, "max.poll.interval.ms": 2000, "session.timeout.ms": 2000, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{kafka.port}", **settings})
    consumer.subscribe([topic])
    while not _members(kafka, group):
        consumer.poll(0.1)
    while _members(kafka, group):
        pass
    consumer.close()


def _coded(number: int, *parts: bytes) -> bytes:
    """A value in Confluent's wire format."""
    return struct.pack(">bI", 0, number) + b"".join(parts)


def _avro(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    return written.getvalue()


def _protobuf_types(directory: Path) -> dict[str, Any]:
    """The message classes of PROTO by their full names."""
    import grpc_tools
    from google.protobuf import descriptor_pb2, message_factory
    from grpc_tools import protoc

    (directory / "order.proto").write_text(PROTO)
    (directory / "common.proto").write_text(MONEY)
    own = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        f"-I{directory}",
        f"-I{own}",
        "--include_imports",
        f"--descriptor_set_out={directory / 'set'}",
    ]
    assert protoc.main(["protoc", *arguments, str(directory / "order.proto")]) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString((directory / "set").read_bytes()).file
    return message_factory.GetMessages(files)
