"""Plain values: what every JSON reader, database and Airflow column takes, made from whatever comes.

The floor of the house: what a source hands over goes through here before it becomes an event.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import itertools
import json
import math
import numbers
import uuid
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

__all__ = [
    "InvalidEvent",
    "WindsockError",
    "clean_text",
    "describe",
    "normalise",
    "parse_json",
    "parse_time",
    "plain_json",
    "scalar_text",
]

_MAX_DEPTH = 100
_MAX_VALUES = 1_000_000
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_DIGITS = bytes(ord("9") if chr(byte).isdigit() and byte < 128 else 0 for byte in range(256))
_LONG_NUMBER = b"9" * 19
"""As many digits as the smallest integer past 64 bits has."""


class WindsockError(Exception):
    """Base of every error that Windsock raises on purpose."""


class InvalidEvent(WindsockError):
    """The input cannot become an event; the message says what is wrong with it."""


def clean_text(text: str) -> str:
    """``text`` with visible escapes for what JSON readers and text columns cannot hold.

    A lone surrogate becomes ``\\udc80``, NUL becomes ``\\u0000``: two texts that differ stay different, so
    that two files with broken names never look like one.
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\0", "\\u0000") if "\0" in text else text


def parse_time(value: dt.date | float | str | None) -> dt.datetime | None:
    """An aware datetime from a datetime, date, epoch seconds or RFC 3339 text; without a zone it is UTC.

    The offset is kept. Fractions are rounded to microseconds.
    """
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = msgspec.convert(str.__str__(value), dt.datetime)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            return dt.datetime.fromtimestamp(value, dt.UTC)
        if isinstance(value, dt.datetime):
            return _fixed_offset(value)
        if isinstance(value, dt.date):
            return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    except Exception as error:  # a tzinfo, too, is code that a source hands over
        raise InvalidEvent(f"attribute 'time' is not a timestamp: {describe(error)}") from error
    raise InvalidEvent(f"attribute 'time' is not a timestamp but a {type(value).__qualname__}")


def parse_json(body: bytes) -> Any:
    """The value of a JSON text as lenient as can be, to be normalised; raises :class:`InvalidEvent`.

    Takes what strict readers refuse but real senders write: a byte order mark, NaN, lone surrogates,
    numbers of any size.
    """
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        pass  # the standard library's slower reader takes more, and says better what is wrong
    try:
        return json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"not JSON: {describe(error)}") from error


def plain_json(body: bytes) -> Any:
    """``normalise(parse_json(body))``, several times as fast for the usual text.

    A text without escapes by number, without long integers and without deep nesting has nothing in it that
    would have to be normalised, and the strict reader refuses what the lenient one would take.
    """
    if (
        (b"\\" not in body or b"\\u" not in body)  # one byte is found several times as fast as two
        and len(body) < _MAX_VALUES
        and body.count(b"{") + body.count(b"[") < _MAX_DEPTH
        and _LONG_NUMBER not in body.translate(_DIGITS)
    ):
        try:
            return msgspec.json.decode(body)
        except (ValueError, RecursionError):
            pass  # the lenient way may still know what to make of it
    return normalise(parse_json(body))


def normalise(value: Any) -> Any:
    """``value`` as plain JSON values that every JSON reader, database and Airflow column takes.

    Times become ISO 8601 text, durations seconds, decimals and integers past 64 bits text, NaN and the
    infinities ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, bytes base64 text, tuples lists, sets sorted lists,
    enums their value, dataclasses, attrs, pydantic and msgspec objects dicts of their fields; texts are
    cleaned (see :func:`clean_text`). Anything else (a generator, an open file) raises
    :class:`InvalidEvent`, as do two keys that become the same text, nesting past 100 levels (so also a
    cycle) and more than a million values.
    """
    try:
        return _plain(value, 0, [_MAX_VALUES])
    except InvalidEvent:
        raise
    except Exception as error:  # an object's own code may raise anything
        raise InvalidEvent(f"data cannot be read: {describe(error)}") from error


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else str(value)
    if kind is float:
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if depth >= _MAX_DEPTH:
        raise InvalidEvent(f"data is nested deeper than {_MAX_DEPTH} levels")
    if kind is dict:
        _spend(left, len(value))
        plain = {
            clean_text(k) if type(k) is str else scalar_text(k): _plain(v, depth + 1, left)
            for k, v in value.items()
        }
        if len(plain) != len(value):
            raise InvalidEvent("data holds two keys that become the same text")
        return plain
    if kind is list:
        _spend(left, len(value))
        return [_plain(v, depth + 1, left) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(list(value), depth, left), key=msgspec.json.encode)
    return _plain(_simpler(value, left[0]), depth + isinstance(value, enum.Enum), left)


def _simpler(value: Any, left: int) -> Any:
    """``value`` as one of the types that ``_plain`` knows; at most one more than ``left`` values are read."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal | uuid.UUID | PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, Mapping):
        return dict(itertools.islice(value.items(), left + 1))
    if isinstance(value, list | tuple):
        return list(itertools.islice(value, left + 1))
    if dataclasses.is_dataclass(kind):
        names: Iterable[str] = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [attribute.name for attribute in kind.__attrs_attrs__]
    elif hasattr(kind, "__struct_fields__"):
        names = kind.__struct_fields__
    elif hasattr(kind, "__pydantic_fields__"):
        names = kind.__pydantic_fields__
    else:
        raise InvalidEvent(f"data holds a {kind.__module__}.{kind.__qualname__}, which JSON cannot carry")
    return {name: getattr(value, name) for name in names}


def _spend(left: list[int], count: int) -> None:
    left[0] -= count
    if left[0] < 0:
        raise InvalidEvent(f"data holds more than {_MAX_VALUES} values, or refers to itself")


def scalar_text(value: Any) -> str:
    """One value as text, the way JSON writes it; raises :class:`InvalidEvent` for what has parts."""
    plain = normalise(value)
    if isinstance(plain, str):
        return plain
    if plain is None or isinstance(plain, int | float):
        return msgspec.json.encode(plain).decode()
    raise InvalidEvent(f"a {type(value).__qualname__} where one text or number is needed")


def _fixed_offset(value: dt.datetime) -> dt.datetime:
    """The same instant with a fixed offset of whole minutes, which is all that RFC 3339 can write."""
    offset = value.utcoffset() or dt.timedelta()
    clock = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    if offset % dt.timedelta(minutes=1):
        return dt.datetime(*clock, tzinfo=dt.UTC) - offset
    return dt.datetime(*clock, tzinfo=dt.timezone(offset) if offset else dt.UTC)


def describe(error: BaseException) -> str:
    """The error in one short line that is safe to store."""
    try:
        return clean_text(f"{type(error).__name__}: {error}")[:300]
    except Exception:  # noqa: BLE001 - an exception's own text may fail as well
        return type(error).__name__
