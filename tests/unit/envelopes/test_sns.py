"""The envelope of SNS: real notifications, and everything that only looks like one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes import sns
from windsock.events import InvalidEvent
from windsock.messages import Message

CORPUS = Path(__file__).parents[2] / "corpora" / "aws"
ENVELOPE: dict[str, Any] = {
    "Type": "Notification",
    "MessageId": "d88d4479",
    "TopicArn": "arn:aws:sns:eu-west-1:231436140809:orders",
    "Subject": "paid",
    "Message": '{"total": 12}',
    "Timestamp": "2026-01-19T10:07:07.287Z",
    "MessageAttributes": {
        "shop": {"Type": "String", "Value": "north"},
        "mark": {"Type": "Binary", "Value": "AAEC"},
    },
    "SignatureVersion": "1",
    "Signature": "tEo2",
    "SigningCertURL": "https://sns.example.com/cert.pem",
    "UnsubscribeURL": "https://sns.example.com/?Action=Unsubscribe",
}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def body(**changes: Any) -> bytes:
    return json.dumps({**ENVELOPE, **changes}).encode()


def test_reads_a_real_notification() -> None:
    """The notification that AWS publishes as an example gives its text, id, topic and time."""
    record = json.loads((CORPUS / "snsSqsEvent.json").read_bytes())["Records"][0]
    notification = sns.read(record["body"].encode())
    assert notification is not None
    assert json.loads(notification.text) == {"message": "hello world", "username": "lessa"}
    assert notification.id == "d88d4479-6ec0-54fe-b63f-1cf9df4bb16e"
    assert notification.topic == "arn:aws:sns:eu-west-1:231436140809:powertools265"
    assert (notification.time, notification.more) == ("2021-01-19T10:07:07.287Z", {})


def test_the_message_keeps_what_envelope_and_carrier_say() -> None:
    """Id, subject, time and attributes are those of the publication; key and headers the carrier's."""
    notification = sns.read(body(SequenceNumber="10000000000000003000"))
    assert notification is not None
    carrier = Message(body=b"", id="carrier", headers={"aws.SenderId": "AID"}, key="group", sequence="7")
    message = sns.message_of(notification, carrier)
    assert (message.body, message.id, message.subject) == (b'{"total": 12}', "d88d4479", "paid")
    assert (message.key, message.sequence, message.time) == ("group", "7", "2026-01-19T10:07:07.287Z")
    assert message.headers == {
        "aws.SenderId": "AID",
        "shop": "north",
        "mark": b"\x00\x01\x02",
        "sns.SequenceNumber": "10000000000000003000",
    }


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_a_confirmation_is_not_a_publication(kind: str) -> None:
    """What SNS itself says is told apart from what was published."""
    notification = sns.read(body(Type=kind, Token="2336", SubscribeURL="https://sns.example.com/"))
    assert notification is not None
    assert notification.confirmation


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"{",
        b'{"TopicArn": ',
        b'["TopicArn"]',
        b'"TopicArn"',
        b'{"TopicArn": "arn:aws:sns:eu-west-1:1:orders"}',
        b'{"Type": "Order", "TopicArn": "arn:aws:sns:eu-west-1:1:orders", "Message": "x"}',
        b'{"Type": ["Notification"], "TopicArn": 1}',
    ],
)
def test_other_messages_are_none(other: bytes) -> None:
    """What is not a notification is left to whoever reads the message."""
    assert sns.read(other) is None


@pytest.mark.parametrize("name", ["MessageId", "TopicArn", "Message"])
@pytest.mark.parametrize("value", [None, 1, {}, []])
def test_a_broken_notification_is_invalid(name: str, value: Any) -> None:
    """A notification without what every one has is set aside with the field's name."""
    with pytest.raises(InvalidEvent, match=name):
        sns.read(body(**{name: value}))


@given(changes=st.dictionaries(st.sampled_from([*ENVELOPE, "Extra"]), PLAIN), cut=st.integers(0, 400))
def test_malformed_notifications(changes: dict[str, Any], cut: int) -> None:
    """Cut and retyped notifications are read, refused as invalid, or left alone; nothing else is raised."""
    whole = json.dumps({**ENVELOPE, **changes}).encode()
    for variant in (whole, whole[: len(whole) - cut], whole.replace(b"Notification", b"\xff")):
        try:
            notification = sns.read(variant)
        except InvalidEvent:
            continue
        if notification is not None:
            assert isinstance(sns.message_of(notification, Message(body=b"")).body, bytes)
