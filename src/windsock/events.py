"""Event, dead letter and the errors that every room shares.

An event has the CloudEvents 1.0 shape plus Windsock's own extensions (``key``, ``sequence``,
``traceparent``, ``correlation``, ``cause``). It is immutable. ``encode``/``decode`` are the compact form
that the log stores; the CloudEvents wire forms are in :mod:`windsock.cloudevents`.

``Event.make`` takes whatever a source hands over and returns a valid event, or raises
:class:`InvalidEvent`, which the runner turns into a dead letter.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from windsock.values import (
    InvalidEvent,
    WindsockError,
    clean_text,
    describe,
    normalise,
    parse_json,
    parse_time,
    plain_json,
    scalar_text,
)

__all__ = [
    "Category",
    "DeadLetter",
    "Event",
    "InvalidEvent",
    "LeaseLost",
    "SourceError",
    "Verdict",
    "WindsockError",
    "clean_text",
    "dedup_hash",
    "normalise",
    "parse_json",
    "parse_time",
    "plain_json",
]

MAX_EVENT_BYTES = 1_000_000
"""Default cap on one encoded event; larger ones become dead letters."""

MAX_IDENTITY_BYTES = 2048
"""Cap on ``id``, ``source``, ``type`` and ``key``: they are indexed, and an index entry is bounded."""

_SHORT = MAX_IDENTITY_BYTES // 4
_BINARY = (bytes, bytearray, memoryview)
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_EXTENSION_NAME = re.compile(r"[a-z0-9]+")
_RESERVED = {
    *("id", "source", "type", "specversion", "time", "subject", "data", "datacontenttype", "dataschema"),
    *("partitionkey", "sequence", "traceparent", "correlationid", "causationid"),
}
"""CloudEvents names that an :class:`Event` has a field for."""


class LeaseLost(WindsockError):
    """The lease was taken over by another owner; stop reading, append and ack nothing more."""


class SourceError(WindsockError):
    """A source cannot reach or read its system; the message names the remedy. Retried with backoff."""


class Category(enum.StrEnum):
    """Why an event was set aside."""

    INVALID = "invalid"
    """It could not be parsed, is too large, or failed a step."""
    TRANSIENT = "transient"
    """Something else failed, which may work again later: a Dag said so with ``windsock.Transient``."""
    EXPIRED = "expired"
    """It waited longer than the watcher's ``max_age``."""
    POISON = "poison"
    """Every run that claimed it failed, ``max_attempts`` times."""
    REJECTED = "rejected"
    """A Dag set it aside with ``windsock.dead_letter``."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not go on, with the reason and the original bytes."""

    stage: str
    category: Category
    reason: str
    body: bytes
    error: str | None = None
    event_id: str | None = None
    """The event's id, if it had become one."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A stage's decision that ended an event's way without a dead letter: filtered, or a duplicate."""

    stage: str
    verdict: str
    event: Event
    reason: str = ""
    seq: int | None = None
    """The event in the log that this one is a duplicate of."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One thing that happened, in the CloudEvents 1.0 shape.

    The garbage collector passes events by, since a burst is many of them: what they hold is JSON or bytes
    and has no cycles.
    """

    id: str
    source: str
    type: str
    time: dt.datetime | None = None
    subject: str | None = None
    data: Any = None
    """Plain JSON values, or ``bytes`` when ``binary`` is true."""
    binary: bool = False
    datacontenttype: str | None = None
    dataschema: str | None = None
    key: str | None = None
    """Events with one key keep their order; also the grouping of ``claim(by="key")``."""
    sequence: str | None = None
    traceparent: str | None = None
    correlation: str | None = None
    cause: str | None = None
    extensions: dict[str, str | int | bool] = {}
    """CloudEvents extension attributes that Windsock does not interpret, kept as they came."""
    headers: dict[str, str] = {}
    """What the message carried beside its body: Kafka, AMQP and NATS headers, SQS attributes, as text."""
    seq: int | None = None
    """Position in the log; set on events that come out of the log."""
    attempt: int = 0
    """How many runs have failed with this event before; set by a claim."""
    replay: str | None = None
    """The replay that delivers it once more; set by a claim."""

    @classmethod
    def make(
        cls,
        data: Any = None,
        *,
        source: object,
        type: object,
        id: object = None,
        time: dt.date | float | str | None = None,
        subject: object = None,
        datacontenttype: object = None,
        dataschema: object = None,
        key: object = None,
        sequence: object = None,
        traceparent: object = None,
        correlation: object = None,
        cause: object = None,
        extensions: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        plain: bool = False,
    ) -> Event:
        """Build an event from anything a source can hand over.

        Data is normalised to JSON values (see :func:`normalise`), except that bytes stay bytes; times become
        aware datetimes; numbers, UUIDs and the like become text where an attribute is text, and an empty
        optional attribute counts as absent. Without an ``id`` a random one is taken, so the event is never a
        duplicate of another. The default content type (``application/json``, ``application/octet-stream``
        for bytes) is left out. ``plain`` says that the data is normalised already, as what
        :func:`plain_json` reads is.
        """
        binary = isinstance(data, _BINARY)
        content_type = None if datacontenttype is None else _text("datacontenttype", datacontenttype)
        if content_type == ("application/octet-stream" if binary else "application/json"):
            content_type = None
        return cls(
            id=_identity("id", id) or str(uuid.uuid4()),
            source=_required("source", source),
            type=_required("type", type),
            time=parse_time(time),
            subject=None if subject is None else _text("subject", subject),
            data=_bytes(data) if binary else data if plain else normalise(data),
            binary=binary,
            datacontenttype=content_type,
            dataschema=None if dataschema is None else _text("dataschema", dataschema),
            key=_identity("key", key),
            sequence=None if sequence is None else _text("sequence", sequence),
            traceparent=None if traceparent is None else _text("traceparent", traceparent),
            correlation=None if correlation is None else _text("correlation", correlation),
            cause=None if cause is None else _text("cause", cause),
            extensions=_extensions(extensions) if extensions else {},
            headers=_headers(headers) if headers else {},
        )

    def encode(self) -> bytes:
        """The compact JSON that the log stores; :meth:`decode` reads back an equal event."""
        return _encoder.encode(self)

    @classmethod
    def decode(
        cls, body: bytes, *, seq: int | None = None, attempt: int = 0, replay: str | None = None
    ) -> Event:
        """Read what :meth:`encode` wrote, and where in the log it was found."""
        try:
            event = _decoder.decode(body)
            if event.binary:
                _set(event, "data", base64.b64decode(event.data, validate=True))
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidEvent(f"stored event cannot be read: {describe(error)}") from error
        # Nobody else has it yet, so it need not be copied.
        _set(event, "seq", seq)
        _set(event, "attempt", attempt)
        _set(event, "replay", replay)
        return event

    def as_dict(self) -> dict[str, Any]:
        """The event as plain JSON values, as a mapped task sees it; :meth:`from_dict` reads it back."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        for name in _ALWAYS:
            value.setdefault(name, getattr(self, name))
        return value

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Event:
        """The event behind what :meth:`as_dict` returned."""
        try:
            event = msgspec.convert(value, cls)
            if event.binary:
                event = msgspec.structs.replace(event, data=base64.b64decode(event.data, validate=True))
        except (ValueError, TypeError) as error:
            raise InvalidEvent(f"not an event: {describe(error)}") from error
        return event


_ALWAYS = ("time", "subject", "key", "data", "attempt")
"""What a mapped task may look up without asking whether it is there."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)
_set = msgspec.structs.force_setattr


def dedup_hash(scope: str, key: str) -> bytes:
    """The 16 bytes under which a dedup key is remembered inside its scope."""
    return hashlib.blake2b(f"{scope}\0{key}".encode("utf-8", "replace"), digest_size=16).digest()


def _text(name: str, value: object) -> str | None:
    """An attribute's value as text, or None if it is absent or empty."""
    if value is None:
        return None
    if type(value) is str:
        return clean_text(value) or None
    if isinstance(value, bytes | bytearray | memoryview):
        return clean_text(_bytes(value).decode("utf-8", "backslashreplace")) or None
    try:
        return scalar_text(value) or None
    except InvalidEvent as error:
        raise InvalidEvent(f"attribute {name!r} cannot be text: {error}") from error


def _identity(name: str, value: object) -> str | None:
    if type(value) is str and 0 < len(value) < _SHORT and value.isascii() and "\0" not in value:
        return value  # the usual one
    text = _text(name, value)
    if text and len(text) * 4 > MAX_IDENTITY_BYTES and len(text.encode()) > MAX_IDENTITY_BYTES:
        raise InvalidEvent(f"attribute {name!r} is longer than {MAX_IDENTITY_BYTES} bytes")
    return text


def _required(name: str, value: object) -> str:
    text = _identity(name, value)
    if text is None:
        raise InvalidEvent(f"attribute {name!r} is missing or empty")
    return text


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    try:
        return bytes(value)
    except Exception as error:  # a released buffer, or a subclass's own code
        raise InvalidEvent(f"data cannot be read: {describe(error)}") from error


def _headers(values: Mapping[str, Any]) -> dict[str, str]:
    """Headers as text; what has parts becomes JSON, and a header without a value is left out."""
    return {
        clean_text(name): value
        if type(value) is str and value.isascii() and "\0" not in value
        else _header(value)
        for name, value in values.items()
        if value is not None
    }


def _header(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return clean_text(_bytes(value).decode("utf-8", "backslashreplace"))
    plain = normalise(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _extensions(values: Mapping[str, Any]) -> dict[str, str | int | bool]:
    """CloudEvents knows text, 32-bit integers and booleans; the rest becomes text."""
    plain: dict[str, str | int | bool] = {}
    for name, value in normalise(values).items():
        if value is None:
            continue
        if not _EXTENSION_NAME.fullmatch(name):
            raise InvalidEvent(f"extension {name!r} is not named in lower-case letters and digits")
        if name in _RESERVED:
            raise InvalidEvent(f"extension {name!r} has the name of an attribute of its own")
        if isinstance(value, str | bool) or (isinstance(value, int) and _INT32_MIN <= value <= _INT32_MAX):
            plain[name] = value
        else:
            plain[name] = msgspec.json.encode(value).decode()
    return plain
