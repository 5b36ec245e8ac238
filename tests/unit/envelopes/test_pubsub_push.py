"""The envelope of a Pub/Sub push: Google's examples, both spellings, and whatever else may come."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes.pubsub_push import Pushed, message_of
from windsock.events import InvalidEvent

CORPUS = {
    path.stem.removeprefix("MessagePublishedData-"): path.read_bytes()
    for path in sorted((Path(__file__).parents[2] / "corpora" / "gcp").glob("MessagePublishedData-*.json"))
}
ENVELOPE: dict[str, Any] = {
    "message": {"data": "aGk=", "messageId": "1", "publishTime": "2026-11-03T10:00:00Z", "orderingKey": "k"},
    "subscription": "projects/p/subscriptions/s",
}


@pytest.mark.parametrize("name", CORPUS)
def test_googles_examples(name: str) -> None:
    """Text, binary and doubled fields are read."""
    pushed = message_of(CORPUS[name])
    assert pushed.subscription == "projects/my-project/subscriptions/my-subscription"
    assert pushed.message.id == "message-id"
    assert pushed.message.time == "2021-02-05T04:06:14.109Z"
    assert pushed.message.body == (b"test message 3" if name == "text" else b"\x01\x02\x03\x04")


def test_both_spellings() -> None:
    """Camel case and snake case mean the same, the attempt is told, and attributes are headers."""
    snake = {"data": "aGk=", "message_id": "1", "publish_time": "2026-11-03T10:00:00Z", "ordering_key": "k"}
    one = message_of(json.dumps(ENVELOPE).encode())
    other = message_of(json.dumps({**ENVELOPE, "message": snake, "deliveryAttempt": 3}).encode())
    assert one.message == other.message
    assert (one.attempt, other.attempt) == (None, 3)
    attributes = {**ENVELOPE["message"], "attributes": {"Content-Type": "text/plain", "a": "b"}}
    message = message_of(json.dumps({**ENVELOPE, "message": attributes}).encode()).message
    assert (message.content_type, dict(message.headers)["a"]) == ("text/plain", "b")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"message": None}, "a JSON object with 'message' is needed"),
        ({"subscription": ""}, "'subscription' is missing"),
        ({"message": {"data": "aGk="}}, "'messageId' is missing"),
        ({"message": {"messageId": "1", "data": "a"}}, "'data' is not base64"),
        ({"message": {"messageId": "1", "data": 7}}, "'data' must be text"),
        ({"message": {"messageId": "1", "attributes": {"a": 1}}}, "'attributes' must be an object of texts"),
    ],
)
def test_what_is_no_envelope(change: dict[str, Any], reason: str) -> None:
    """A body that is not Pub/Sub's is refused with what is missing."""
    with pytest.raises(InvalidEvent, match=reason):
        message_of(json.dumps({**ENVELOPE, **change}).encode())


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=2)
FIELDS = st.sampled_from(["data", "messageId", "message_id", "attributes", "publishTime", "orderingKey", "x"])


@given(
    st.binary(max_size=80)
    | st.integers(0, 300).map(lambda size: json.dumps(ENVELOPE).encode()[:size])
    | st.dictionaries(FIELDS, VALUES | st.dictionaries(st.text(), VALUES, max_size=2)).map(
        lambda message: json.dumps({**ENVELOPE, "message": message}).encode()
    )
)
def test_malformed_envelopes(body: bytes) -> None:
    """Cut, mistyped and foreign bodies raise InvalidEvent and nothing else."""
    with suppress(InvalidEvent):
        assert isinstance(message_of(body), Pushed)
