"""From an HTTP request to events: the body read under its cap, then understood by its content type.

CloudEvents (by content type or ``ce-*`` headers) are taken as they are, in all three modes. Any other body is
the data of one event, read as its content type says: JSON values, text, or bytes.

Compressed bodies are refused: a small one can unpack to any size.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fastapi import Request

from windsock import cloudevents
from windsock.events import Category, DeadLetter, Event, InvalidEvent
from windsock.gateway.rate import Hold
from windsock.gateway.refusal import Refused
from windsock.gateway.sent import Sent
from windsock.sources.webhook import WebhookConfig

__all__ = ["Intake", "Reader", "bounded", "check_length", "is_cloudevents", "parse", "read_body"]

READ_SECONDS = 30.0
"""A body must be there within this time; a sender that dawdles holds memory that others need."""

MAX_TEXT = 1024
"""The longest id, source or type: they are indexed and kept, so a sender may not choose any size."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What a request brought. ``dead`` are the invalid ones of a batch whose others are good."""

    events: Sequence[Event]
    dead: Sequence[DeadLetter] = field(default=())
    batch: bool = False


class Reader(Protocol):
    """A preset, as far as reading goes."""

    @property
    def cloudevents(self) -> bool:
        """Whether CloudEvents are taken as they are."""

    def read(self, watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
        """The events of a request; raises :class:`InvalidEvent`."""
        ...


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


def parse(watcher: str, config: WebhookConfig, sent: Sent, preset: Reader | None = None) -> Intake:
    """The events of the request; raises :class:`Refused` (415, 422) with what is wrong and where."""
    try:
        if (preset is None or preset.cloudevents) and is_cloudevents(sent.headers):
            if "ce-specversion" in sent.headers and (config.id_signed or config.scheme == "standard"):
                raise Refused(415, f"the signature covers no ce-* headers: send {cloudevents.STRUCTURED!r}")
            return _cloudevents(sent.headers, sent.body)
        return preset.read(watcher, config, sent) if preset else _webhook(watcher, config, sent)
    except cloudevents.UnsupportedFormat as error:
        raise Refused(415, str(error)) from error
    except InvalidEvent as error:
        raise Refused(422, str(error)) from error


def _cloudevents(headers: Mapping[str, str], body: bytes) -> Intake:
    parsed = cloudevents.from_http(headers, body)
    events, dead = [], list(parsed.dead)
    for event in parsed.events:
        try:
            events.append(bounded(event))
        except InvalidEvent as error:
            letter = DeadLetter(
                stage="parse", category=Category.INVALID, reason=str(error), body=event.encode()
            )
            dead.append(letter)
    if dead and not events:
        raise InvalidEvent("; ".join(letter.reason for letter in dead[:3]))
    return Intake(events, dead, batch=_media_type(headers) == cloudevents.BATCH)


def _webhook(watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
    headers, content_type = sent.headers, sent.headers.get("content-type")
    try:
        data = cloudevents.data_of(content_type, sent.body)
    except InvalidEvent as error:
        raise InvalidEvent(f"the body is {error}") from error
    event = Event.make(
        data,
        source=f"webhook:{watcher}",
        type=(headers.get(config.type_header) if config.type_header else None) or config.type,
        # An id that is signed has been checked to be there; nothing unsigned may stand in for it.
        id=headers.get(config.id_header) or headers.get("idempotency-key"),
        time=dt.datetime.now(dt.UTC),
        datacontenttype=content_type or None,
        traceparent=headers.get("traceparent"),
    )
    return Intake([bounded(event)])


def bounded(event: Event) -> Event:
    """The event, if what is indexed of it is short enough; raises :class:`InvalidEvent`."""
    for name in ("id", "source", "type"):
        if len(getattr(event, name)) > MAX_TEXT:
            raise InvalidEvent(f"the event's {name} is longer than {MAX_TEXT} characters")
    return event


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {limit} bytes")
