"""From an HTTP request to events: the body read under its cap, then understood by its content type.

========================================  ==========================================================
content type                              event data
========================================  ==========================================================
``application/cloudevents*``, ``ce-*``    as CloudEvents says: structured, batch or binary mode
``application/json``, ``…+json``          the JSON value; NaN and infinities become text
``text/*``, forms, XML                    text, or bytes if it is not in its charset
none                                      JSON if it is JSON, else text, else bytes
anything else                             bytes
========================================  ==========================================================

Compressed bodies are refused: a small one can unpack to any size.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import Request

from windsock import cloudevents
from windsock.events import DeadLetter, Event, InvalidEvent
from windsock.gateway.rate import Hold
from windsock.gateway.refusal import Refused
from windsock.sources.webhook import WebhookConfig

__all__ = ["Intake", "check_length", "is_cloudevents", "parse", "read_body"]

READ_SECONDS = 30.0
"""A body must be there within this time; a sender that dawdles holds memory that others need."""

MAX_ID = 512
_CHARSETS = {"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "iso-8859-15", "windows-1252"}
_TEXT = {"application/x-www-form-urlencoded", "application/xml", "application/yaml", "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class Intake:
    """What a request brought. ``dead`` are the invalid ones of a batch whose others are good."""

    events: Sequence[Event]
    dead: Sequence[DeadLetter] = field(default=())
    batch: bool = False


def check_length(headers: Mapping[str, str], limit: int) -> None:
    """Refuse what is announced as too large or is compressed, before any of it is read."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "compressed bodies are not accepted: send it without Content-Encoding")
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)


async def read_body(request: Request, limit: int, hold: Hold) -> bytes:
    """The body, counted while it arrives: a chunked or lying sender is stopped at ``limit`` bytes."""
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    raise _too_large(limit)
                hold.add(len(chunk))
                body += chunk
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {READ_SECONDS:.0f} seconds") from None
    return bytes(body)


def is_cloudevents(headers: Mapping[str, str]) -> bool:
    """Whether the request says that it carries CloudEvents, in any of the three modes."""
    return _media_type(headers).startswith("application/cloudevents") or "ce-specversion" in headers


def parse(watcher: str, config: WebhookConfig, headers: Mapping[str, str], body: bytes) -> Intake:
    """The events of the request; raises :class:`Refused` (415, 422) with what is wrong and where."""
    if is_cloudevents(headers):
        return _cloudevents(headers, body)
    media_type = _media_type(headers)
    try:
        event = Event.make(
            _data(media_type, headers, body),
            source=f"webhook:{watcher}",
            type=(headers.get(config.type_header) if config.type_header else None) or config.type,
            id=headers.get(config.id_header) or headers.get("idempotency-key"),
            time=dt.datetime.now(dt.UTC),
            datacontenttype=media_type or None,
            traceparent=headers.get("traceparent"),
        )
    except InvalidEvent as error:
        raise Refused(422, str(error)) from error
    for name, value in (("delivery id", event.id), ("event type", event.type)):
        if len(value) > MAX_ID:
            raise Refused(422, f"the {name} is longer than {MAX_ID} characters")
    return Intake([event])


def _cloudevents(headers: Mapping[str, str], body: bytes) -> Intake:
    batch = _media_type(headers).startswith("application/cloudevents-batch")
    try:
        parsed = cloudevents.from_http(headers, body)
    except InvalidEvent as error:
        raise Refused(422, str(error)) from error
    if parsed.dead and not parsed.events:
        raise Refused(422, "; ".join(letter.reason for letter in parsed.dead[:3]))
    return Intake(parsed.events, parsed.dead, batch)


def _data(media_type: str, headers: Mapping[str, str], body: bytes) -> Any:
    if not body:
        return None
    if media_type.endswith(("/json", "+json")):
        return _json(body)
    if not media_type:
        try:
            return _json(body)
        except Refused:
            return _text(headers, body)
    if media_type.startswith("text/") or media_type.endswith("+xml") or media_type in _TEXT:
        return _text(headers, body)
    return body


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        # The strict reader refuses what many senders write: NaN, Infinity, lone surrogates, a byte order mark.
        pass
    try:
        return json.loads(body)
    except RecursionError:
        raise Refused(422, "the body is nested too deeply") from None
    except ValueError as error:
        raise Refused(422, f"the body is not valid JSON: {error}") from error


def _text(headers: Mapping[str, str], body: bytes) -> str | bytes:
    charset = "utf-8"
    for part in headers.get("content-type", "").split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("\"'").lower()
    if charset not in _CHARSETS:
        raise Refused(415, "the charset is not known: send the text as UTF-8")
    try:
        return body.decode(charset)
    except UnicodeDecodeError:
        return body


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {limit} bytes")
