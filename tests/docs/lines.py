"""Follows a file to which another program appends JSON, one document a line."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, parse_json
from windsock.messages import unreadable
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees


class LinesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which file to follow."""

    path: Annotated[str, msgspec.Meta(description="The file, as an absolute path.")]
    interval: Annotated[float, msgspec.Meta(description="Seconds between two looks.", gt=0)] = 1.0


class LinesSource:
    """At least once, in order; resumes at the byte behind the last line."""

    kind = "lines"
    config = LinesConfig
    guarantees = Guarantees(position="log", lag=False, tested="a local file")

    def __init__(self, config: LinesConfig) -> None:
        self.options = config
        self._closed = asyncio.Event()
        self._at = 0

    async def connect(self, cursor: Cursor | None) -> None:
        if not await asyncio.to_thread(os.path.isfile, self.options.path):
            raise SourceError(f"file {self.options.path} is not there: create it, or correct `path`")
        self._at = (cursor or {}).get("at", 0)
        self._closed.clear()

    async def read(self) -> AsyncIterator[Delivery]:
        while not self._closed.is_set():
            delivery = await asyncio.to_thread(self._take)
            if delivery:
                yield delivery
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), self.options.interval)

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        self._closed.set()

    def _take(self) -> Delivery | None:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        with open(self.options.path, "rb") as file:
            file.seek(self._at)
            while len(events) + len(dead) < MAX_DELIVERY and (line := file.readline()).endswith(b"\n"):
                where = f"{self.options.path}@{self._at}"
                self._at += len(line)
                try:
                    events.append(Event.make(parse_json(line), id=where, source="lines", type="lines.added"))
                except InvalidEvent as error:
                    dead.append(unreadable(line, error, where=where))
        return Delivery(events, cursor={"at": self._at}, dead=dead) if events or dead else None
