"""Google Pub/Sub's push envelope: the JSON object in which a subscription posts one message.

::

    pushed = message_of(body)
    pushed.subscription     # 'projects/shop/subscriptions/orders'
    pushed.message.body     # the bytes that were published

Field names come in camel case, in snake case or in both at once, as Pub/Sub sends ``messageId`` and
``publishTime`` today.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from windsock.events import InvalidEvent, parse_json
from windsock.messages import Message

__all__ = ["Pushed", "message_of"]


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """One message and the subscription that pushed it."""

    message: Message
    subscription: str
    attempt: int | None = None
    """How often it was delivered, if the subscription has a dead letter topic."""


def message_of(body: bytes) -> Pushed:
    """What a push request carries; raises :class:`InvalidEvent` if it is not Pub/Sub's envelope."""
    envelope = parse_json(body)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("message"), dict):
        raise InvalidEvent("not a Pub/Sub push: a JSON object with 'message' is needed")
    message = envelope["message"]
    attributes = message.get("attributes") or {}
    if not isinstance(attributes, dict) or not all(isinstance(value, str) for value in attributes.values()):
        raise InvalidEvent("not a Pub/Sub push: 'attributes' must be an object of texts")
    subscription = _text(envelope, "subscription")
    if not subscription:
        raise InvalidEvent("not a Pub/Sub push: 'subscription' is missing")
    attempt = envelope.get("deliveryAttempt")
    return Pushed(
        message=Message(
            body=_data(message.get("data")),
            id=_required(message, "messageId", "message_id"),
            headers=attributes,
            content_type=_content_type(attributes),
            key=_text(message, "orderingKey", "ordering_key"),
            time=_text(message, "publishTime", "publish_time"),
        ),
        subscription=subscription,
        attempt=attempt if isinstance(attempt, int) else None,
    )


def _data(data: Any) -> bytes:
    if data is None:
        return b""
    if not isinstance(data, str):
        raise InvalidEvent("not a Pub/Sub push: 'data' must be text in base64")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidEvent(f"not a Pub/Sub push: 'data' is not base64: {error}") from error


def _content_type(attributes: dict[str, str]) -> str | None:
    return next((value for name, value in attributes.items() if name.lower() == "content-type"), None)


def _required(message: dict[str, Any], *names: str) -> str:
    text = _text(message, *names)
    if text is None:
        raise InvalidEvent(f"not a Pub/Sub push: {names[0]!r} is missing")
    return text


def _text(message: dict[str, Any], *names: str) -> str | None:
    """The first of these fields that holds a text."""
    for name in names:
        value = message.get(name)
        if isinstance(value, str) and value:
            return value
    return None
