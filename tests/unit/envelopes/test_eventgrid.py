"""Event Grid's events in both schemas, alone and in lists, whole and broken."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes.eventgrid import event_of, events_of
from windsock.events import DeadLetter, Event, InvalidEvent

BLOB: dict[str, Any] = {
    "topic": "/subscriptions/1/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/shop",
    "subject": "/blobServices/default/containers/in/blobs/orders.csv",
    "eventType": "Microsoft.Storage.BlobCreated",
    "eventTime": "2026-11-03T10:00:00.1234567Z",
    "id": "831e1650-001e-001b-66ab-eeb76e069631",
    "data": {"api": "PutBlob", "contentLength": 524288},
    "dataVersion": "",
    "metadataVersion": "1",
}
CLOUD: dict[str, Any] = {
    "specversion": "1.0",
    "type": "Microsoft.Storage.BlobCreated",
    "source": BLOB["topic"],
    "id": BLOB["id"],
    "time": BLOB["eventTime"],
    "subject": BLOB["subject"],
    "data": BLOB["data"],
}


def test_both_schemas_say_the_same() -> None:
    """Type, source, subject, id, time and data are equal in Event Grid's schema and as a CloudEvent."""
    one, other = event_of(BLOB), event_of(CLOUD)
    for name in ("id", "source", "type", "subject", "time", "data"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.extensions == {"metadataversion": "1"}


def test_unknown_fields_are_kept() -> None:
    """A field that Event Grid may add goes along as a header."""
    assert event_of({**BLOB, "traceId": "t", "n": 1}).headers == {"traceId": "t", "n": "1"}


@pytest.mark.parametrize("body", [[BLOB, CLOUD], [BLOB], BLOB, []])
def test_lists_and_single_events(body: Any) -> None:
    """A delivery is a list or one event."""
    events, dead = events_of(json.dumps(body).encode())
    assert len(events) == (len(body) if isinstance(body, list) else 1)
    assert dead == []


def test_a_broken_event_stops_no_other() -> None:
    """What is none becomes a dead letter that shows it; its neighbours are read."""
    events, dead = events_of(json.dumps([BLOB, {"id": "x"}, 7, {**BLOB, "id": "y"}]).encode())
    assert [event.id for event in events] == [BLOB["id"], "y"]
    assert [letter.body for letter in dead] == [b'{"id":"x"}', b"7"]


@pytest.mark.parametrize("body", [b"", b"{", b"7", b'"x"', b"\xff"])
def test_what_is_no_delivery(body: bytes) -> None:
    """A body that is neither an object nor a list is refused."""
    with pytest.raises(InvalidEvent):
        events_of(body)


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from([*BLOB, *CLOUD]), VALUES).flatmap(
            lambda some: st.sampled_from([some, {**BLOB, **some}, {**CLOUD, **some}])
        ),
        max_size=4,
    ),
    st.integers(0, 3000),
)
def test_malformed_events(elements: list[dict[str, Any]], size: int) -> None:
    """Mistyped and cut deliveries become events, dead letters or InvalidEvent."""
    events, dead = events_of(json.dumps(elements).encode())
    assert len(events) + len(dead) == len(elements)
    assert all(isinstance(event, Event) for event in events)
    assert all(isinstance(letter, DeadLetter) for letter in dead)
    with suppress(InvalidEvent):
        events_of(json.dumps(elements).encode()[:size])
