"""WatcherTrigger: a watcher inside Airflow's own triggerer.

All triggers on one source in one triggerer form a shared stream. Its producer runs the source's
:class:`~windsock.runner.Runner` and yields the announcements that are due; each trigger turns those of its
own watcher into asset events. Airflow calls ``advance`` once the asset event is committed in its database,
and only then does the announcement count. What is lost before that is simply due again.

Several triggerers may hold triggers of one source: each announces for its own, one of them reads (lease).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from windsock.airflow import settings
from windsock.airflow.connections import airflow_connection
from windsock.events import WindsockError
from windsock.log import Log
from windsock.log.base import Announcement
from windsock.runner import Runner
from windsock.sources import source_key
from windsock.spec import WatcherSpec

__all__ = ["WatcherTrigger"]

logger = logging.getLogger(__name__)

_TICK = 0.25
"""Seconds between two looks for what other processes appended."""

_MAX_PAUSE = 15.0


@dataclass
class _Station:
    """Where the triggers and the producer of one source meet, inside one triggerer process."""

    joined: Counter[str] = field(default_factory=Counter)
    """Watchers whose trigger listens here."""
    yielded: set[str] = field(default_factory=set)
    """Announcements that a trigger has handed to Airflow."""


_stations: dict[str, _Station] = {}


class WatcherTrigger(BaseEventTrigger):
    """Announces one watcher's events as asset events. Made by the watchers in :mod:`windsock.watchers`."""

    def __init__(self, watcher: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = WatcherSpec.from_dict(watcher)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The watcher's definition is all that is needed to build the trigger again."""
        return "windsock.airflow.trigger.WatcherTrigger", {"watcher": self.spec.as_dict()}

    def shared_stream_key(self) -> Hashable:
        """Triggers on the same source share one reader."""
        return ("windsock", source_key(self.spec.kind, self.spec.options))

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """The reader and announcer of the source that ``kwargs`` names."""
        return AnnouncementProducer(WatcherSpec.from_dict(kwargs["watcher"]))

    async def filter_shared_stream(self, stream: AsyncIterator[Announcement]) -> AsyncIterator[TriggerEvent]:
        """The asset events of this watcher."""
        key = source_key(self.spec.kind, self.spec.options)
        station = _stations.setdefault(key, _Station())
        await _until_done("register", lambda: settings.get_log().register(self.spec, source=key))
        station.joined[self.spec.name] += 1
        try:
            async for announcement in stream:
                if announcement.watcher == self.spec.name:
                    station.yielded.add(announcement.id)
                    yield TriggerEvent(_payload(announcement))
        finally:
            station.joined[self.spec.name] -= 1
            station.joined += Counter()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Airflow 3.3 reads a shared stream through :meth:`filter_shared_stream`, never through here."""
        raise WindsockError("WatcherTrigger needs Airflow 3.3 or later: it runs on shared streams")
        yield TriggerEvent(None)  # pragma: no cover - makes this an async generator


class AnnouncementProducer(SharedStreamProducer):
    """Runs the reader of one source and yields what is to be announced."""

    def __init__(self, spec: WatcherSpec) -> None:
        self._kind, self._options = spec.kind, spec.options
        self._source = source_key(spec.kind, spec.options)
        self._station = _stations.setdefault(self._source, _Station())
        self._under_way: set[str] = set()
        self._appended = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def open_stream(self) -> AsyncIterator[tuple[Announcement, Announcement]]:
        """Announcements, for as long as a trigger listens."""
        pause = _TICK
        while True:
            self._appended.clear()
            try:
                log = await asyncio.to_thread(settings.get_log)
                await self._mind_reader(log)
                announcements = await asyncio.to_thread(self._due, log)
                pause = _TICK
            except WindsockError as error:
                logger.warning("windsock.announcer.failed source=%s: %s", self._source, error)
                announcements, pause = [], min(pause * 2, _MAX_PAUSE)
            for announcement in announcements:
                self._under_way.add(announcement.watcher)
                yield announcement, announcement
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._appended.wait(), pause)

    def _due(self, log: Log) -> list[Announcement]:
        log.close_batches()
        waiting = [name for name in self._station.joined if name not in self._under_way]
        return log.due(waiting, inline=settings.inline_events(), inline_bytes=settings.inline_bytes())

    async def _mind_reader(self, log: Log) -> None:
        """Keep the reader going while a Dag wants its events; a Dag that is gone leaves no reader behind."""
        wanted = bool(self._station.joined) and await asyncio.to_thread(log.wanted, self._source)
        if wanted and (self._reader is None or self._reader.done()):
            owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
            runner = Runner(
                source=self._source,
                kind=self._kind,
                options=self._options,
                log=log,
                owner=owner,
                connections=airflow_connection,
                on_append=self._appended.set,
            )
            self._reader = asyncio.create_task(runner.run(), name=f"windsock-runner-{self._source}")
        elif not wanted and self._reader is not None:
            logger.info("windsock.reader.stopped source=%s: no Dag is scheduled on its assets", self._source)
            await self._stop_reader()

    async def _stop_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Airflow has committed the asset events of these announcements, or given up on them."""
        for announcement, outcome in batch:
            handed_over = announcement.id in self._station.yielded
            self._station.yielded.discard(announcement.id)
            if handed_over and outcome.failed == 0:
                # An announcement that cannot be confirmed is made again: a second wake-up, no loss.
                with contextlib.suppress(WindsockError):
                    await asyncio.to_thread(settings.get_log().announced, announcement)
            self._under_way.discard(announcement.watcher)

    def get_advance_lane(self, broker_payload: Announcement) -> Hashable:
        """Watchers do not wait for one another."""
        return broker_payload.watcher

    async def aclose(self) -> None:
        """Stop reading and give the lease back."""
        await self._stop_reader()


def _payload(announcement: Announcement) -> dict[str, Any]:
    """What a consumer finds in the asset event: where the events are, and the events when they are few."""
    return {
        "windsock": {
            "watcher": announcement.watcher,
            "announcement": announcement.id,
            "first": announcement.first,
            "up_to": announcement.up_to,
            "count": announcement.count,
            "reminder": announcement.reminder,
        },
        "events": [event.as_dict() for event in announcement.events],
    }


async def _until_done(what: str, action: Any) -> None:
    """Do something with the log, again and again while the log is away."""
    pause = _TICK
    while True:
        try:
            await asyncio.to_thread(action)
            return
        except WindsockError as error:
            logger.warning("windsock.trigger.%s_failed retry_in=%.1fs: %s", what, pause, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)
