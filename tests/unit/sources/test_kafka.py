"""Kafka's settings, records and schemas, without a broker."""

from __future__ import annotations

import base64
import io
import json
import struct
from types import SimpleNamespace
from typing import Any

import fastavro
import httpx
import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from windsock.connections import Connection
from windsock.events import InvalidEvent, SourceError, WindsockError
from windsock.sources import make_source
from windsock.sources._kafka_places import Places, ack
from windsock.sources._kafka_registry import Registry, registry_of, schema_number
from windsock.sources._kafka_settings import cluster_of, consumer_settings, translated
from windsock.sources.kafka import KafkaConfig, KafkaSource, _default_group


class Record:
    """What the client hands over for one record."""

    def __init__(
        self,
        value: bytes | None = b"1",
        *,
        key: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        time: int = 1_790_000_000_000,
        topic: str = "orders",
        partition: int = 0,
        offset: int = 0,
        error: Any = None,
    ) -> None:
        self.error = lambda: error
        self.value = lambda: value
        self.key = lambda: key
        self.headers = lambda: headers
        self.timestamp = lambda: (1, time)
        self.topic = lambda: topic
        self.partition = lambda: partition
        self.offset = lambda: offset


def source(**options: Any) -> KafkaSource:
    made = KafkaSource(msgspec.convert({"conn_id": "kafka", "topic": "orders", **options}, KafkaConfig))
    made._cluster = "shop"
    return made


def connection(**fields: Any) -> Connection:
    return Connection(conn_id="kafka", conn_type="kafka", **fields)


class TestOptions:
    """What may be asked for."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"topic": "a", "pattern": "b"},
            {"topics": []},
            {"pattern": "("},
            {"topic": "a", "start": "soon"},
        ],
    )
    def test_refuses(self, options: dict[str, Any]) -> None:
        """Nothing or two things to read, a broken pattern and an unknown start are refused."""
        with pytest.raises(WindsockError, match="kafka"):
            make_source("kafka", {"conn_id": "kafka", **options})

    def test_the_default_group(self) -> None:
        """It stays the same for the same options and differs for others; the instance does not count."""

        def group(**options: Any) -> str:
            return _default_group(msgspec.convert({"conn_id": "kafka", **options}, KafkaConfig))

        assert group(topic="orders").startswith("windsock.orders.")
        assert group(topic="orders") == group(topic="orders", instance="one")
        assert group(topic="orders") != group(topic="orders", format="text")


class TestSettings:
    """From a Connection to librdkafka."""

    @pytest.mark.parametrize(
        ("fields", "servers"),
        [
            ({"host": "a"}, "a:9092"),
            ({"host": "a", "port": 9093}, "a:9093"),
            ({"host": "a, b:9095", "port": 9093}, "a:9093,b:9095"),
            ({"host": "[::1]:9095"}, "[::1]:9095"),
            ({"host": "a", "extra": {"bootstrap.servers": "b:1"}}, "b:1"),
        ],
    )
    def test_servers(self, fields: dict[str, Any], servers: str) -> None:
        """Host and port stand for the bootstrap servers, which the extra may name instead."""
        assert consumer_settings(connection(**fields))["bootstrap.servers"] == servers

    def test_a_login(self) -> None:
        """A login means SASL over TLS, unless the extra says otherwise."""
        found = consumer_settings(connection(host="a", login="me", password="secret"))
        assert found["security.protocol"] == "SASL_SSL"
        assert found["sasl.mechanism"] == "PLAIN"
        assert (found["sasl.username"], found["sasl.password"]) == ("me", "secret")
        plain = connection(host="a", login="me", extra={"security.protocol": "SASL_PLAINTEXT"})
        assert consumer_settings(plain)["security.protocol"] == "SASL_PLAINTEXT"

    def test_the_extra_is_librdkafkas(self) -> None:
        """Settings pass as they are; callbacks and the registry's do not, and ours win."""
        ignored = {
            "error_cb": "a.b",
            "schema.registry.url": "http://r",
            "basic.auth.user.info": "a:b",
            "empty": "",
        }
        extra = {**ignored, "session.timeout.ms": 6000, "enable.auto.commit": "true"}
        found = consumer_settings(connection(host="a", extra=extra), enable_auto_commit=False, group_id="g")
        assert (found["session.timeout.ms"], found["enable.auto.commit"], found["group.id"]) == (
            6000,
            False,
            "g",
        )
        assert not set(ignored) & set(found)

    def test_the_newer_group_protocol(self) -> None:
        """With group.protocol=consumer the broker decides what our defaults would set."""
        found = consumer_settings(connection(host="a", extra={"group.protocol": "consumer"}))
        assert not {"session.timeout.ms", "partition.assignment.strategy"} & set(found)

    @pytest.mark.parametrize(
        "fields", [{}, {"host": " , "}, {"host": "a", "extra": {"sasl.username": {"a": 1}}}]
    )
    def test_refuses(self, fields: dict[str, Any]) -> None:
        """No broker and an extra that is no setting are errors with the remedy."""
        with pytest.raises(SourceError, match=r"'kafka'.*: "):
            consumer_settings(connection(**fields))

    def test_the_cluster(self) -> None:
        """The cluster of an event's source is the first host."""
        servers = ["a.example:9092,b:1", "SASL_SSL://a.example:9092", "a.example", "[::1]:9092"]
        found = [cluster_of({"bootstrap.servers": server}) for server in servers]
        assert found == ["a.example", "a.example", "a.example", "::1"]

    def test_errors_without_secrets(self) -> None:
        """An error names what happened, where and the remedy, and no secret even if the client does."""
        error = SimpleNamespace(str=lambda: "said hunter2", name=lambda: "_AUTHENTICATION")
        settings = {"bootstrap.servers": "a:1", "sasl.password": "hunter2"}
        said = str(translated(error, settings, "kafka"))
        assert said.startswith("Kafka at a:1 refused the login: said ***; correct login")
        assert "'kafka'" in said


class TestPlaces:
    """How far each partition is."""

    def test_a_late_ack(self) -> None:
        """An ack after the revocation changes nothing, also when the partition came back meanwhile."""
        places = Places()
        partition = SimpleNamespace(topic="orders", partition=0, offset=5)
        places.assigned([partition])
        _, marks = places.taken([Record(offset=5), Record(offset=6)], pytest.fail)
        places.revoked([partition])
        places.assigned([partition])
        ack(marks)
        (place,) = places.all()
        assert (place.acked, place.dirty, place.lag(7)) == (5, False, 2)
        _, marks = places.taken([Record(offset=5), Record(offset=6)], pytest.fail)
        ack(marks)
        assert (place.acked, place.dirty, place.lag(7)) == (7, True, 0)

    def test_a_message_of_a_revoked_partition(self) -> None:
        """It is delivered, since it is there, but its ack commits nothing."""
        messages, marks = Places().taken([Record()], pytest.fail)
        assert (len(messages), marks) == (1, [])

    def test_the_end_of_a_partition(self) -> None:
        """What is no message does not count as waiting, but only once everything before it is acked."""
        places = Places()
        places.assigned([SimpleNamespace(topic="orders", partition=0, offset=0)])
        end = Record(offset=3, error=SimpleNamespace(name=lambda: "_PARTITION_EOF"))
        messages, marks = places.taken([Record(offset=0), end], pytest.fail)
        (place,) = places.all()
        assert (len(messages), place.lag(3)) == (1, 3)
        ack(marks)
        assert place.lag(3) == 0

    def test_an_error_among_the_messages(self) -> None:
        """Any other error is handed on."""
        failed: list[Any] = []
        wrong = Record(error=SimpleNamespace(name=lambda: "TOPIC_AUTHORIZATION_FAILED"))
        assert Places().taken([wrong], failed.append) == ([], [])
        assert failed == [wrong]


class TestRecords:
    """From records to events."""

    def test_a_record_without_a_timestamp(self) -> None:
        """A record of an old producer has no time, and so has its event."""
        (event,), _ = source()._made([Record(time=-1)])
        assert event.time is None

    @given(
        st.one_of(st.none(), st.binary(), st.recursive(
            st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)
            | st.dictionaries(st.text(), inner)).map(lambda value: json.dumps(value).encode())),
        st.none() | st.binary(),
        st.none() | st.lists(st.tuples(st.text() | st.sampled_from(
            ["ce_specversion", "ce_id", "ce_source", "ce_type", "content-type"]), st.none() | st.binary())),
        st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]),
    )  # fmt: skip
    def test_anything_becomes_an_event_or_a_dead_letter(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        format: str,
    ) -> None:
        """Whatever a record holds, it ends as one event or one dead letter that names its place."""
        record = Record(value, key=key, headers=headers, offset=7)
        events, dead = source(format=format)._made([record])
        assert len(events) + len(dead) == 1
        assert all(letter.reason.startswith("orders/0/7: ") for letter in dead)


SCHEMAS: dict[int, dict[str, Any]] = {
    1: {"schema": '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "long"]}]}'},
    2: {"schema": "{}", "schemaType": "JSON"},
    4: {"schema": "<xsd/>", "schemaType": "XML"},
    5: {"schema": '{"type": "recrod"}'},
    6: {"schema": 'syntax = "proto3"; message { }', "schemaType": "PROTOBUF"},
    7: {"schema": 'syntax = "proto3"; message A { }', "schemaType": "PROTOBUF",
        "references": [{"name": "../../a.proto", "subject": "a", "version": 1}]},
}  # fmt: skip


def compiled() -> str:
    """A Protobuf file with one message, as a registry sends it when asked for `serialized`."""
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=1)
    message.field.add(
        name="at",
        number=2,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=1,
    )
    return base64.b64encode(file.SerializeToString()).decode()


def answer(request: httpx.Request) -> httpx.Response:
    """A registry that knows SCHEMAS; 3 is sent compiled, as Confluent's own does on demand."""
    number = int(request.url.path.rpartition("/")[2])
    if request.url.path.startswith("/subjects/"):
        return httpx.Response(200, json={"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
    if number == 3:
        wished = request.url.params.get("format") == "serialized"
        text = compiled() if wished else 'syntax = "proto3"; not to be compiled'
        return httpx.Response(200, json={"schema": text, "schemaType": "PROTOBUF"})
    if number in SCHEMAS:
        return httpx.Response(200, json=SCHEMAS[number])
    return httpx.Response(404, json={"error_code": 40403, "message": "Schema not found"})


def coded(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def registry(handler: Any = answer, *urls: str) -> Registry:
    client = httpx.Client(transport=httpx.MockTransport(handler))
    return Registry(urls or ["http://registry"], client, "kafka")


class TestRegistry:
    """Confluent's wire format."""

    def test_a_compiled_protobuf_schema(self) -> None:
        """A registry that sends the compiled schema spares us the compiler."""
        payload = b"\x00" + b"\x08\x2a" + b"\x12\x02\x08\x3c"
        assert registry().decode(coded(3, payload)) == ({"id": 42, "at": "1970-01-01T00:01:00Z"}, 3)

    def test_a_schema_is_fetched_once(self) -> None:
        """The second value of a schema asks nobody."""
        asked: list[str] = []

        def count(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.path)
            return answer(request)

        known = registry(count)
        assert [known.decode(coded(1, b"\x02\x08"))[0] for _ in range(3)] == [{"x": 4}] * 3
        assert asked == ["/schemas/ids/1"]

    @pytest.mark.parametrize("number", [4, 5, 6, 7, 99])
    def test_schemas_that_cannot_be_used(self, number: int) -> None:
        """An unknown kind, a broken schema, one that reaches for files, and one that is not there."""
        with pytest.raises(InvalidEvent, match="schema"):
            registry().decode(coded(number, b"\x00"))

    @given(st.sampled_from([1, 2, 3]), st.binary())
    def test_any_payload(self, number: int, payload: bytes) -> None:
        """A broken payload is never more than a dead letter."""
        made = source()
        made._registry = registry()
        events, dead = made._made([Record(coded(number, payload))])
        assert len(events) + len(dead) == 1

    @given(st.binary(max_size=10))
    def test_any_header(self, value: bytes) -> None:
        """Only a zero byte and a whole number make the wire format."""
        assert (schema_number(value) is not None) == (len(value) >= 5 and value[0] == 0)

    @pytest.mark.parametrize("status", [401, 403, 500, 503])
    def test_a_registry_that_refuses(self, status: int) -> None:
        """It is the source's error, to be retried, not the message's."""
        with pytest.raises(SourceError, match=f"HTTP {status}.*'kafka'"):
            registry(lambda request: httpx.Response(status)).decode(coded(1, b"\x00"))

    def test_a_registry_that_answers_something_else(self) -> None:
        """A page of a proxy is not taken for a schema."""
        with pytest.raises(SourceError, match="something else"):
            registry(lambda request: httpx.Response(200, text="<html>")).decode(coded(1, b"\x00"))

    def test_the_second_registry(self) -> None:
        """Of several addresses the next one is asked when one does not answer."""

        def half(request: httpx.Request) -> httpx.Response:
            if request.url.host == "down":
                raise httpx.ConnectError("refused")
            return answer(request)

        assert registry(half, "http://down", "http://up").decode(coded(2, b"[1]")) == ([1], 2)

    def test_named_by_the_extras(self) -> None:
        """The Kafka Connection may hold the registry's address and login, under Confluent's names."""
        extra = {
            "schema.registry.url": "http://registry/",
            "schema.registry.basic.auth.user.info": "me:secret",
        }
        found = registry_of(connection(host="a", extra=extra), None)
        assert found is not None
        assert found.address(7) == "http://registry/schemas/ids/7"
        assert sent(found) == f"Basic {base64.b64encode(b'me:secret').decode()}"
        found.close()

    @pytest.mark.parametrize(
        ("fields", "address"),
        [
            ({"host": "registry"}, "http://registry:8081"),
            ({"host": "registry", "port": 443, "schema": "https"}, "https://registry:443"),
            ({"host": "https://registry/api", "port": 8443}, "https://registry:8443/api"),
            ({"extra": {"url": "http://other"}}, "http://other"),
        ],
    )
    def test_named_by_its_own_connection(self, fields: dict[str, Any], address: str) -> None:
        """A Connection of its own gives the address in the usual fields."""
        own = Connection(conn_id="registry", **fields)
        found = registry_of(connection(host="a"), own)
        assert found is not None
        assert found.address(1) == f"{address}/schemas/ids/1"
        found.close()

    def test_logins(self) -> None:
        """Login and password of its own Connection, or a bearer token, are sent."""
        basic = registry_of(connection(), Connection(conn_id="r", host="r", login="me", password="secret"))
        token = registry_of(connection(), Connection(conn_id="r", host="r", extra={"bearer.auth.token": "t"}))
        assert basic is not None
        assert token is not None
        assert sent(basic).startswith("Basic ")
        assert sent(token) == "Bearer t"
        basic.close()
        token.close()

    def test_no_registry(self) -> None:
        """Without an address there is none; a Connection of its own without one is an error."""
        assert registry_of(connection(host="a"), None) is None
        with pytest.raises(SourceError, match=r"'registry'.*host"):
            registry_of(connection(host="a"), Connection(conn_id="registry"))

    def test_certificates_that_are_not_there(self) -> None:
        """A missing certificate is an error that names the settings."""
        own = Connection(conn_id="registry", host="r", extra={"ssl.ca.location": "/not/there.pem"})
        with pytest.raises(SourceError, match=r"ssl\.ca\.location"):
            registry_of(connection(host="a"), own)

    def test_avro_of_every_kind(self) -> None:
        """Bytes, enums and logical types come as plain values."""
        state = {"type": "enum", "name": "S", "symbols": ["A"]}
        fields = {"raw": "bytes", "state": state, "id": {"type": "string", "logicalType": "uuid"}}
        schema = {
            "type": "record",
            "name": "B",
            "fields": [{"name": name, "type": type} for name, type in fields.items()],
        }
        written = fastavro_bytes(
            schema, {"raw": b"\0", "state": "A", "id": "12345678-1234-5678-1234-567812345678"}
        )
        made = source()
        made._registry = registry(lambda request: httpx.Response(200, json={"schema": json.dumps(schema)}))
        (event,), dead = made._made([Record(coded(1, written))])
        assert dead == []
        assert event.data == {"raw": "AA==", "state": "A", "id": "12345678-1234-5678-1234-567812345678"}


def sent(found: Registry) -> str:
    """The Authorization header of a request to the registry."""
    request = found._client.build_request("GET", "http://registry")
    auth = found._client._build_request_auth(request)
    return str(next(auth.sync_auth_flow(request)).headers["Authorization"])


def fastavro_bytes(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    return written.getvalue()
