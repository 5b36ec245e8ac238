"""What the author of a source provides, and what drives a source in the suite."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from windsock.connections import Connection, fixed
from windsock.events import DeadLetter, Event
from windsock.log.records import EventQuery
from windsock.log.sqlite import SqliteLog
from windsock.runner import Runner, RunnerSettings
from windsock.sources import make_source, source_class, source_key
from windsock.sources.base import Cursor, Delivery, Guarantees, Source
from windsock.spec import WatcherSpec

__all__ = ["DAG", "QUICK", "WATCHER", "Reader", "SourceHooks", "Through"]

WATCHER = "contract"
DAG = "contract_dag"
QUICK = RunnerSettings(lease=3.0, heartbeat=0.2, backoff=0.05, max_backoff=0.5)


class Reader:
    """Drives a source the way the runner does: read, commit the cursor, ack."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.events: list[Event] = []
        self.dead: list[DeadLetter] = []
        self.deliveries: list[Delivery] = []
        self._stream = source.read()

    async def next(self) -> Delivery:
        """One more delivery, not acked."""
        delivery = await anext(self._stream)
        self.deliveries.append(delivery)
        self.events.extend(delivery.events)
        self.dead.extend(delivery.dead)
        return delivery

    async def until(self, enough: Callable[[Reader], bool], *, ack: bool = True) -> Reader:
        """Read on until ``enough`` says so, acking each delivery unless told not to."""
        while not enough(self):
            delivery = await self.next()
            if ack:
                await delivery.ack()
        return self

    async def read(self, count: int, *, ack: bool = True) -> list[Event]:
        """Read on until ``count`` events are there; all the events so far."""
        await self.until(lambda reader: len(reader.events) >= count, ack=ack)
        return self.events

    async def glimpse(self) -> list[Event]:
        """Read on until there are more events, and ack none of them; those events.

        A source may go no further before it is acked, so all that was produced need not be among them.
        """
        known = len(self.events)
        while len(self.events) == known:
            delivery = await self.next()
            if not delivery.events:
                await delivery.ack()
        return self.events[known:]

    def cursor(self, before: Cursor | None = None) -> Cursor | None:
        """The last cursor that came, through JSON as the log stores it; else the one ``before``."""
        for delivery in reversed(self.deliveries):
            if delivery.cursor is not None:
                cursor: Cursor = msgspec.json.decode(msgspec.json.encode(delivery.cursor))
                return cursor
        return before


class Through:
    """A source read through the real runner into a real log."""

    def __init__(self, log: SqliteLog, runner: Runner | None = None) -> None:
        self.log = log
        self.runner = runner

    def events(self) -> list[Event]:
        """Everything in the log, in its order."""
        found: list[Event] = []
        before: int | None = None
        while page := self.log.events(EventQuery(watcher=WATCHER, before=before, limit=1000)):
            found += [record.event for record in page]
            before = page[-1].event.seq
        return found[::-1]

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait until the log is as it should be."""
        while not await asyncio.to_thread(enough):  # noqa: ASYNC110 - other processes write, nothing signals
            await asyncio.sleep(0.02)

    async def stored(self, count: int) -> list[Event]:
        """Wait until so many events are stored; all of them."""
        await self.until(lambda: self.log.health()[0].logged >= count)
        return await asyncio.to_thread(self.events)

    async def failing(self) -> str:
        """Wait until the source's health shows an error; the error."""
        await self.until(lambda: bool(self.log.health()[0].error))
        return self.log.health()[0].error or ""


class SourceHooks(ABC):
    """What the author of a source provides."""

    kind: ClassVar[str] = ""
    """The source's kind, or ``package.module:Class``."""
    patience: float = 180.0
    """Seconds after which a test is given up."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The source's options on the test's system."""

    def connections(self) -> Sequence[Connection]:
        """The Connections that the options name."""
        return ()

    @abstractmethod
    async def produce(self, count: int) -> list[str]:
        """Put ``count`` more events into the system; their identities, in the order they must come."""

    def identity(self, event: Event) -> str:
        """What ``produce`` returned for this event; by default its id."""
        return event.id

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory_of_log = tmp_path

    @property
    def guarantees(self) -> Guarantees:
        """What the source promises."""
        stated: Guarantees = getattr(source_class(self.kind), "guarantees", Guarantees())
        return stated

    async def make(self) -> Source:
        """A new source on the test's system, as a restarted process would make it."""
        return make_source(self.kind, self.options(), fixed(*self.connections()))

    def identities(self, events: Sequence[Event]) -> list[str]:
        """The identity of each event."""
        return [self.identity(event) for event in events]

    def check(self, events: Sequence[Event], produced: Sequence[str]) -> None:
        """The events are those that were produced, once each, in order as far as that is promised."""
        got = self.identities(events)
        if self.guarantees.order == "all":
            assert got == list(produced)
        else:
            assert Counter(got) == Counter(produced)

    @asynccontextmanager
    async def reading(self, cursor: Cursor | None = None) -> AsyncIterator[Reader]:
        """A new source, connected at the cursor, read inside and closed after."""
        async with asyncio.timeout(self.patience):
            source = await self.make()
            await source.connect(cursor)
            try:
                yield Reader(source)
            finally:
                await source.close()

    def new_log(self, **spec: Any) -> SqliteLog:
        """A log in a file with the test's watcher and one Dag; ``spec`` are options of the watcher."""
        options = spec.pop("options", None) or self.options()
        log = SqliteLog(self.directory_of_log / "log.db")
        watcher = WatcherSpec(name=WATCHER, kind=self.kind, options=options, **spec)
        log.register(watcher, source=source_key(self.kind, options))
        log.subscribe(WATCHER, DAG)
        return log

    @asynccontextmanager
    async def running(
        self, connections: Sequence[Connection] | None = None, **spec: Any
    ) -> AsyncIterator[Through]:
        """The source read by a runner of this process into a new log, stopped after."""
        options = spec.get("options") or self.options()
        log = self.new_log(**spec)
        known = self.connections() if connections is None else connections
        runner = Runner(
            source=source_key(self.kind, options),
            kind=self.kind,
            options=options,
            log=log,
            owner="contract",
            settings=QUICK,
            connections=fixed(*known),
        )
        task = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(self.patience):
                yield Through(log, runner)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            log.close()
