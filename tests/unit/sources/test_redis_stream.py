"""The Redis stream source without a server: its options, and what it makes of entries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.connections import Connection
from windsock.events import SourceError, WindsockError
from windsock.sources import make_source, source_key
from windsock.sources._redis import open_client
from windsock.sources.base import Delivery
from windsock.sources.redis_stream import Entry, RedisStreamSource

OPTIONS: dict[str, Any] = {"conn_id": "redis_default", "stream": "orders"}
BODIES = st.binary(max_size=60) | st.sampled_from(
    [b'{"specversion":"1.0","id":1,"source":"/s","type":"t"}', b'{"cut": ', b"[" * 3000, b'"\\ud800"', b"NaN"]
)


def delivery_of(entries: list[Entry], **options: Any) -> Delivery:
    source = make_source("redis_stream", {**OPTIONS, **options})
    assert isinstance(source, RedisStreamSource)
    return source.delivery("orders", entries, Delivery([]).ack)


def test_one_stream_or_several() -> None:
    """A stream is named by itself or in a list."""
    one = make_source("redis_stream", OPTIONS)
    several = make_source("redis_stream", {**OPTIONS, "stream": ["orders", "returns"]})
    assert isinstance(one, RedisStreamSource)
    assert isinstance(several, RedisStreamSource)
    assert (one.options.streams, several.options.streams) == (("orders",), ("orders", "returns"))


@pytest.mark.parametrize("start", ["earliest", "latest", "1731672000000", "1731672000000-3"])
def test_known_starts(start: str) -> None:
    """A group begins at either end or behind an entry."""
    assert make_source("redis_stream", {**OPTIONS, "start": start})


@pytest.mark.parametrize(
    "wrong", [{"start": "yesterday"}, {"stream": []}, {"stream": ""}, {"claim_after": -1}]
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    """What makes no sense is refused where the watcher is defined."""
    with pytest.raises(WindsockError):
        make_source("redis_stream", {**OPTIONS, **wrong})


def test_the_time_to_claim_does_not_change_the_position() -> None:
    """Watchers that differ in tuning share a reader; those on other groups do not."""
    key = source_key("redis_stream", OPTIONS)
    assert key == source_key("redis_stream", {**OPTIONS, "claim_after": 5})
    assert key != source_key("redis_stream", {**OPTIONS, "group": "other"})


def test_a_repeated_entry_is_the_same_event() -> None:
    """An entry that is delivered again becomes an equal event, so that it is stored once."""
    entry: Entry = (b"1731672000000-0", {b"data": b'{"n": 1}'})
    (first,) = delivery_of([entry]).events
    assert delivery_of([entry]).events == [first]
    assert (first.id, first.source, first.subject) == (
        "1731672000000-0",
        "redis://redis_default/orders",
        "orders",
    )


@given(
    st.dictionaries(st.binary(max_size=8), BODIES, min_size=1, max_size=4),
    st.sampled_from([None, "data", ""]),
)
def test_any_entry_is_an_event_or_a_dead_letter(fields: dict[bytes, bytes], field: str | None) -> None:
    """Whatever the fields hold, each entry ends up in exactly one of the two, with its bytes kept."""
    delivery = delivery_of([(b"1-0", dict(fields)), (b"2-0", {b"data": b'{"n": 1}', b"": b"1"})], field=field)
    assert len(delivery.events) + len(delivery.dead) == 2
    assert all(letter.reason for letter in delivery.dead)
    assert all(event.encode() for event in delivery.events)


def test_a_database_that_is_no_number() -> None:
    """A Connection whose database is no number says what to set."""
    with pytest.raises(SourceError, match="is no number: set 'db'"):
        open_client(Connection(conn_id="redis_default", schema="orders"))


def test_the_database_of_a_uri() -> None:
    """The path of redis://host/3 is the database, and the extra 'db' wins over it."""
    both = Connection(conn_id="redis_default", schema="3", extra={"db": "4"})
    for connection, expected in ((Connection(conn_id="c", schema="3"), 3), (both, 4)):
        assert open_client(connection).connection_pool.connection_kwargs["db"] == expected
