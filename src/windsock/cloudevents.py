"""CloudEvents 1.0 on the wire: JSON structured, binary HTTP and batch mode, in and out.

::

    parsed = from_http(headers, body)      # whichever of the three modes it is in
    headers, body = to_binary(event)       # attributes in ce-* headers, data as the body
    body = to_structured(event)            # one JSON object
    body = to_batch(events)                # a JSON array of them

Windsock's own attributes travel as the extensions that CloudEvents documents or that are customary:
``key`` as ``partitionkey``, ``sequence``, ``traceparent``, ``correlation`` as ``correlationid`` and
``cause`` as ``causationid``. Reading is strict about what identifies an event and where specification and
payload contradict each other, and lenient about the rest: JSON ``null`` and an empty optional attribute count
as absent, and extensions that nobody knows are kept.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from windsock.events import Category, DeadLetter, Event, InvalidEvent, parse_json

__all__ = [
    "BATCH",
    "STRUCTURED",
    "Parsed",
    "UnsupportedFormat",
    "data_of",
    "from_attributes",
    "from_batch",
    "from_http",
    "from_structured",
    "to_batch",
    "to_binary",
    "to_structured",
]

STRUCTURED = "application/cloudevents+json"
"""The content type of :func:`to_structured`."""
BATCH = "application/cloudevents-batch+json"
"""The content type of :func:`to_batch`."""

_JSON = "application/json"
_BYTES = "application/octet-stream"
_EXTENSIONS = {
    "partitionkey": "key",
    "sequence": "sequence",
    "traceparent": "traceparent",
    "correlationid": "correlation",
    "causationid": "cause",
}
_TEXTS = ("id", "source", "type", "time", "subject", "datacontenttype", "dataschema")
_CHARSETS = {"ascii", "cp1252", "iso8859-1", "iso8859-15", "utf-8", "utf-16", "utf-16-be", "utf-16-le"}
_NAME = re.compile(r"[a-z0-9]+")
_UNSAFE = re.compile(r"[^!#$&-~]")
_HEADER = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class UnsupportedFormat(InvalidEvent):
    """The content type names an event format that Windsock does not read; send JSON."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a request brought: its events, and what of a batch could not become one."""

    events: list[Event]
    dead: list[DeadLetter] = field(default_factory=list)


class _Ambiguous(dict[str, Any]):
    """A JSON object in which a name occurs twice."""


def from_http(headers: Mapping[str, str], body: bytes) -> Parsed:
    """The events of an HTTP message in any of the three modes.

    Raises :class:`InvalidEvent`, which names the attribute, when there is nothing to keep. A bad element of
    a batch becomes a dead letter instead, and its neighbours are read.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    media_type, charset = _content_type(lower.get("content-type"))
    if media_type.startswith("application/cloudevents"):
        if media_type not in (STRUCTURED, BATCH):
            raise UnsupportedFormat(f"content type {media_type!r}: send {STRUCTURED!r} or {BATCH!r}")
        if charset != "utf-8":
            body = _decoded(body, charset).encode()
        return from_batch(body) if media_type == BATCH else Parsed([from_structured(body)])
    return Parsed([_from_binary(lower, body)])


def from_structured(document: bytes | Mapping[str, Any]) -> Event:
    """The event in a JSON object; raises :class:`InvalidEvent`, which names the attribute."""
    members = _load(document) if isinstance(document, bytes) else document
    if not isinstance(members, Mapping):
        raise InvalidEvent("a CloudEvent in structured mode is a JSON object")
    if isinstance(members, _Ambiguous):
        raise InvalidEvent("an attribute occurs twice in the JSON object")
    attributes = {name: value for name, value in members.items() if value is not None}
    data, encoded = attributes.pop("data", None), attributes.pop("data_base64", None)
    if encoded is not None:
        if data is not None:
            raise InvalidEvent("attributes 'data' and 'data_base64' are both present: send one of them")
        try:
            data = base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError) as error:
            raise InvalidEvent(f"attribute 'data_base64' is not base64: {error}") from error
    for name, value in attributes.items():
        text_only = name in _TEXTS or name == "specversion"
        if not isinstance(value, str if text_only else str | int):
            kind = "text" if text_only else "text, an integer or a boolean"
            raise InvalidEvent(f"attribute {name!r} must be {kind}")
    return _event(attributes, data)


def from_batch(body: bytes) -> Parsed:
    """The events in a JSON array; elements that are none become dead letters."""
    elements = _load(body)
    if not isinstance(elements, list):
        raise InvalidEvent("a CloudEvents batch is a JSON array")
    parsed = Parsed([])
    for element in elements:
        try:
            if not isinstance(element, dict):
                raise InvalidEvent("a CloudEvent in a batch is a JSON object")
            parsed.events.append(from_structured(element))
        except InvalidEvent as error:
            try:
                original = json.dumps(element).encode()
            except RecursionError:
                original = body
            parsed.dead.append(
                DeadLetter(stage="parse", category=Category.INVALID, reason=str(error), body=original)
            )
    return parsed


def data_of(content_type: str | None, body: bytes) -> Any:
    """The data in a body: a JSON value, text or bytes, as its content type says; None if the body is empty.

    Without a content type a body that is JSON is taken as JSON. Text that is not in its charset stays bytes;
    JSON that is not raises :class:`InvalidEvent`.
    """
    if not body:
        return None
    media_type, charset = _content_type(content_type)
    if _is_json(media_type):
        return parse_json(body if charset == "utf-8" else _decoded(body, charset).encode())
    try:
        if not media_type:
            return parse_json(body)
        return _decoded(body, charset) if _is_text(media_type) else body
    except InvalidEvent:
        return body


def to_structured(event: Event) -> bytes:
    """The event as one JSON object, in UTF-8."""
    return msgspec.json.encode(_members(event))


def to_batch(events: Sequence[Event]) -> bytes:
    """The events as one JSON array, in UTF-8."""
    return msgspec.json.encode([_members(event) for event in events])


def to_binary(event: Event) -> tuple[dict[str, str], bytes]:
    """The headers and the body that carry the event over HTTP.

    Headers carry extensions as text, so an integer or boolean extension comes back as its text. Data that
    the binary mode cannot carry unchanged (a text under a content type of bytes, an object under one of
    text, and the like) is sent in structured mode, which every receiver has to take.
    """
    content_type, body = _body(event)
    if not _faithful(event, content_type, body):
        return {"content-type": STRUCTURED}, to_structured(event)
    headers = {f"ce-{name}": _percent(_header_text(value)) for name, value in _attributes(event).items()}
    headers.pop("ce-datacontenttype", None)
    if content_type is not None:
        headers["content-type"] = content_type
    return headers, body


def _from_binary(headers: Mapping[str, str], body: bytes) -> Event:
    if "ce-specversion" not in headers:
        raise InvalidEvent(
            "attribute 'specversion' is missing: this is not a CloudEvent; send the ce-specversion, ce-id, "
            f"ce-source and ce-type headers, or the content type {STRUCTURED!r}"
        )
    attributes: dict[str, Any] = {}
    for name, value in headers.items():
        if name.startswith("ce-"):
            attributes[name[3:]] = _unpercent(name[3:], value)
    return from_attributes(attributes, headers.get("content-type"), body)


def from_attributes(attributes: dict[str, Any], content_type: str | None, body: bytes) -> Event:
    """The event of a message in binary mode, its attributes by their CloudEvents names without a prefix."""
    content_type = content_type or attributes.get("datacontenttype")
    try:
        data = data_of(content_type, body)
    except InvalidEvent as error:
        raise InvalidEvent(f"data under content type {content_type!r} is {error}") from error
    return _event({**attributes, "datacontenttype": content_type}, data)


def _event(attributes: dict[str, Any], data: Any) -> Event:
    """An event from CloudEvents names and values that are not null."""
    version = attributes.pop("specversion", None)
    if version != "1.0":
        if version is None:
            raise InvalidEvent("attribute 'specversion' is missing: send '1.0'")
        raise InvalidEvent(f"attribute 'specversion' is {version!r}: only '1.0' is read, not 0.3 or others")
    if not attributes.get("id"):
        raise InvalidEvent("attribute 'id' is missing or empty")
    known: dict[str, Any] = {name: attributes.pop(name, None) for name in _TEXTS}
    known |= {ours: attributes.pop(theirs, None) for theirs, ours in _EXTENSIONS.items()}
    for name in attributes:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidEvent(f"attribute {name!r} is not named in lower-case letters and digits")
    known["time"] = known["time"] or None
    return Event.make(data, extensions=attributes, **known)


def _attributes(event: Event) -> dict[str, str | int | bool]:
    """The event's context attributes by their CloudEvents names."""
    named: dict[str, Any] = {"specversion": "1.0"}
    named |= {name: getattr(event, name) for name in _TEXTS}
    named |= {theirs: getattr(event, ours) for theirs, ours in _EXTENSIONS.items()}
    if event.time is not None:
        named["time"] = msgspec.to_builtins(event.time)
    return {name: value for name, value in named.items() if value is not None} | event.extensions


def _members(event: Event) -> dict[str, Any]:
    members: dict[str, Any] = _attributes(event)
    if event.binary:
        members["data_base64"] = base64.b64encode(event.data).decode("ascii")
    elif event.data is not None:
        members.setdefault("datacontenttype", _JSON)
        members["data"] = event.data
    return members


def _body(event: Event) -> tuple[str | None, bytes]:
    """The content type and body of the binary mode; whether they are faithful is for the caller to see."""
    content_type = event.datacontenttype
    if event.binary:
        return content_type or _BYTES, event.data
    if event.data is None:
        return content_type, b""
    media_type, charset = _content_type(content_type)
    if isinstance(event.data, str) and content_type and not _is_json(media_type):
        text = event.data
    else:
        text, content_type = msgspec.json.encode(event.data).decode(), content_type or _JSON
    try:
        return content_type, text.encode(charset if charset in _CHARSETS else "utf-8")
    except UnicodeEncodeError:
        return content_type, b""  # not what the event holds, which the caller sees


def _faithful(event: Event, content_type: str | None, body: bytes) -> bool:
    """Whether a receiver of the binary mode gets the data that was sent."""
    if content_type is None:
        return True
    if not _HEADER.fullmatch(content_type) or content_type.lower().startswith("application/cloudevents"):
        return False
    try:
        data = data_of(content_type, body)
    except InvalidEvent:
        return False
    return type(data) is type(event.data) and data == event.data


def _load(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"the body is not JSON in UTF-8: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _Ambiguous(members)


def _content_type(value: str | None) -> tuple[str, str]:
    """The media type and the charset (Python's name for it, else as given; UTF-8 if none is)."""
    media_type, *parameters = (value or "").split(";")
    charset = "utf-8"
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = text.strip().strip('"').lower()
    try:
        charset = codecs.lookup(charset).name
    except (LookupError, ValueError):
        pass  # an unknown charset is refused where something must be decoded with it
    return media_type.strip().lower(), charset


def _decoded(body: bytes, charset: str) -> str:
    if charset not in _CHARSETS:
        raise InvalidEvent(f"in the charset {charset!r}, which is not read: send UTF-8")
    try:
        return body.decode(charset)
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"not in the charset {charset!r}: {error}") from error


def _is_json(media_type: str) -> bool:
    return media_type in (_JSON, "text/json") or media_type.endswith("+json")


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("/xml", "+xml", "/yaml", "-urlencoded"))


def _header_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _percent(text: str) -> str:
    """A header's value: space, double quote, percent and all that is not printable ASCII is encoded."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def _unpercent(name: str, value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"attribute {name!r} is not percent-encoded UTF-8") from error
