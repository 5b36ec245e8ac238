"""Debezium's change events, on real ones and on broken ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes.debezium import ChangeOptions, change_of
from windsock.events import Event, InvalidEvent

CORPORA = Path(__file__).parents[2] / "corpora" / "debezium"
ALL = ChangeOptions()


def live() -> list[dict[str, Any]]:
    """What Debezium 3.6 sent of a PostgreSQL: destination, key and value of each message."""
    return [json.loads(line) for line in (CORPORA / "postgres-live.jsonl").read_text().splitlines()]


def lines(name: str) -> list[bytes]:
    """The change events of a file that has one a line."""
    return [line for line in (CORPORA / name).read_bytes().splitlines() if line.strip()]


def read(message: dict[str, Any], options: ChangeOptions = ALL, **more: Any) -> Event | None:
    """The event of one line of the live file."""
    value = message["value"]
    return change_of(
        None if value is None else value.encode(), options, key=message["key"], topic=message["dest"], **more
    )


def change(**fields: Any) -> dict[str, Any]:
    """A change event with the least that it needs."""
    source = {"connector": "postgresql", "name": "srv", "db": "shop", "schema": "public", "table": "orders",
              "lsn": 7, "txId": 3, "ts_ms": 1_700_000_000_000}  # fmt: skip
    return {
        "before": None,
        "after": {"id": 1},
        "source": source,
        "op": "c",
        "ts_ms": 1_700_000_000_500,
        **fields,
    }


def made(value: Any, options: ChangeOptions = ALL, **more: Any) -> Event:
    """The event of a value, which must be wanted."""
    event = change_of(json.dumps(value).encode(), options, **more)
    assert event is not None
    return event


def with_schema(columns: dict[str, tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """A change event whose row has these columns, each a value and its schema, as Kafka Connect writes it."""
    row = {"type": "struct", "optional": True, "field": "after",
           "fields": [{**schema, "field": name} for name, (_, schema) in columns.items()]}  # fmt: skip
    return {
        "schema": {"type": "struct", "fields": [row], "name": "srv.public.orders.Envelope"},
        "payload": change(after={name: value for name, (value, _) in columns.items()}),
    }


def decoded(value: Any, schema: dict[str, Any]) -> Any:
    """What becomes of one column."""
    return made(with_schema({"column": (value, schema)})).data["after"]["column"]


def test_the_types_of_a_live_connector() -> None:
    """Snapshot, insert, update, key change, delete, transactions and a logical message have their types."""
    events = [event for message in live() if (event := read(message))]
    types = [event.type.removeprefix("debezium.") for event in events]
    assert [kind for kind in types if kind != "transaction"] == [
        *("read", "read", "read", "create", "update", "delete", "create", "delete", "create", "message")
    ]
    assert types.count("transaction") == 14
    assert len({event.id for event in events}) == len(events)
    assert len(events) == len(live()) - 2  # two tombstones


def test_what_an_update_says() -> None:
    """An update is named, placed, timed and keyed by what Debezium says, and keeps every field."""
    (event,) = [event for message in live() if (event := read(message)) and event.type == "debezium.update"]
    (message,) = [message for message in live() if '"op":"u"' in (message["value"] or "")]
    assert event.source == "debezium://srv"
    assert event.subject == "postgres.public.orders"
    assert event.key == '{"id":10}'
    assert event.id == '22182704/730/postgres.public.orders/update/{"id":10}'
    assert event.time is not None
    assert int(event.time.timestamp() * 1000) == 1794728474883
    assert event.correlation == "730:22182704"
    assert event.data == json.loads(message["value"])


def test_a_changed_key_is_a_deletion_and_a_creation() -> None:
    """Both halves of a changed primary key stand at one position and are still two events."""
    halves = [
        event
        for message in live()
        if (event := read(message)) and event.data.get("source", {}).get("lsn") == 22182888
    ]
    assert [event.type for event in halves] == ["debezium.delete", "debezium.create"]
    assert halves[0].id != halves[1].id


def test_transactions() -> None:
    """BEGIN and END of a transaction are events of their own, the same at each sending."""
    events = [
        event for message in live() if (event := read(message)) and event.type == "debezium.transaction"
    ]
    assert events[0].id == "729:22182504/BEGIN"
    assert events[0].source == "debezium://srv"
    assert events[1].data["data_collections"] == [{"data_collection": "public.orders", "event_count": 1}]


def test_a_logical_message() -> None:
    """A logical decoding message has its prefix as subject and its content as it came."""
    (event,) = [event for message in live() if (event := read(message)) and event.type == "debezium.message"]
    assert event.subject == "pref"
    assert event.data["message"] == {"prefix": "pref", "content": "aGVsbG8="}


@pytest.mark.parametrize(
    ("name", "source", "subject"),
    [
        ("debezium-data-schema-exclude.txt", "debezium://dbserver1", "inventory.products"),
        (
            "debezium-postgres-data-replica-identity.txt",
            "debezium://fullfillment",
            "postgres.inventory.products",
        ),
    ],
)
def test_mysql_and_postgresql_without_keys(name: str, source: str, subject: str) -> None:
    """Each line of the public samples is one event with an id of its own, though none has a key."""
    events = [change_of(line, ALL) for line in lines(name)]
    assert {(event.source, event.subject) for event in events if event} == {(source, subject)}
    assert len({event.id for event in events if event}) == len(lines(name))
    assert [change_of(line, ALL) for line in lines(name)] == events


def test_a_snapshot_without_a_time_takes_the_connectors() -> None:
    """Old MySQL snapshots say ts_ms 0: the event then has the time at which the connector saw the row."""
    event = change_of(lines("debezium-data-schema-exclude.txt")[0], ALL)
    assert event is not None
    assert event.time is not None
    assert event.time.year == 2020


def test_tombstones_are_skipped_or_events() -> None:
    """A tombstone is nothing by default and an event with its key if asked for."""
    tombstones = [message for message in live() if message["value"] is None]
    assert [read(message) for message in tombstones] == [None, None]
    event = read(tombstones[0], carrier="orders/0/17", tombstones=True)
    assert event is not None
    assert (event.type, event.key, event.id) == ("debezium.tombstone", '{"id":10}', "orders/0/17")
    assert change_of(b'{"schema": null, "payload": null}', ALL) is None
    assert change_of(b"", ALL) is None


def test_with_and_without_a_schema_are_one_event() -> None:
    """The same change is the same event, id included, whether its schema travels along or not."""
    flat = made(change(), key=b'{"id": 1}')
    wrapped = made(
        {"schema": {"type": "struct", "fields": []}, "payload": change()},
        key=b'{"schema": {"type": "struct"}, "payload": {"id": 1}}',
    )
    assert flat == wrapped
    assert flat.key == '{"id":1}'


def test_heartbeats_are_skipped() -> None:
    """A connector's sign of life is no event, with or without a schema."""
    assert change_of(b'{"ts_ms": 1700000000000}', ALL, topic="__debezium-heartbeat.srv") is None
    assert change_of(b'{"schema": {}, "payload": {"ts_ms": 1}}', ALL) is None


def test_a_schema_change() -> None:
    """A DDL statement is an event of its database, told from the next one at the same position."""
    value = {
        "source": {"connector": "mysql", "name": "srv", "file": "bin.000003", "pos": 219, "ts_ms": 5},
        "databaseName": "shop",
        "ddl": "ALTER TABLE orders ADD note text",
        "tableChanges": [{"type": "ALTER", "id": '"shop"."orders"'}],
    }
    event = made(value, key=b'{"databaseName":"shop"}', topic="srv")
    assert (event.type, event.subject) == ("debezium.schema_change", "shop")
    assert event.data == value
    assert made({**value, "ddl": "DROP TABLE orders"}).id != event.id


def test_a_truncation() -> None:
    """An emptied table is an event without rows and without a key."""
    event = made(change(op="t", after=None))
    assert (event.type, event.subject, event.key) == ("debezium.truncate", "shop.public.orders", None)


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (("orders",), True),
        (("public.orders",), True),
        (("shop.public.orders",), True),
        (("public.*",), True),
        (("customers", "ord*"), True),
        (("customers",), False),
        (("other.orders",), False),
    ],
)
def test_tables(patterns: tuple[str, ...], wanted: bool) -> None:
    """A table is meant by its name alone, with its schema, or in full, and by globs of each."""
    event = change_of(json.dumps(change()).encode(), ChangeOptions(tables=patterns))
    assert (event is not None) == wanted


def test_operations() -> None:
    """Only the operations that are asked for become events; what has no table passes the table filter."""
    asked = ChangeOptions(operations=("delete", "transaction"), tables=("orders",))
    types = {event.type for message in live() if (event := read(message, asked))}
    assert types == {"debezium.delete", "debezium.transaction"}


@pytest.mark.parametrize(
    ("number", "scale", "text"),
    [(9950, 2, "99.50"), (-1, 2, "-0.01"), (0, 0, "0"), (12, -3, "12000"), (10**40 + 1, 38, None)],
)
def test_decimals_with_a_schema(number: int, scale: int, text: str | None) -> None:
    """A decimal becomes text with every digit, however long it is."""
    raw = base64.b64encode(number.to_bytes(20, "big", signed=True)).decode()
    schema = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": str(scale)},
    }
    assert decoded(raw, schema) == (text or f"100.{'1':0>38}")
    variable = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    assert decoded({"scale": scale, "value": raw}, variable) == (text or f"100.{'1':0>38}")


@pytest.mark.parametrize("value", [12.5, "12.5", "====", "", None, [1]])
def test_decimals_that_are_not_base64(value: Any) -> None:
    """A decimal that the converter wrote as a number or a text stays as it is."""
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    assert decoded(value, schema) == value


def test_decimals_by_option() -> None:
    """Without a schema the columns that the user names are decoded, in the table that the user means."""
    row = {"id": 1, "amount": "Jt4=", "name": "Jt4="}
    event = made(change(before=row, after=row), ChangeOptions(decimals={"orders.amount": 2}))
    assert event.data["after"] == {"id": 1, "amount": "99.50", "name": "Jt4="}
    assert event.data["before"] == event.data["after"]
    assert made(change(after=row), ChangeOptions(decimals={"others.amount": 2})).data["after"] == row
    assert made(change(after=row)).data["after"] == row


def test_options_do_not_change_the_id() -> None:
    """A column that is decoded from now on does not make old changes new ones."""
    row = {"amount": "Jt4="}
    assert made(change(after=row), ChangeOptions(decimals={"amount": 2})).id == made(change(after=row)).id


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("io.debezium.time.Date", 20772, "2026-11-15"),
        ("io.debezium.time.Date", -1, "1969-12-31"),
        ("io.debezium.time.Timestamp", 1794728412535, "2026-11-15T07:40:12.535"),
        ("io.debezium.time.Timestamp", 1794728412000, "2026-11-15T07:40:12"),
        ("io.debezium.time.MicroTimestamp", 1794728412535525, "2026-11-15T07:40:12.535525"),
        ("io.debezium.time.MicroTimestamp", -1, "1969-12-31T23:59:59.999999"),
        ("io.debezium.time.NanoTimestamp", 1794728412535525007, "2026-11-15T07:40:12.535525007"),
        ("io.debezium.time.ZonedTimestamp", "2026-11-15T07:40:12.535525Z", "2026-11-15T07:40:12.535525Z"),
        ("io.debezium.time.Time", 27612535, "07:40:12.535"),
        ("io.debezium.time.MicroTime", 27612535525, "07:40:12.535525"),
        ("io.debezium.time.MicroTime", 86400000000, "24:00:00"),
        ("io.debezium.time.MicroTime", -3020399000000, "-838:59:59"),
        ("io.debezium.time.NanoTime", 27612000000001, "07:40:12.000000001"),
        ("io.debezium.time.Year", 2026, "2026"),
        ("io.debezium.time.Interval", "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S"),
        ("io.debezium.time.MicroDuration", 90500000, "PT90.500000S"),
        ("io.debezium.time.MicroDuration", -1000000, "-PT1S"),
        ("org.apache.kafka.connect.data.Date", 20772, "2026-11-15"),
        ("org.apache.kafka.connect.data.Time", 1000, "00:00:01"),
        ("org.apache.kafka.connect.data.Timestamp", 0, "1970-01-01T00:00:00"),
    ],
)
def test_times_with_a_schema(name: str, value: Any, text: str) -> None:
    """Each of the types that Debezium counts times in becomes ISO 8601 text, with all of its digits."""
    assert decoded(value, {"type": "int64", "name": name}) == text


@pytest.mark.parametrize("value", [9223372036825200000, -9223372036832400000, "soon", True, 1.5, None])
def test_times_that_are_none(value: Any) -> None:
    """PostgreSQL's infinity and whatever else is no moment stays as it came."""
    for kind in ("Date", "Timestamp", "MicroTimestamp"):
        assert decoded(value, {"type": "int64", "name": f"io.debezium.time.{kind}"}) == value


def test_times_by_option() -> None:
    """Without a schema the columns that the user names are decoded; a wrong type name is refused."""
    event = made(change(after={"at": 1794728412535525}), ChangeOptions(times={"at": "MicroTimestamp"}))
    assert event.data["after"] == {"at": "2026-11-15T07:40:12.535525"}
    with pytest.raises(ValueError, match="use one of Date"):
        ChangeOptions(times={"at": "Fortnight"})


def test_arrays_maps_and_structs_are_decoded_inside() -> None:
    """A schema is followed into what it holds, and fields that it does not know are kept."""
    day = {"type": "int32", "name": "io.debezium.time.Date"}
    assert decoded([0, 1], {"type": "array", "items": day}) == ["1970-01-01", "1970-01-02"]
    assert decoded({"a": 0}, {"type": "map", "values": day}) == {"a": "1970-01-01"}
    inner = {"type": "struct", "fields": [{**day, "field": "d"}]}
    assert decoded({"d": 0, "more": 1}, inner) == {"d": "1970-01-01", "more": 1}


def test_rows_without_a_primary_key() -> None:
    """Equal rows at one position are told apart by the transaction's order, or by what carried them."""
    value = change()
    assert made(value).id == made(value).id
    assert made(value, carrier="t/0/1").id != made(value, carrier="t/0/2").id
    first, second = (change(transaction={"id": "3:7", "total_order": n}) for n in (1, 2))
    assert made(first, carrier="t/0/1").id == made(first, carrier="t/0/9").id != made(second).id


def test_a_snapshot_that_begins_again() -> None:
    """A row that a named snapshot reads a second time is the same event, unless it changed."""
    first = change(op="r")
    again = change(op="r", source={**first["source"], "lsn": 99, "txId": 8})
    other = change(op="r", after={"id": 1, "note": "changed"})
    key = b'{"id":1}'
    assert made(first, key=key, snapshot="a").id == made(again, key=key, snapshot="a").id
    assert made(first, key=key, snapshot="a").id != made(other, key=key, snapshot="a").id
    assert made(first, key=key, snapshot="a").id != made(first, key=key, snapshot="b").id
    assert made(first, key=key).id != made(again, key=key).id
    asked = change(op="r", source={**first["source"], "snapshot": "incremental"})
    assert made(asked, key=key, snapshot="a").id == made(asked, key=key).id


def test_keys_that_are_not_json() -> None:
    """A key in another form stays the text that it is."""
    assert made(change(), key=b"order-7").key == "order-7"
    assert made(change(), key=b"\xff").key == "\\xff"
    assert made(change(), key=b"7").key == "7"
    assert made(change(), key=b'"a"').key == "a"


def test_a_long_key_keeps_the_id_short() -> None:
    """A key of a thousand characters does not make the id one."""
    assert len(made(change(), key=json.dumps({"id": "x" * 1000}).encode()).id) < 100


def test_one_http_body() -> None:
    """What Debezium Server posts is read from the body alone: a repeated post is the same event."""
    message = next(message for message in live() if message["value"] and '"op":"c"' in message["value"])
    first, again = (change_of(message["value"].encode(), ALL) for _ in range(2))
    assert first is not None
    assert first == again
    assert first.key is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "not JSON"),
        (b"[]", "an object is needed"),
        (b"17", "an object is needed"),
        (b"{}", "no 'op'"),
        (b'{"id": 1, "__deleted": "false"}', "ExtractNewRecordState"),
        (b'{"op": "x", "source": {}}', "'x' is unknown"),
        (b'{"op": ["c"], "source": {}}', "is unknown"),
        (b'{"op": "c"}', "'source' is missing"),
        (b'{"op": "c", "source": 5}', "'source' is missing"),
        (b"\xff\xfe{}", "not JSON"),
    ],
)
def test_what_is_not_a_change_event(value: bytes, reason: str) -> None:
    """What Debezium would not write is refused, with the reason."""
    with pytest.raises(InvalidEvent, match=reason):
        change_of(value, ALL)


SAMPLES = [message["value"].encode() for message in live() if message["value"]] + lines(
    "debezium-data-schema-exclude.txt"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["io.debezium.time.Date", "io.debezium.time.NanoTimestamp", "org.apache.kafka.connect.data.Decimal",
     "io.debezium.data.VariableScaleDecimal", "io.debezium.time.Year"]
)  # fmt: skip


def becomes_an_event_or_is_refused(value: bytes, **more: Any) -> None:
    """Whatever comes, the outcome is an event that can be stored, nothing, or InvalidEvent."""
    options = ChangeOptions(decimals={"id": 2}, times={"amount": "Date"}, tables=("*",))
    try:
        event = change_of(value, options, tombstones=True, **more)
    except InvalidEvent:
        return
    assert event is None or Event.decode(event.encode()) == event


@given(st.sampled_from(SAMPLES), st.integers(0, 2000), st.binary(max_size=4))
def test_cut_and_garbled_messages(sample: bytes, at: int, garbage: bytes) -> None:
    """A message that is cut, or has other bytes in it, never raises anything but InvalidEvent."""
    becomes_an_event_or_is_refused(sample[:at] + garbage)
    becomes_an_event_or_is_refused(sample[:at] + garbage + sample[at:], key=garbage)


@given(st.sampled_from(SAMPLES), st.data())
def test_wrong_types_and_missing_fields(sample: bytes, data: st.DataObject) -> None:
    """A message whose fields are missing or of another type never raises anything but InvalidEvent."""
    document = json.loads(sample)
    for part in (document, document.get("source"), document.get("transaction")):
        if isinstance(part, dict) and part:
            name = data.draw(st.sampled_from(sorted(part)))
            part[name] = data.draw(JSON)
            part.pop(data.draw(st.sampled_from(sorted(part))))
    becomes_an_event_or_is_refused(json.dumps(document).encode(), key=json.dumps(data.draw(JSON)).encode())


@given(st.sampled_from(SAMPLES), JSON, NAMES, JSON, JSON)
def test_schemas_that_do_not_fit(sample: bytes, schema: Any, name: str, scale: Any, value: Any) -> None:
    """A schema that has nothing to do with its payload never raises anything but InvalidEvent."""
    payload = json.loads(sample)
    becomes_an_event_or_is_refused(json.dumps({"schema": schema, "payload": payload}).encode())
    column = {"type": "bytes", "name": name, "parameters": {"scale": scale}, "field": "column"}
    after = {"type": "struct", "fields": [column, schema], "field": "after"}
    payload["after"] = {"column": value}
    whole = {"schema": {"type": "struct", "fields": [after]}, "payload": payload}
    becomes_an_event_or_is_refused(json.dumps(whole).encode())
