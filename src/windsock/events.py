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
import decimal
import enum
import hashlib
import math
import uuid
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec

__all__ = [
    "Category",
    "DeadLetter",
    "Event",
    "InvalidEvent",
    "LeaseLost",
    "SourceError",
    "WindsockError",
    "dedup_hash",
]

MAX_EVENT_BYTES = 1_000_000
"""Default cap on one encoded event; larger ones become dead letters."""

_MAX_DEPTH = 100
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class WindsockError(Exception):
    """Base of every error that Windsock raises on purpose."""


class InvalidEvent(WindsockError):
    """The input cannot become an event; the message says what is wrong with it."""


class LeaseLost(WindsockError):
    """The lease was taken over by another owner; stop reading, append and ack nothing more."""


class SourceError(WindsockError):
    """A source cannot reach or read its system; the message names the remedy. Retried with backoff."""


class Category(enum.StrEnum):
    """Why an event was set aside."""

    INVALID = "invalid"
    """It could not be parsed, is too large, or failed a step."""
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


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened, in the CloudEvents 1.0 shape."""

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
    seq: int | None = None
    """Position in the log; set on events that come out of the log."""
    attempt: int = 0
    """How many runs have failed with this event before; set by a claim."""

    @classmethod
    def make(
        cls,
        data: Any = None,
        *,
        source: str,
        type: str,  # the CloudEvents attribute name
        id: object = None,
        time: dt.datetime | float | str | None = None,
        extensions: Mapping[str, Any] | None = None,
        **attributes: object,
    ) -> Event:
        """Build an event from anything a source can hand over.

        Data is normalised to JSON values (see :func:`normalise`), times to aware datetimes. Without an
        ``id`` a random one is taken, so the event is never a duplicate of another.
        """
        texts = {name: clean_text(str(value)) for name, value in attributes.items() if value is not None}
        if not source or not type:
            raise InvalidEvent("an event needs a non-empty source and type")
        binary = isinstance(data, bytes | bytearray | memoryview)
        return cls(
            id=clean_text(str(id)) if id not in (None, "") else str(uuid.uuid4()),
            source=clean_text(source),
            type=clean_text(type),
            time=parse_time(time),
            data=bytes(data) if binary else normalise(data),
            binary=binary,
            extensions={clean_text(k): _extension(v) for k, v in (extensions or {}).items() if v is not None},
            **texts,
        )

    def encode(self) -> bytes:
        """The compact JSON that the log stores; :meth:`decode` reads back an equal event."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, body: bytes, *, seq: int | None = None, attempt: int = 0) -> Event:
        """Read what :meth:`encode` wrote, and where in the log it was found."""
        event = _decoder.decode(body)
        data = base64.b64decode(event.data) if event.binary else event.data
        return msgspec.structs.replace(event, data=data, seq=seq, attempt=attempt)

    def as_dict(self) -> dict[str, Any]:
        """The event as plain JSON values, as a mapped task sees it; :meth:`from_dict` reads it back."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Event:
        """The event behind what :meth:`as_dict` returned."""
        event = msgspec.convert(value, cls)
        return msgspec.structs.replace(event, data=base64.b64decode(event.data)) if event.binary else event


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def dedup_hash(scope: str, key: str) -> bytes:
    """The 16 bytes under which a dedup key is remembered inside its scope."""
    return hashlib.blake2b(f"{scope}\0{key}".encode("utf-8", "replace"), digest_size=16).digest()


def clean_text(text: str) -> str:
    """``text`` without lone surrogates, which no JSON or database column can hold."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def parse_time(value: dt.datetime | float | str | None) -> dt.datetime | None:
    """An aware datetime from a datetime, epoch seconds or RFC 3339 text; naive means UTC."""
    try:
        if value is None:
            return None
        if isinstance(value, str):
            value = msgspec.convert(value, dt.datetime)
        if isinstance(value, int | float):
            return dt.datetime.fromtimestamp(value, dt.UTC)
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError, OSError, TypeError, msgspec.ValidationError) as error:
        raise InvalidEvent(f"time {value!r} is not a timestamp: {error}") from error


def normalise(value: Any, depth: int = 0) -> Any:
    """``value`` as plain JSON values that every JSON reader, database and Airflow column takes.

    Times become ISO 8601 text, decimals and integers past 64 bits become text, NaN and infinities
    become ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, bytes become base64 text, sets and tuples lists,
    lone surrogates ``?``. Anything else, and nesting past 100 levels, raises :class:`InvalidEvent`.
    """
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else str(value)
    if kind is float:
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if depth >= _MAX_DEPTH:
        raise InvalidEvent(f"data is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {clean_text(str(k)): normalise(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [normalise(v, depth + 1) for v in value]
    if isinstance(value, enum.Enum):
        return normalise(value.value, depth + 1)
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, int | float):
        return normalise((int if isinstance(value, int) else float)(value), depth)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal | uuid.UUID | PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode("ascii")
    raise InvalidEvent(f"data holds a {kind.__module__}.{kind.__qualname__}, which JSON cannot carry")


def _extension(value: Any) -> str | int | bool:
    plain = normalise(value)
    return plain if isinstance(plain, str | int | bool) else msgspec.json.encode(plain).decode()
