"""Column values of a change event as people read them: decimals and times instead of bytes and counts.

Kafka Connect writes what JSON has no type for as a plain value and names its meaning in the schema: a decimal
is base64 of its unscaled integer, a time a count of milli-, micro- or nanoseconds. Where the schema travels
along, :func:`decode` follows it; without, nothing in the value tells, and the user names the columns.

What does not fit its type, such as PostgreSQL's ``infinity`` or a year past 9999, stays as it came.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["TIMES", "decode", "decode_decimal"]

_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the columns behind these types have no zone
_MOST_DIGITS = 20_000
"""PostgreSQL's numeric has at most 16,383 digits after the point; more is not a number but an attack."""


def decode(value: Any, schema: Any) -> Any:
    """``value`` with everything decoded that its Kafka Connect schema gives a meaning."""
    if value is None or not isinstance(schema, Mapping):
        return value
    name, kind = schema.get("name"), schema.get("type")
    if name == f"{_CONNECT}Decimal":
        parameters = schema.get("parameters")
        return decode_decimal(value, parameters.get("scale") if isinstance(parameters, Mapping) else None)
    if name == _VARIABLE and isinstance(value, Mapping):
        return decode_decimal(value.get("value"), value.get("scale"), otherwise=value)
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name](value) if _counts(value) else value
    if kind == "struct" and isinstance(value, Mapping):
        return {**value, **_fields(value, schema.get("fields"))}
    if kind == "array" and isinstance(value, list):
        return [decode(item, schema.get("items")) for item in value]
    if kind == "map" and isinstance(value, Mapping):
        return {key: decode(item, schema.get("values")) for key, item in value.items()}
    return value


def _fields(value: Mapping[str, Any], fields: Any) -> dict[str, Any]:
    if not isinstance(fields, list):
        return {}
    known = [(field.get("field"), field) for field in fields if isinstance(field, Mapping)]
    return {
        name: decode(value[name], field) for name, field in known if isinstance(name, str) and name in value
    }


def decode_decimal(value: Any, scale: Any, *, otherwise: Any = None) -> Any:
    """The decimal, as text, whose unscaled integer is base64 in ``value``; if it is none, ``otherwise``."""
    try:
        places = int(scale)
        if not isinstance(value, str) or not value or abs(places) > _MOST_DIGITS:
            raise ValueError("no decimal")
        unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        digits = str(abs(unscaled) * 10 ** max(-places, 0))
    except (TypeError, ValueError, OverflowError):
        return value if otherwise is None else otherwise
    if places > 0:
        digits = digits.rjust(places + 1, "0")
        digits = f"{digits[:-places]}.{digits[-places:]}"
    return f"-{digits}" if unscaled < 0 else digits


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _date(days: int) -> str | int:
    try:
        return (_EPOCH + dt.timedelta(days=days)).date().isoformat()
    except OverflowError:
        return days


def _timestamp(per_second: int) -> Callable[[int], str | int]:
    def text(count: int) -> str | int:
        seconds, fraction = divmod(count, per_second)
        try:
            moment = _EPOCH + dt.timedelta(seconds=seconds)
        except OverflowError:
            return count
        return f"{moment.isoformat()}{_fraction(fraction, per_second)}"

    return text


def _clock(per_second: int) -> Callable[[int], str]:
    """A time of day; MySQL's may be negative and last for days, so that its hours are not bounded."""

    def text(count: int) -> str:
        seconds, fraction = divmod(abs(count), per_second)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if count < 0 else ""
        return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{_fraction(fraction, per_second)}"

    return text


def _duration(per_second: int) -> Callable[[int], str]:
    def text(count: int) -> str:
        seconds, fraction = divmod(abs(count), per_second)
        return f"{'-' if count < 0 else ''}PT{seconds}{_fraction(fraction, per_second)}S"

    return text


def _fraction(count: int, per_second: int) -> str:
    return f".{count:0{len(str(per_second)) - 1}}" if count else ""


def _year(year: int) -> str | int:
    return f"{year:04}" if 0 <= year <= 9999 else year


TIMES: dict[str, Callable[[int], Any]] = {
    "Date": _date,
    "Time": _clock(10**3),
    "MicroTime": _clock(10**6),
    "NanoTime": _clock(10**9),
    "Timestamp": _timestamp(10**3),
    "MicroTimestamp": _timestamp(10**6),
    "NanoTimestamp": _timestamp(10**9),
    "MicroDuration": _duration(10**6),
    "NanoDuration": _duration(10**9),
    "Year": _year,
}
"""Debezium's semantic types that count something; ZonedTimestamp, Interval and the like are text already."""

_BY_NAME = {
    **{f"{_TIME}{name}": decoder for name, decoder in TIMES.items()},
    **{f"{_CONNECT}{name}": TIMES[name] for name in ("Date", "Time", "Timestamp")},
}
