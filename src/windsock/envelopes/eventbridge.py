"""The envelope of Amazon EventBridge, as its rules put it into queues and topics::

    {"id": "6a7e…", "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
     "time": "2017-12-22T18:43:48Z", "account": "…", "region": "…", "resources": ["arn:…"], "detail": {…}}

The event's data is ``detail``; id, time, source and type are the envelope's, the subject is its resource if
there is exactly one. Account, region, resources and fields that are not known here go along as headers
``eventbridge.<name>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windsock.events import Event, InvalidEvent, parse_json
from windsock.messages import Message

__all__ = ["event_of", "read"]

_NEEDED = ("id", "source", "detail-type", "time")
_ELSEWHERE = frozenset({*_NEEDED, "detail", "version"})
"""Fields that the event has a place for; ``version`` is EventBridge's own and always 0."""


def read(body: bytes) -> dict[str, Any] | None:
    """The envelope in a message's body, or None if it is none."""
    if b'"detail-type"' not in body:
        return None
    try:
        fields = parse_json(body)
    except InvalidEvent:
        return None
    if not isinstance(fields, dict) or "detail" not in fields:
        return None
    return fields if all(isinstance(fields.get(name), str) for name in _NEEDED) else None


def event_of(envelope: Mapping[str, Any], carrier: Message) -> Event:
    """The event in an envelope, with what only the message that carried it knows.

    Raises :class:`~windsock.events.InvalidEvent` for what cannot be one.
    """
    resources = envelope.get("resources")
    only = resources[0] if isinstance(resources, list) and len(resources) == 1 else None
    more = {f"eventbridge.{name}": value for name, value in envelope.items() if name not in _ELSEWHERE}
    return Event.make(
        envelope["detail"],
        id=envelope["id"],
        source=envelope["source"],
        type=envelope["detail-type"],
        time=envelope["time"],
        subject=only if isinstance(only, str) else carrier.subject,
        key=carrier.key,
        sequence=carrier.sequence,
        correlation=carrier.correlation,
        headers={**dict(carrier.headers), **more},
    )
