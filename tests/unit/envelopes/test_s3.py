"""S3's notifications, on real ones and on broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes import s3
from windsock.envelopes.objects import event_of
from windsock.events import Event, InvalidEvent

CORPORA = Path(__file__).parents[2] / "corpora" / "aws"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


def corpus(name: str) -> Any:
    return json.loads((CORPORA / name).read_text())


def record(key: str = "in/orders.csv", **described: Any) -> dict[str, Any]:
    """A record as S3 writes it."""
    (made,) = corpus("s3Event.json")["Records"]
    made["s3"]["object"] |= {"key": key, **described}
    return dict(made)


def events(*records: Any) -> list[Event]:
    found, dead = s3.read(json.dumps({"Records": records}).encode())
    assert dead == []
    return [event_of(each) for each in found]


def test_a_record_of_s3() -> None:
    """S3's own record becomes an event with all that is known of the object; unknown fields are kept."""
    (event,) = events(*corpus("s3Event.json")["Records"])
    key = "b21b84d653bb07b05b1e6b33684dc11b"
    assert event.id == f"{key}#{key}-0C0F6F405D6ED209E1"
    assert event.source == "s3://lambda-artifacts-deafc19498e3f2df"
    assert event.type == "windsock.object.created"
    assert event.subject == event.key == key
    assert event.sequence == "0C0F6F405D6ED209E1"
    assert event.time is not None
    assert event.time.isoformat() == "2019-09-03T19:37:27.192000+00:00"
    assert event.data["bucket"] == "lambda-artifacts-deafc19498e3f2df"
    assert event.data["size"] == 1305107
    assert event.data["uri"] == f"s3://lambda-artifacts-deafc19498e3f2df/{key}"
    assert event.data["event"] == "ObjectCreated:Put"
    assert event.data["requestParameters"] == {"sourceIPAddress": "205.255.255.255"}
    assert event.data["configurationId"] == "828aa6fc-f7b5-4305-8584-487c791949c1"


def test_a_version() -> None:
    """In a bucket with versions the version makes the id."""
    body = corpus("s3SqsEvent.json")["Records"][0]["body"]
    (found,), dead = s3.read(body.encode())
    assert dead == []
    assert event_of(found).id == "test.pdf#yd3d4HaWOT2zguDLvIQLU6ptDTwKBnQV-00643717F9F8B85354"
    assert found.version == "yd3d4HaWOT2zguDLvIQLU6ptDTwKBnQV"


def test_an_event_of_eventbridge() -> None:
    """EventBridge's event becomes the same as S3's own."""
    message = corpus("s3EventBridgeNotificationObjectCreatedEvent.json")
    (found,), dead = s3.read(json.dumps(message).encode())
    event = event_of(found)
    assert dead == []
    assert event.id == "IMG_m7fzo3.jpg#4e68adba0abe2dc8653dc3354e14c01d-006408CAD69598B05E"
    assert event.source == "s3://example-bucket"
    assert event.type == "windsock.object.created"
    assert event.data["event"] == "Object Created"
    assert event.data["reason"] == "PutObject"
    assert event.data["account"] == "123456789012"


def test_the_same_change_by_two_ways_has_one_id() -> None:
    """What comes directly and through EventBridge is stored once."""
    message = corpus("s3EventBridgeNotificationObjectCreatedEvent.json")
    described = message["detail"]["object"]
    direct = record(described["key"], eTag=described["etag"], sequencer=described["sequencer"])
    (found,), _ = s3.read(json.dumps(message).encode())
    assert events(direct)[0].id == event_of(found).id


def test_through_sns() -> None:
    """A notification in SNS's envelope is unwrapped, whatever is inside."""
    envelope = json.loads(corpus("snsSqsEvent.json")["Records"][0]["body"])
    for inside in ({"Records": [record()]}, corpus("s3EventBridgeNotificationObjectCreatedEvent.json")):
        found, dead = s3.read(json.dumps({**envelope, "Message": json.dumps(inside)}).encode())
        assert (len(found), dead) == (1, [])


@pytest.mark.parametrize(
    ("encoded", "key"),
    [
        ("in/a+b%2B%C3%BC.csv", "in/a b+ü.csv"),
        ("in%2Fa+b%2B%C3%BC.csv", "in/a b+ü.csv"),
        ("in/100%25.csv", "in/100%.csv"),
        ("in/%E6%97%A5%E6%9C%AC%E8%AA%9E/%F0%9F%98%80", "in/日本語/😀"),
        ("in/a%00b", "in/a\\u0000b"),
    ],
)
def test_keys_are_decoded(encoded: str, key: str) -> None:
    """Both encodings that are in use lead to the key; what text cannot hold is shown."""
    (event,) = events(record(encoded))
    assert event.subject == event.data["key"] == key


def test_keys_of_eventbridge_are_not_encoded() -> None:
    """EventBridge has keys as they are, so that a plus stays one."""
    message = corpus("s3EventBridgeNotificationObjectCreatedEvent.json")
    message["detail"]["object"]["key"] = "in/a+b%2B.csv"
    (found,), _ = s3.read(json.dumps(message).encode())
    assert found.key == "in/a+b%2B.csv"


@pytest.mark.parametrize(
    ("name", "change", "marker"),
    [
        ("ObjectCreated:CompleteMultipartUpload", "created", None),
        ("s3:ObjectCreated:Copy", "created", None),
        ("ObjectRemoved:Delete", "deleted", False),
        ("ObjectRemoved:DeleteMarkerCreated", "deleted", True),
        ("LifecycleExpiration:DeleteMarkerCreated", "deleted", True),
        ("ObjectRestore:Completed", "restored", None),
        ("ObjectRestore:Post", "other", None),
        ("ObjectTagging:Put", "other", None),
        ("Something:New", "other", None),
    ],
)
def test_what_happened(name: str, change: str, marker: bool | None) -> None:
    """Each kind of notification says what happened; those not known yet are kept as other."""
    (event,) = events({**record(), "eventName": name})
    assert event.type == f"windsock.object.{change}"
    assert event.data.get("delete_marker") is marker
    assert event.data["event"] == name.removeprefix("s3:")


def test_a_deletion_by_eventbridge() -> None:
    """EventBridge tells a delete marker from a deletion, too."""
    message = corpus("s3EventBridgeNotificationObjectCreatedEvent.json")
    message["detail-type"] = "Object Deleted"
    message["detail"]["deletion-type"] = "Delete Marker Created"
    (found,), _ = s3.read(json.dumps(message).encode())
    assert (found.change, found.more["delete_marker"]) == ("deleted", True)


def test_deleting_and_creating_differ() -> None:
    """Two changes of one version have two ids, also without a sequencer."""
    made = record(versionId="v1")
    del made["s3"]["object"]["sequencer"]
    ids = {event.id for event in events(made, {**made, "eventName": "ObjectRemoved:Delete"})}
    assert len(ids) == 2


def test_the_test_event_means_nothing() -> None:
    """What S3 sends when notifications are set up is no event and no dead letter."""
    sent = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "shop", "Time": "2026-01-01T00:00:00Z"}
    assert s3.read(json.dumps(sent).encode()) == ([], [])


def test_a_broken_record_among_good_ones() -> None:
    """A record that cannot be read becomes a dead letter, and its neighbours go on."""
    broken = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {}}}
    found, dead = s3.read(json.dumps({"Records": [record("a"), broken, record("b")]}).encode())
    assert [each.key for each in found] == ["a", "b"]
    assert "'s3.object.key' is missing" in dead[0].reason
    assert b"ObjectCreated:Put" in dead[0].body


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'"text"', b'{"detail-type": "x", "source": "me"}']
)
def test_what_is_none_of_s3(body: bytes) -> None:
    """A message of somebody else is refused with a reason."""
    with pytest.raises(InvalidEvent, match=r"S3|JSON"):
        s3.read(body)


@given(st.binary())
def test_any_bytes(body: bytes) -> None:
    """No message raises anything but InvalidEvent."""
    _read(body)


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """A notification with any part replaced, removed or cut off raises nothing but InvalidEvent."""
    name = data.draw(st.sampled_from(["s3Event.json", "s3EventBridgeNotificationObjectCreatedEvent.json"]))
    message = corpus(name)
    place = message
    while isinstance(place, dict | list) and place:
        step = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[step], dict | list) or data.draw(st.booleans()):
            place[step] = data.draw(JSON)
            break
        place = place[step]
    body = json.dumps(message).encode()
    _read(body)
    _read(body[: data.draw(st.integers(0, len(body)))])


def _read(body: bytes) -> None:
    try:
        found, _ = s3.read(body)
        for each in found:
            event_of(each)
    except InvalidEvent:
        pass  # what it is for
