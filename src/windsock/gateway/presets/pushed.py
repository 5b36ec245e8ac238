"""Systems that push their messages in an envelope: Pub/Sub, Event Grid, SNS, Debezium Server.

A request that is not the system's envelope is refused. Inside a good envelope, what cannot become an event is
a dead letter and the system is told that it arrived: it would send the same thing again for ever.
"""

from __future__ import annotations

import logging

import msgspec
from fastapi import Response

from windsock.envelopes import debezium, eventgrid, pubsub_push
from windsock.events import DeadLetter, Event, InvalidEvent, parse_json
from windsock.gateway.documents import Fetch
from windsock.gateway.intake import Intake, bounded
from windsock.gateway.presets import sns
from windsock.gateway.refusal import Refused
from windsock.gateway.sent import Sent
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources.webhook import WebhookConfig

__all__ = ["greet_eventgrid", "greet_sns", "read_debezium", "read_eventgrid", "read_pubsub", "read_sns"]

logger = logging.getLogger("windsock.gateway")

_LAYOUT = dict.fromkeys(map(ord, "\t\r\n"))
"""What a text has beside its letters."""


def read_pubsub(watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
    """The one message of a Pub/Sub push; CloudEvents in it are recognised."""
    pushed = pubsub_push.message_of(sent.body)
    return _message(pushed.message, config, source=f"pubsub://{pushed.subscription}", kind="pubsub")


def read_sns(watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
    """The one message of an SNS notification, or nothing when SNS speaks of the subscription's end."""
    message = sns.message_of(sent, signed=config.scheme == "sns")
    if message is None:
        return Intake([], batch=True)
    topic = config.sender or sent.headers.get("x-amz-sns-topic-arn") or watcher
    return _message(message, config, source=f"sns://{topic}", kind="sns")


async def greet_sns(config: WebhookConfig, sent: Sent, read: Fetch) -> Response | None:
    """Confirm a subscription if the watcher says so; else put its address into the log."""
    asked = sns.confirmation(sent)
    if asked is None:
        return None
    topic, address = asked
    if not config.confirm:
        logger.warning(
            "windsock.gateway.subscription_unconfirmed topic=%s (open this address, or set confirm=True): %s",
            topic,
            address,
        )
        return _json({"status": "unconfirmed"})
    try:
        await read(address)
    except Exception as error:  # a client may raise anything
        logger.error("windsock.gateway.confirmation_failed topic=%s error=%s", topic, type(error).__name__)
        raise Refused(503, "the subscription could not be confirmed: try again", retry_after=30) from error
    logger.info("windsock.gateway.subscription_confirmed topic=%s", topic)
    return _json({"status": "confirmed"})


def read_eventgrid(watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
    """The events of one delivery of Event Grid, in either schema."""
    events, dead = eventgrid.events_of(sent.body)
    return _bounded(events, dead)


async def greet_eventgrid(config: WebhookConfig, sent: Sent, read: Fetch) -> Response | None:
    """Answer Event Grid's question whether this endpoint wants its events."""
    if sent.headers.get("aeg-event-type") != "SubscriptionValidation":
        return None
    asked = parse_json(sent.body)
    first = asked[0] if isinstance(asked, list) and asked else asked
    data = first.get("data") if isinstance(first, dict) else None
    code = data.get("validationCode") if isinstance(data, dict) else None
    if not isinstance(code, str):
        raise InvalidEvent("the validation has no 'validationCode'")
    return _json({"validationResponse": code})


def read_debezium(watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
    """The change that Debezium Server sent, or nothing if it is not wanted."""
    parse_json(sent.body)  # what is not JSON did not come from Debezium and is refused
    try:
        event = debezium.change_of(sent.body, config.changes)
        return Intake([bounded(event)] if event else [], batch=event is None)
    except InvalidEvent as error:
        return Intake([], [unreadable(sent.body, error)])


def _message(message: Message, config: WebhookConfig, *, source: str, kind: str) -> Intake:
    named = None if config.type == WebhookConfig(auth="none").type else config.type
    options = MessageOptions(conn_id="gateway", type=named)
    if message.content_type is None:
        message = msgspec.structs.replace(message, content_type=_content_type(message.body))
    try:
        return Intake([bounded(event_of(message, options, source=source, kind=kind))])
    except InvalidEvent as error:
        return Intake([], [unreadable(message.body, error, where=message.id)])


def _content_type(body: bytes) -> str:
    """What a message is that does not say it: JSON, text or bytes."""
    try:
        parse_json(body)
    except InvalidEvent:
        pass
    else:
        return "application/json"
    try:
        text = body.decode("utf-8").translate(_LAYOUT)
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain" if text.isprintable() else "application/octet-stream"


def _bounded(events: list[Event], dead: list[DeadLetter]) -> Intake:
    good: list[Event] = []
    for event in events:
        try:
            good.append(bounded(event))
        except InvalidEvent as error:
            dead.append(unreadable(event.encode(), error))
    return Intake(good, dead, batch=True)


def _json(value: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(value), 200, media_type="application/json")
