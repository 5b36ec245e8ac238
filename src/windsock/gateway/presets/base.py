"""What a preset is: where a sender puts the id and the type of what it sends, and how it is answered."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Response

from windsock.events import Event, InvalidEvent, parse_time
from windsock.gateway.documents import Fetch
from windsock.gateway.intake import Intake, bounded
from windsock.gateway.sent import Sent
from windsock.json_path import JsonPath
from windsock.sources.webhook import WebhookConfig

__all__ = ["At", "Preset"]

Greet = Callable[[WebhookConfig, Sent, Fetch], Awaitable[Response | None]]
Read = Callable[[str, WebhookConfig, Sent], Intake]


class At:
    """Where a value stands: in the first of these headers that is there, or at the first of these paths."""

    def __init__(self, *, headers: tuple[str, ...] = (), paths: tuple[str, ...] = ()) -> None:
        self._headers = headers
        self._paths = [JsonPath(path) for path in paths]

    def find(self, sent: Sent) -> str | int | None:
        """The value, or None if it is nowhere or is no text or number."""
        for header in self._headers:
            if value := sent.headers.get(header):
                return value
        for path in self._paths:
            found = path.find(sent.data)
            if isinstance(found, str | int) and not isinstance(found, bool) and found != "":
                return found
        return None


async def _no_greeting(config: WebhookConfig, sent: Sent, read: Fetch) -> Response | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One sender's conventions."""

    id: At = field(default_factory=At)
    type: At = field(default_factory=At)
    subject: At = field(default_factory=At)
    time: At = field(default_factory=At)
    keep: tuple[str, ...] = ()
    """Headers that begin so are kept with the event."""
    leave: tuple[str, ...] = ()
    """Headers that are not, because they prove or hold a secret."""
    greet: Greet = _no_greeting
    """The answer to a ping or a challenge, which is no event."""
    reader: Read | None = None
    """How an envelope is read, where a request is not simply one event."""
    reply: tuple[str, str] | None = None
    """Body and media type that the sender wants with 200 for what was stored, instead of our JSON."""
    origins: bool = False
    """Whether the sender asks with OPTIONS first, as the CloudEvents webhook specification has it."""
    cloudevents: bool = False
    """Whether the sender may also send CloudEvents, which are then taken as they are."""

    def read(self, watcher: str, config: WebhookConfig, sent: Sent) -> Intake:
        """The events of the request; raises :class:`InvalidEvent`."""
        if self.reader is not None:
            return self.reader(watcher, config, sent)
        event = Event.make(
            sent.data,
            source=f"webhook:{watcher}",
            type=self.type.find(sent) or config.type,
            id=self.id.find(sent) or _digest(sent.body),
            subject=self.subject.find(sent),
            time=self._time(sent),
            datacontenttype=None if sent.is_form else sent.headers.get("content-type"),
            traceparent=sent.headers.get("traceparent"),
            headers=self._kept(sent),
        )
        return Intake([bounded(event)])

    def _time(self, sent: Sent) -> dt.datetime:
        found: Any = self.time.find(sent)
        try:
            return parse_time(found) or dt.datetime.now(dt.UTC)
        except InvalidEvent:
            return dt.datetime.now(dt.UTC)

    def _kept(self, sent: Sent) -> dict[str, str]:
        return {
            name.lower(): value
            for name, value in sent.headers.items()
            if name.lower().startswith(self.keep) and name.lower() not in self.leave
        }


def _digest(body: bytes) -> str:
    """The id of a request that has none: the same body again is then a duplicate, as a replay should be."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()
