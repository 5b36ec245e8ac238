"""GCS's notifications out of Pub/Sub messages, whole and broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes import gcs
from windsock.envelopes.objects import event_of
from windsock.events import InvalidEvent

ATTRIBUTES = {
    "notificationConfig": "projects/_/buckets/shop/notificationConfigs/3",
    "eventType": "OBJECT_FINALIZE",
    "payloadFormat": "JSON_API_V1",
    "bucketId": "shop",
    "objectId": "in/orders + ü.csv",
    "objectGeneration": "1712345678901234",
    "eventTime": "2026-04-05T19:34:38.912345Z",
}
BODY = json.dumps(
    {
        "kind": "storage#object",
        "id": "shop/in/orders + ü.csv/1712345678901234",
        "name": "in/orders + ü.csv",
        "bucket": "shop",
        "generation": "1712345678901234",
        "metageneration": "1",
        "contentType": "text/csv",
        "timeCreated": "2026-04-05T19:34:38.900Z",
        "updated": "2026-04-05T19:34:38.900Z",
        "size": "352",
        "md5Hash": "hQDuWhVGdGQ+6ZQZnPbJ0Q==",
        "etag": "CPL+n9HopYUDEAE=",
        "metadata": {"shop": "3"},
    }
).encode()


def test_a_new_object() -> None:
    """A message becomes an event with all that is known of the object; unknown fields are kept."""
    event = event_of(gcs.read(BODY, ATTRIBUTES))
    assert event.id == "in/orders%20%2B%20%C3%BC.csv#1712345678901234"
    assert event.source == "gs://shop"
    assert event.type == "windsock.object.created"
    assert event.subject == event.key == "in/orders + ü.csv"
    assert event.time is not None
    assert event.time.isoformat() == "2026-04-05T19:34:38.912345+00:00"
    assert event.data["size"] == 352
    assert event.data["version"] == "1712345678901234"
    assert event.data["uri"] == "gs://shop/in/orders%20%2B%20%C3%BC.csv"
    assert event.data["contentType"] == "text/csv"
    assert event.data["metadata"] == {"shop": "3"}
    assert event.data["notification_config"] == "projects/_/buckets/shop/notificationConfigs/3"


@pytest.mark.parametrize(
    ("kind", "more", "change"),
    [
        ("OBJECT_FINALIZE", {"overwroteGeneration": "1"}, "overwritten"),
        ("OBJECT_DELETE", {}, "deleted"),
        ("OBJECT_DELETE", {"overwrittenByGeneration": "2"}, "other"),
        ("OBJECT_ARCHIVE", {}, "deleted"),
        ("OBJECT_ARCHIVE", {"overwrittenByGeneration": "2"}, "other"),
        ("OBJECT_METADATA_UPDATE", {}, "other"),
        ("OBJECT_SOMETHING_NEW", {}, "other"),
    ],
)
def test_what_happened(kind: str, more: dict[str, str], change: str) -> None:
    """Each kind of notification says what happened, and each happening has an id of its own."""
    event = event_of(gcs.read(BODY, {**ATTRIBUTES, "eventType": kind, **more}))
    assert event.type == f"windsock.object.{change}"
    assert event.data["event"] == kind
    assert (event.id == event_of(gcs.read(BODY, ATTRIBUTES)).id) is (change == "overwritten")


def test_two_changes_of_metadata() -> None:
    """Changes of one generation's metadata differ by their metageneration, and are in order."""
    changed = {**ATTRIBUTES, "eventType": "OBJECT_METADATA_UPDATE"}
    second, third = (
        event_of(
            gcs.read(BODY.replace(b'"metageneration": "1"', b'"metageneration": "%d"' % number), changed)
        )
        for number in (9, 10)
    )
    assert second.id != third.id
    assert second.sequence is not None
    assert third.sequence is not None
    assert second.sequence < third.sequence


def test_without_a_body() -> None:
    """A notification without payload has what its attributes say."""
    event = event_of(gcs.read(b"", {**ATTRIBUTES, "payloadFormat": "NONE"}))
    assert event.id == "in/orders%20%2B%20%C3%BC.csv#1712345678901234"
    assert event.data["size"] is None


@pytest.mark.parametrize("name", ["eventType", "bucketId", "objectId", "objectGeneration"])
def test_what_is_none_of_gcs(name: str) -> None:
    """A message without what makes it a notification is refused with a reason."""
    attributes = {key: value for key, value in ATTRIBUTES.items() if key != name}
    with pytest.raises(InvalidEvent, match=f"attribute '{name}' is missing"):
        gcs.read(BODY, attributes)


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b"\xff"])
def test_a_broken_body(body: bytes) -> None:
    """A body that is no JSON object is refused."""
    with pytest.raises(InvalidEvent, match="JSON"):
        gcs.read(body, ATTRIBUTES)


JSON = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)
)


@given(
    body=st.binary()
    | st.dictionaries(st.sampled_from(sorted(json.loads(BODY))), JSON).map(json.dumps).map(str.encode),
    damage=st.dictionaries(st.sampled_from(sorted(ATTRIBUTES)), st.text()),
)
def test_any_damage(body: bytes, damage: dict[str, Any]) -> None:
    """Whatever is in body and attributes raises nothing but InvalidEvent."""
    try:
        event_of(gcs.read(body, {**ATTRIBUTES, **damage}))
    except InvalidEvent:
        pass  # what it is for
