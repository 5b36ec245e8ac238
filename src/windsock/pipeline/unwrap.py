"""Unwrapping: the event that another system put into its envelope takes the place of the envelope.

| ``unwrap`` | the envelope |
|---|---|
| ``sns`` | an SNS notification, as it lies in an SQS queue |
| ``eventbridge`` | an EventBridge event |
| ``pubsub`` | a Pub/Sub push request |
| ``debezium`` | a Debezium change event, with or without its schema |
| ``cloudevents`` | a CloudEvent in structured mode |

It is the first step, so that filters, keys and schemas see the event itself. What is not in the envelope that
was named becomes a dead letter. Sources that know an envelope open it by themselves; this is for those that
do not, such as CloudEvents in a table's column or SNS notifications in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from windsock import cloudevents
from windsock.envelopes import debezium, eventbridge, pubsub_push, sns
from windsock.events import Event, InvalidEvent, Verdict
from windsock.messages import Message, MessageOptions, event_of
from windsock.pipeline.base import Result, set_aside
from windsock.spec import SpecError

__all__ = ["ENVELOPES", "UnwrapStep"]

_AUTO = MessageOptions(conn_id="none")


class UnwrapStep:
    """Takes events out of one kind of envelope."""

    name = "unwrap"

    def __init__(self, envelope: str, *, watcher: str) -> None:
        if envelope not in ENVELOPES:
            known = ", ".join(ENVELOPES)
            raise SpecError(
                f"watcher {watcher!r}: unwrap={envelope!r} is no known envelope: use one of {known}"
            )
        self._envelope = envelope
        self._open = ENVELOPES[envelope]

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into opened ones, ones that mean nothing, and those in another envelope."""
        result = Result([])
        for event in events:
            try:
                opened = self._open(event)
            except InvalidEvent as error:
                reason = f"it is not in the envelope {self._envelope!r}: {error}"
                result.dead.append(set_aside(event, stage=self.name, reason=reason))
            else:
                if opened is None:
                    result.filtered.append(Verdict(stage=self.name, verdict="filtered", event=event))
                else:
                    result.kept.append(opened)
        return result


def _body(event: Event) -> bytes:
    return event.data if event.binary else msgspec.json.encode(event.data)


def _carrier(event: Event) -> Message:
    """The event as the message that carried the envelope."""
    return Message(
        body=b"",
        id=event.id,
        headers=event.headers,
        key=event.key,
        subject=event.subject,
        time=event.time,
        sequence=event.sequence,
        correlation=event.correlation,
    )


def _sns(event: Event) -> Event | None:
    notification = sns.read(_body(event))
    if notification is None:
        raise InvalidEvent("an SNS notification has 'Type' and 'TopicArn'")
    if notification.confirmation:
        return None
    message = sns.message_of(notification, _carrier(event))
    return event_of(message, _AUTO, source=notification.topic, kind="sns")


def _eventbridge(event: Event) -> Event:
    envelope = eventbridge.read(_body(event))
    if envelope is None:
        raise InvalidEvent("an EventBridge event has 'detail-type', 'source', 'id', 'time' and 'detail'")
    return eventbridge.event_of(envelope, _carrier(event))


def _pubsub(event: Event) -> Event:
    pushed = pubsub_push.message_of(_body(event))
    return event_of(pushed.message, _AUTO, source=pushed.subscription, kind="pubsub")


def _debezium(event: Event) -> Event | None:
    value = event.data if isinstance(event.data, Mapping) or event.data is None else _body(event)
    options = debezium.ChangeOptions()
    return debezium.change_of(value, options, key=event.key, headers=event.headers, carrier=event.id)


def _cloudevents(event: Event) -> Event:
    if not isinstance(event.data, Mapping) and not event.binary:
        raise InvalidEvent("a CloudEvent in structured mode is a JSON object")
    opened = cloudevents.from_structured(event.data)
    return msgspec.structs.replace(opened, headers=event.headers, key=opened.key or event.key)


ENVELOPES: dict[str, Callable[[Event], Event | None]] = {
    "sns": _sns,
    "eventbridge": _eventbridge,
    "pubsub": _pubsub,
    "debezium": _debezium,
    "cloudevents": _cloudevents,
}
"""Envelope → what opens it: None for a message that means nothing, InvalidEvent for another envelope."""
