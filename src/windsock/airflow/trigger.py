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
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from windsock.airflow import settings
from windsock.airflow.connections import airflow_connection
from windsock.events import WindsockError
from windsock.log import Log
from windsock.log.records import Announcement
from windsock.runner import Runner, RunnerSettings
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


class Lookout:
    """Looks into the log for all producers of an event loop at once, so that quiet ones cost nothing."""

    _lookouts: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Lookout]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._producers: dict[str, AnnouncementProducer] = {}
        self._changed = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    def of_this_loop(cls) -> Lookout:
        """The lookout that the producers of the running event loop share."""
        return cls._lookouts.setdefault(asyncio.get_running_loop(), cls())

    @contextlib.contextmanager
    def serving(self, producer: AnnouncementProducer) -> Iterator[None]:
        """Look for what this producer has to announce, during the block."""
        self._producers[producer.source] = producer
        self._changed.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="windsock-lookout")
        try:
            yield
        finally:
            if self._producers.get(producer.source) is producer:
                del self._producers[producer.source]
            if not self._producers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        """Every tick, and at once after an append: what is due, and who still wants to be read."""
        pause = _TICK
        while True:
            self._changed.clear()
            producers = list(self._producers.values())
            waiting = {name: producer for producer in producers for name in producer.waiting()}
            try:
                log = await asyncio.to_thread(settings.get_log)
                announcements, unwanted = await asyncio.to_thread(_due, log, list(waiting))
                for producer in producers:
                    await producer.mind_reader(log, producer.source in unwanted, self._changed.set)
                pause = _TICK
            except Exception as error:  # a lookout that ends is events that wait for ever
                unexpected = not isinstance(error, WindsockError)
                logger.warning(
                    "windsock.lookout.failed sources=%d: %s", len(producers), error, exc_info=unexpected
                )
                announcements, pause = [], min(pause * 2, _MAX_PAUSE)
            for announcement in announcements:
                waiting[announcement.watcher].tell(announcement)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)


def _due(log: Log, watchers: list[str]) -> tuple[list[Announcement], set[str]]:
    """What is to be announced of these watchers, and the sources that no Dag wants any more."""
    log.tick()
    due = log.due(watchers, inline=settings.inline_events(), inline_bytes=settings.inline_bytes())
    return due, log.unwanted()


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
        self.source = source_key(spec.kind, spec.options)
        self._station = _stations.setdefault(self.source, _Station())
        self._under_way: set[str] = set()
        self._due: asyncio.Queue[Announcement] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None

    async def open_stream(self) -> AsyncIterator[tuple[Announcement, Announcement]]:
        """Announcements, for as long as a trigger listens."""
        with Lookout.of_this_loop().serving(self):
            while True:
                announcement = await self._due.get()
                yield announcement, announcement

    def waiting(self) -> list[str]:
        """The watchers that may be announced: someone listens, and nothing of theirs is under way."""
        return [name for name in self._station.joined if name not in self._under_way]

    def tell(self, announcement: Announcement) -> None:
        """Pass an announcement on; the watcher's next one comes after Airflow has answered."""
        self._under_way.add(announcement.watcher)
        self._due.put_nowait(announcement)

    async def mind_reader(self, log: Log, unwanted: bool, on_append: Callable[[], None]) -> None:
        """Keep the reader going while a Dag wants its events; a Dag that is gone leaves no reader behind."""
        wanted = bool(self._station.joined) and not unwanted
        if wanted and (self._reader is None or self._reader.done()):
            owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
            high, low = settings.water_total()
            runner = Runner(
                source=self.source,
                kind=self._kind,
                options=self._options,
                log=log,
                owner=owner,
                settings=RunnerSettings(high_water_total=high, low_water_total=low),
                connections=airflow_connection,
                on_append=on_append,
            )
            self._reader = asyncio.create_task(runner.run(), name=f"windsock-runner-{self.source}")
        elif not wanted and self._reader is not None:
            logger.info("windsock.reader.stopped source=%s: no Dag is scheduled on its assets", self.source)
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
