"""From a broker's message to an event: the body read as its format says, CloudEvents recognised.

Every message source hands its messages over in the same way, so that an event looks the same wherever it came
from::

    event = event_of(
        Message(body=record.value, id="orders/3/1017", headers=record.headers, key=record.key),
        self.options, source="kafka://shop/orders",
    )

CloudEvents come in structured mode (content type ``application/cloudevents+json``, or a JSON object that has
``specversion``, ``id``, ``source`` and ``type``) and in the binary modes of the Kafka (``ce_id``), AMQP
(``cloudEvents:id``), NATS and HTTP (``ce-id``) and MQTT (``id``) bindings; their own id, source and type then
win over the message's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from windsock import cloudevents
from windsock.events import Category, DeadLetter, Event, InvalidEvent, clean_text, parse_json, plain_json

__all__ = ["Message", "MessageOptions", "event_of", "events_of", "unreadable"]

_PREFIXES = ("ce_", "ce-", "cloudEvents:", "cloudEvents_", "cloudevents:", "cloudevents_")
_REQUIRED = ("specversion", "id", "source", "type")
_PROBE = b'"specversion"'


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every source of messages takes."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the system.", min_length=1)]
    format: Annotated[
        Literal["auto", "json", "text", "bytes", "cloudevents"],
        Meta(
            description="How a message's body is read. 'auto': a CloudEvent if it is one, else as its "
            "content type says, else JSON. What cannot be read so becomes a dead letter."
        ),
    ] = "auto"
    type: Annotated[
        str | None,
        Meta(description="Event type of a message that names none itself; by default 'windsock.<kind>'."),
    ] = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message as its client library handed it over."""

    body: bytes
    id: str | None = None
    """What makes it this message and no other, the same at every redelivery."""
    headers: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()
    content_type: str | None = None
    key: Any = None
    subject: Any = None
    time: dt.datetime | float | str | None = None
    sequence: Any = None
    correlation: Any = None


def event_of(message: Message, options: MessageOptions, *, source: str, kind: str) -> Event:
    """The event of a message; raises :class:`InvalidEvent`, which says what is wrong and what to set."""
    headers = _joined(message.headers) if message.headers else {}
    content_type = message.content_type or (_header(headers, "content-type") if headers else None)
    if options.format in ("auto", "cloudevents"):
        event = _cloud_event(message.body, headers, content_type)
        if event is not None:
            return _completed(event, message, headers)
        if options.format == "cloudevents":
            raise InvalidEvent(
                "not a CloudEvent: the message has neither the content type 'application/cloudevents+json' "
                "nor the attributes as headers; send one, or set format='auto'"
            )
    data, plain = _data(message.body, options.format, content_type)
    return Event.make(
        data,
        id=message.id,
        source=source,
        type=options.type or f"windsock.{kind}",
        time=message.time,
        subject=message.subject,
        key=message.key,
        sequence=message.sequence,
        correlation=message.correlation,
        traceparent=_header(headers, "traceparent") if headers else None,
        datacontenttype=content_type,
        headers=headers,
        plain=plain,
    )


def events_of(
    messages: Iterable[Message], options: MessageOptions, *, source: str, kind: str
) -> tuple[list[Event], list[DeadLetter]]:
    """The events of many messages, and dead letters for those that are none."""
    events: list[Event] = []
    dead: list[DeadLetter] = []
    for message in messages:
        try:
            events.append(event_of(message, options, source=source, kind=kind))
        except InvalidEvent as error:
            dead.append(unreadable(message.body, error, where=message.id))
    return events, dead


def unreadable(body: bytes, error: Exception, *, where: str | None = None) -> DeadLetter:
    """The dead letter of something that a source could not read; ``where`` finds it in its system again."""
    reason = clean_text(f"{where}: {error}" if where else str(error))
    return DeadLetter(stage="source", category=Category.INVALID, reason=reason, body=bytes(body))


def _joined(headers: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Headers by name; a name that occurs twice has both values, as in HTTP."""
    if isinstance(headers, Mapping):
        return dict(headers)
    joined: dict[str, Any] = {}
    for name, value in headers:
        joined[name] = f"{_text(joined[name])}, {_text(value)}" if name in joined else value
    return joined


def _header(headers: Mapping[str, Any], name: str) -> str | None:
    for known, value in headers.items():
        if known.lower() == name and value is not None:
            return _text(value)
    return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _cloud_event(body: bytes, headers: Mapping[str, Any], content_type: str | None) -> Event | None:
    if content_type and content_type.lower().startswith("application/cloudevents"):
        if not content_type.lower().startswith(cloudevents.STRUCTURED):
            raise cloudevents.UnsupportedFormat(
                f"content type {content_type!r}: only {cloudevents.STRUCTURED!r} is read from messages"
            )
        return cloudevents.from_structured(body)
    attributes = _attributes(headers)
    if attributes is not None:
        return cloudevents.from_attributes(attributes, content_type, body)
    if _PROBE in body and body.lstrip()[:1] == b"{":
        try:
            document = parse_json(body)
        except InvalidEvent:
            return None
        if all(isinstance(document.get(name), str) for name in _REQUIRED):
            return cloudevents.from_structured(document)
    return None


def _attributes(headers: Mapping[str, Any]) -> dict[str, Any] | None:
    """The context attributes that the headers carry, if it is a CloudEvent in binary mode."""
    if not headers:
        return None
    for prefix in _PREFIXES:
        if f"{prefix}specversion" in headers:
            read = unquote if prefix == "ce-" else str
            return {
                name.removeprefix(prefix): read(_text(value))
                for name, value in headers.items()
                if name.startswith(prefix) and value is not None
            }
    if all(name in headers for name in _REQUIRED):  # MQTT's user properties have no prefix
        return {name: _text(value) for name, value in headers.items() if name != "content-type"}
    return None


def _completed(event: Event, message: Message, headers: Mapping[str, Any]) -> Event:
    """A CloudEvent with what only its message says."""
    rest = {n: v for n, v in headers.items() if not n.startswith(_PREFIXES) and n.lower() != "content-type"}
    made = Event.make(
        source=event.source, type=event.type, key=message.key, time=message.time, headers=rest,
        correlation=message.correlation, sequence=message.sequence,
    )  # fmt: skip
    return msgspec.structs.replace(
        event,
        key=event.key or made.key,
        time=event.time or made.time,
        sequence=event.sequence or made.sequence,
        correlation=event.correlation or made.correlation,
        headers=made.headers,
    )


def _data(body: bytes, format: str, content_type: str | None) -> tuple[Any, bool]:
    """What the body says, and whether that is plain already."""
    if not body:
        return None, True
    if format == "bytes":
        return body, False
    if format == "text":
        try:
            return body.decode("utf-8"), False
        except UnicodeDecodeError as error:
            raise InvalidEvent(f"not text in UTF-8 ({error}): set format='bytes'") from error
    try:
        if format == "json" or not content_type or content_type == "application/json":
            return plain_json(body), True
        return cloudevents.data_of(content_type, body), False
    except InvalidEvent as error:
        raise InvalidEvent(f"{error}; if it is not meant to be JSON, set format='text' or 'bytes'") from error
