"""The envelope of EventBridge: real events, and everything that only looks like one."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes import eventbridge
from windsock.events import Event, InvalidEvent
from windsock.messages import Message

CORPUS = Path(__file__).parents[2] / "corpora" / "aws"
REAL = json.loads((CORPUS / "eventBridgeEvent.json").read_bytes())
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def event_in(body: bytes, carrier: Message | None = None) -> Event | None:
    envelope = eventbridge.read(body)
    return None if envelope is None else eventbridge.event_of(envelope, carrier or Message(body=body))


def test_reads_a_real_event() -> None:
    """The event that AWS publishes as an example: detail is the data, the rest is kept in its place."""
    event = event_in((CORPUS / "eventBridgeEvent.json").read_bytes())
    assert event is not None
    assert event.data == {"instance_id": "i-1234567890abcdef0", "state": "terminated"}
    assert event.id == "6a7e8feb-b491-4cf7-a9f1-bf3703467718"
    assert (event.source, event.type) == ("aws.ec2", "EC2 Instance State-change Notification")
    assert event.time == dt.datetime(2017, 12, 22, 18, 43, 48, tzinfo=dt.UTC)
    assert event.subject == "arn:aws:ec2:us-west-1:123456789012:instance/i-1234567890abcdef0"
    assert event.headers == {
        "eventbridge.account": "111122223333",
        "eventbridge.region": "us-west-1",
        "eventbridge.resources": '["arn:aws:ec2:us-west-1:123456789012:instance/i-1234567890abcdef0"]',
        "eventbridge.replay-name": "replay_archive",
    }


def test_keeps_what_the_carrier_says() -> None:
    """Key, sequence and headers of the message that carried the event go along."""
    carrier = Message(body=b"", id="carrier", key="group", sequence="7", headers={"aws.SenderId": "AID"})
    event = event_in(json.dumps(REAL).encode(), carrier)
    assert event is not None
    assert (event.key, event.sequence, event.headers["aws.SenderId"]) == ("group", "7", "AID")


@pytest.mark.parametrize(
    "other", [b"", b"{", b'["detail-type"]', b'"detail-type"', b'{"detail-type": "paid", "detail": {}}']
)
def test_other_messages_are_none(other: bytes) -> None:
    """What is not an event of EventBridge is left to whoever reads the message."""
    assert eventbridge.read(other) is None


@given(changes=st.dictionaries(st.sampled_from([*REAL, "extra"]), PLAIN), cut=st.integers(0, 300))
def test_malformed_events(changes: dict[str, Any], cut: int) -> None:
    """Cut and retyped events are read, refused as invalid, or left alone; nothing else is raised."""
    whole = json.dumps({**REAL, **changes}).encode()
    for variant in (whole, whole[: len(whole) - cut], whole.replace(b"aws", b"\xff")):
        try:
            event_in(variant)
        except InvalidEvent:
            continue
