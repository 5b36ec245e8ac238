"""The envelope of Amazon SNS, as it lies in an SQS queue that is subscribed without raw delivery::

    {"Type": "Notification", "MessageId": "d88d…", "TopicArn": "arn:aws:sns:…:orders", "Message": "{…}", …}

The event is the text in ``Message``; what the envelope says about it (id, topic, subject, time, attributes)
is kept, and fields that are not known here go along as headers ``sns.<Name>``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from windsock.events import InvalidEvent, parse_json
from windsock.messages import Message

__all__ = ["Notification", "message_of", "read"]

_TYPES = ("Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation")
_KNOWN = frozenset({"Type", "MessageId", "TopicArn", "Message", "Subject", "Timestamp", "MessageAttributes"})
_PROOF = frozenset(
    {"Signature", "SignatureVersion", "SigningCertURL", "SigningCertUrl", "UnsubscribeURL", "UnsubscribeUrl"}
)
"""What proves a notification to an HTTP endpoint; a queue's policy has done that already."""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """What SNS says about one message."""

    id: str
    topic: str
    """The topic's ARN."""
    text: str
    """The message as it was published."""
    confirmation: bool = False
    """Whether it is SNS that speaks, asking to confirm a subscription or its end, and not a publisher."""
    subject: str | None = None
    time: str | None = None
    attributes: dict[str, Any] = {}
    more: dict[str, Any] = {}
    """Fields that are not known here."""


def read(body: bytes) -> Notification | None:
    """The notification in a message's body, or None if it is none.

    Raises :class:`~windsock.events.InvalidEvent` for one that is broken.
    """
    if b'"TopicArn"' not in body:
        return None
    try:
        fields = parse_json(body)
    except InvalidEvent:
        return None
    if not isinstance(fields, dict) or fields.get("Type") not in _TYPES or "TopicArn" not in fields:
        return None
    for name in ("MessageId", "TopicArn", "Message"):
        if not isinstance(fields.get(name), str):
            raise InvalidEvent(f"SNS notification without a text {name!r}: send it through SNS again")
    return Notification(
        id=fields["MessageId"],
        topic=fields["TopicArn"],
        text=fields["Message"],
        confirmation=fields["Type"] != "Notification",
        subject=_text(fields.get("Subject")),
        time=_text(fields.get("Timestamp")),
        attributes=_attributes(fields.get("MessageAttributes")),
        more={name: value for name, value in fields.items() if name not in _KNOWN | _PROOF},
    )


def message_of(notification: Notification, carrier: Message) -> Message:
    """The published message, with what only the message that carried it knows."""
    headers = {
        **dict(carrier.headers),
        **notification.attributes,
        **{f"sns.{name}": value for name, value in notification.more.items()},
    }
    return Message(
        body=notification.text.encode("utf-8", "surrogatepass"),
        id=notification.id,
        headers=headers,
        key=carrier.key,
        subject=notification.subject or carrier.subject,
        time=notification.time or carrier.time,
        sequence=carrier.sequence,
        correlation=carrier.correlation,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _attributes(given: Any) -> dict[str, Any]:
    """Message attributes by name; those of type Binary as bytes."""
    attributes: dict[str, Any] = {}
    for name, attribute in given.items() if isinstance(given, Mapping) else ():
        if not isinstance(attribute, Mapping):
            attributes[name] = attribute
            continue
        value = attribute.get("Value")
        if attribute.get("Type") == "Binary" and isinstance(value, str):
            try:
                value = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                pass  # kept as the text that it is
        attributes[name] = value
    return attributes
