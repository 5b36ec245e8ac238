"""Debezium over Kafka: what is asked of Kafka, and what becomes of a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import Event, WindsockError
from windsock.sources import make_source
from windsock.sources.debezium import DebeziumConfig, DebeziumSource
from windsock.sources.kafka import KafkaConfig

LIVE = Path(__file__).parents[2] / "corpora" / "debezium" / "postgres-live.jsonl"
MESSAGES = [json.loads(line) for line in LIVE.read_text().splitlines()]


def source(**options: Any) -> DebeziumSource:
    """A source that is not connected."""
    return DebeziumSource(DebeziumConfig(conn_id="kafka", **{"topic": "srv.public.orders", **options}))


def record(value: Any, key: str | None = None, *, topic: str = "srv.public.orders", at: int = 0) -> Event:
    """A record as kind `kafka` hands it over."""
    return Event.make(
        value, id=f"{topic}/0/{at}", source=f"kafka://shop/{topic}", type="windsock.kafka", key=key,
        time=1_700_000_000, headers={"h": "1"},
    )  # fmt: skip


def test_every_live_message_becomes_its_event() -> None:
    """Each record of a live connector is an event of its type; tombstones are left out."""
    reading = source()
    translated = [
        reading.translate(
            record(
                message["value"] and message["value"].encode(), message["key"], topic=message["dest"], at=at
            )
        )
        for at, message in enumerate(MESSAGES)
    ]
    assert [dead for _, dead in translated if dead] == []
    events = [event for events, _ in translated for event in events]
    assert len(events) == sum(message["value"] is not None for message in MESSAGES)
    assert {event.source for event in events} == {"debezium://srv"}
    assert all(event.headers == {"h": "1"} for event in events)


def test_a_tombstone_if_asked_for() -> None:
    """A tombstone is an event with the record's id, time and key."""
    ((event,), _) = source(tombstones=True).translate(record(None, '{"id":10}', at=7))
    assert (event.type, event.key, event.id) == ("debezium.tombstone", '{"id":10}', "srv.public.orders/0/7")
    assert event.time is not None
    assert source().translate(record(None, '{"id":10}')) == ([], [])


def test_what_is_no_change_event_becomes_a_dead_letter() -> None:
    """A record that Debezium did not write is set aside with its bytes and where it lies."""
    (events, (dead,)) = source().translate(record(b'{"id": 1}', at=9))
    assert events == []
    assert dead.body == b'{"id": 1}'
    assert dead.reason.startswith("srv.public.orders/0/9: ")


def test_records_that_the_registry_decoded() -> None:
    """With Avro the value comes decoded, and is read all the same."""
    value = json.loads(MESSAGES[0]["value"])
    ((event,), _) = source(format="confluent").translate(record(value, MESSAGES[0]["key"]))
    assert (event.type, event.key) == ("debezium.read", '{"id":1}')
    (_, (dead,)) = source(format="confluent").translate(record({"no": "change"}))
    assert json.loads(dead.body) == {"no": "change"}


def test_equal_rows_without_a_key_are_told_apart() -> None:
    """Two equal rows that were copied into a table without a key at once are two events."""
    value = MESSAGES[4]["value"].replace('"total_order":1', '"total_order":null').encode()
    reading = source()
    ((first,), _), ((second,), _) = (reading.translate(record(value, at=at)) for at in (1, 2))
    assert first.id != second.id
    assert reading.translate(record(value, at=1)) == ([first], [])


def test_what_is_asked_of_kafka() -> None:
    """The options for Kafka are handed on, and are ones that it knows."""
    asked = {"topic": None, "pattern": r"srv\..*", "group": "mine", "instance": "a", "start": "latest"}
    kind, options = source(**asked, read_committed=False).inner()
    assert kind == "kafka"
    config = msgspec.convert(options, KafkaConfig)
    assert (config.pattern, config.group, config.instance) == (r"srv\..*", "mine", "a")
    assert (config.start, config.format, config.key_format) == ("latest", "bytes", "text")
    assert config.read_committed is False
    coded = msgspec.convert(source(format="confluent", registry_conn_id="r").inner()[1], KafkaConfig)
    assert (coded.format, coded.key_format, coded.registry_conn_id) == ("auto", "confluent", "r")


def test_watchers_that_want_different_changes_do_not_share_a_group() -> None:
    """The default group tells options apart that change what is read, and no others."""
    groups = {
        source(**more).inner()[1]["group"] for more in ({}, {"operations": ("delete",)}, {"tables": ("a",)})
    }
    assert len(groups) == 3
    assert source(instance="a").inner()[1]["group"] in groups


@pytest.mark.parametrize(
    "options", [{}, {"topic": "a", "pattern": "b"}, {"topic": "a", "times": {"c": "Soon"}}]
)
def test_options_that_contradict_each_other(options: dict[str, Any]) -> None:
    """A wrong declaration is refused before anything is read."""
    with pytest.raises(WindsockError, match=r"exactly one of|use one of"):
        make_source("debezium", {"conn_id": "kafka", **options})


@given(st.none() | st.binary(max_size=60) | st.dictionaries(st.text(max_size=4), st.integers(), max_size=3))
def test_any_record_becomes_an_event_or_a_dead_letter(value: Any) -> None:
    """Whatever lies in the topic, translating it does not raise."""
    events, dead = source().translate(record(value, key="\\xff"))
    assert len(events) + len(dead) <= 1
