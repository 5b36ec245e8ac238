"""A log with a virtual clock, and a rule's source that is driven by hand."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

from windsock.events import Event
from windsock.log.records import EventQuery, Write
from windsock.log.sqlite import SqliteLog
from windsock.rules.source import RuleSource
from windsock.sources import make_source, source_key
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock


class Desk:
    """Registers watchers, appends events, and lets a source read."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_699_920_000.0)
        self.log = SqliteLog(":memory:", clock=self.clock)
        self.source: RuleSource | None = None

    def watch(self, name: str, kind: str = "memory", **spec: Any) -> WatcherSpec:
        """Register a watcher."""
        known = WatcherSpec.from_dict({"name": name, "kind": kind, **spec})
        options = known.options if kind != "memory" else {"channel": name}
        self.log.register(known, source=source_key(kind, options))
        return known

    def put(self, watcher: str, *data: Any, at: float | None = None) -> None:
        """Append events that carry these data; their time is now, or so many seconds before."""
        time = None if at is None else dt.datetime.fromtimestamp(self.clock.now - at, dt.UTC)
        events = [Event.make(one, source="test", type="test", time=time) for one in data]
        self.log.append([Write(watcher=watcher, events=events)])

    def open(self, spec: WatcherSpec) -> None:
        """Connect the source of a watcher, as its runner does; what was open is lost as in a kill."""
        source = make_source(spec.kind, spec.options)
        assert isinstance(source, RuleSource)
        source.log, source.key, source.clock = self.log, source_key(spec.kind, spec.options), self.clock
        asyncio.run(source.connect(self.log.cursor(source.key)))
        self.source = source
        self.spec = spec

    def read(self) -> list[Event]:
        """Let the source read to the end; the results, stored."""
        results: list[Event] = []
        assert self.source is not None
        while (delivery := self.source.step(self.clock.now)) is not None:
            write = Write(watcher=self.spec.name, events=delivery.events, verdicts=delivery.verdicts)
            self.log.append([write], source=self.source.key, cursor=delivery.cursor, state=delivery.state)
            asyncio.run(_acked(delivery))
            results += delivery.events
        return results

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass, then read."""
        self.clock.advance(seconds)
        return self.read()

    def stored(self) -> list[Event]:
        """The results in the log, oldest first."""
        records = self.log.events(EventQuery(watcher=self.spec.name, limit=10_000))
        return [record.event for record in reversed(records)]


async def _acked(delivery: Any) -> None:
    await delivery.ack()
