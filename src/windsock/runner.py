"""The runner: source → steps → log → ack.

One runner reads one source for all watchers that are registered on it. It owns the source by a lease; what
it reads goes through each watcher's pipeline and is appended, with the source's cursor, in one transaction;
then, and only then, it acks.

::

      STANDBY ──lease──▶ CONNECTING ──▶ RUNNING ◀──▶ PAUSED (backlog at the high-water mark)
         ▲                    ▲            │
         │                    └─ BACKOFF ◀─┤ source or log failed: wait, then connect from the log's cursor
         └───────────── lease lost ────────┘

Cancel ``run()`` to stop: the source is closed and the lease given back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from windsock.backpressure import WaterMarks
from windsock.connections import Connections
from windsock.events import Category, DeadLetter, Event, LeaseLost, Verdict, WindsockError
from windsock.log.base import Log
from windsock.log.records import Beat, Lease, Write
from windsock.pipeline import Pipeline
from windsock.pipeline.route import share
from windsock.pulse import Pulse
from windsock.rules.tide import ReadsLog
from windsock.sources import Delivery, Source, make_source
from windsock.spec import WatcherSpec

__all__ = ["Runner", "RunnerSettings", "join_writes", "writes_for"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The runner's times, in seconds, and the size of one commit."""

    lease: float = 15.0
    """How long a source stays owned by a runner that has died."""
    heartbeat: float = 3.0
    """How often the lease is renewed, the backlog looked at and health written."""
    backoff: float = 0.5
    """The first wait after a failure; doubles each time."""
    max_backoff: float = 30.0
    commit: int = 5000
    """The most events that are appended in one transaction."""
    high_water_total: int = 0
    """Unsettled events of all watchers at which sources are paused, by priority; 0 for no limit."""
    low_water_total: int = 0


@dataclass
class _Watch:
    """A watcher with its compiled pipeline."""

    spec: WatcherSpec
    pipeline: Pipeline


@dataclass
class Runner:
    """Reads one source for every watcher that is registered on it."""

    source: str
    """The source's key: the name of its lease and its cursor."""
    kind: str
    options: dict[str, Any]
    log: Log
    owner: str
    settings: RunnerSettings = field(default_factory=RunnerSettings)
    connections: Connections | None = None
    """Finds the Connections that sources name; without it, the environment."""
    on_append: Callable[[], None] = lambda: None
    """Called after each commit, for whoever announces what was appended."""
    state: str = "standby"
    _watches: dict[str, _Watch] = field(default_factory=dict)
    _error: str | None = None
    _lag: int | None = None
    _go: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Read until cancelled; nothing that the source or the log does ends it."""
        failures = 0
        while True:
            try:
                async with self._lease() as lease:
                    async for delivered in self._read(lease):
                        failures = 0 if delivered else failures
            except LeaseLost as error:
                logger.warning("windsock.runner.lease_lost source=%s: %s", self.source, error)
            except Exception as error:  # noqa: BLE001 - a reader that ends is events that wait for ever
                failures += 1
                await self._back_off(failures, error)

    @contextlib.asynccontextmanager
    async def _lease(self) -> AsyncIterator[Lease]:
        """Hold the source's lease for the block; wait for it while another owner has it."""
        self.state = "standby"
        lease = None
        while lease is None:
            lease = await self._call(self.log.acquire, self.source, self.owner, self.settings.lease)
            if lease is None:
                await asyncio.sleep(self.settings.heartbeat)
        try:
            yield lease
        except LeaseLost:
            raise  # the next owner speaks for the source now
        except BaseException:
            # Best effort: a lease that cannot be given back expires by itself.
            with contextlib.suppress(WindsockError):
                await asyncio.shield(self._call(self._leave, lease))
            raise

    def _leave(self, lease: Lease) -> None:
        self.log.heartbeat(self.source, self.owner, "stopped", error=self._error)
        self.log.release(lease)

    async def _read(self, lease: Lease) -> AsyncIterator[bool]:
        """Connect, read, append, ack; yields after each commit."""
        source = make_source(self.kind, self.options, self.connections)
        if isinstance(source, ReadsLog):
            source.log, source.key = self.log, self.source
        inbox: asyncio.Queue[Delivery] = asyncio.Queue(maxsize=8)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._compile(await self._call(self.log.watchers, source=self.source))
            self.state, self._lag = "connecting", None
            await source.connect(await self._call(self.log.cursor, self.source))
            self._error = None
            self._go.set()
            tasks = [
                asyncio.create_task(self._fill(source.read(), inbox), name=f"windsock-read-{self.source}"),
                asyncio.create_task(self._keep(lease), name=f"windsock-keep-{self.source}"),
                asyncio.create_task(self._measure(source), name=f"windsock-lag-{self.source}"),
            ]
            while True:
                deliveries = await self._next(inbox, tasks)
                await self._call(self._append, deliveries, lease)
                self.on_append()
                for delivery in deliveries:
                    await delivery.ack()
                _heed_cancellation()
                yield True
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await source.close()

    async def _fill(self, read: AsyncIterator[Delivery], inbox: asyncio.Queue[Delivery]) -> None:
        """Move deliveries to the inbox; stands still while the runner is paused."""
        async for delivery in read:
            await inbox.put(delivery)
            await self._go.wait()
        raise WindsockError(f"source {self.kind!r} stopped reading by itself")

    async def _next(
        self, inbox: asyncio.Queue[Delivery], tasks: Sequence[asyncio.Task[None]]
    ) -> list[Delivery]:
        """The deliveries of the next commit: at least one, and all that wait, up to the commit's size."""
        getting = asyncio.create_task(inbox.get())
        try:
            await asyncio.wait([getting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            deliveries = [await getting]
        finally:
            getting.cancel()
        count = len(deliveries[0].events)
        while not inbox.empty() and count < self.settings.commit:
            deliveries.append(inbox.get_nowait())
            count += len(deliveries[-1].events)
        return deliveries

    async def _keep(self, lease: Lease) -> None:
        """Renew the lease, take up new watchers, hold the water marks, say how it goes."""
        pulse = Pulse.of(self.log, interval=self.settings.heartbeat, lease=self.settings.lease)
        total = bool(self.settings.high_water_total)
        marks = WaterMarks(self.settings.high_water_total, self.settings.low_water_total)
        beat = Beat(lease=lease, state="running", total=total)
        kept = await pulse.beat(beat, now=True)
        while True:
            await self._compile(kept.specs)
            reason = marks.reason(kept)
            if reason is None:
                self._go.set()
            else:
                self._go.clear()
            self.state = "running" if reason is None else "paused"
            changed = self.state != beat.state
            beat = Beat(lease=lease, state=self.state, lag=self._lag, error=reason, total=total)
            kept = await pulse.beat(beat, now=changed)

    async def _measure(self, source: Source) -> None:
        """Ask the source how much waits there, less often than the heart beats."""
        while True:
            self._lag = await source.lag()
            await asyncio.sleep(self.settings.heartbeat * 3)

    async def _compile(self, specs: Sequence[WatcherSpec]) -> None:
        """Compile the pipelines of the watchers that are new or changed."""
        self._watches = {
            spec.name: known
            if (known := self._watches.get(spec.name)) and known.spec == spec
            else _Watch(spec, await asyncio.to_thread(Pipeline.compile, spec))
            for spec in specs
        }
        if not self._watches:
            raise WindsockError(
                f"no watcher is registered on source {self.source!r}: what is read would be lost"
            )

    def _append(self, deliveries: Sequence[Delivery], lease: Lease) -> None:
        """Store what the pipelines make of the deliveries and the position after them, in one transaction."""
        writes = self._writes(deliveries)
        cursor = next((d.cursor for d in reversed(deliveries) if d.cursor is not None), None)
        state = {key: known for delivery in deliveries for key, known in delivery.state.items()}
        self.log.append(writes, source=self.source, cursor=cursor, state=state, lease=lease)

    def _writes(self, deliveries: Sequence[Delivery]) -> list[Write]:
        events = [event for delivery in deliveries for event in delivery.events]
        dead = [letter for delivery in deliveries for letter in delivery.dead]
        verdicts = [verdict for delivery in deliveries for verdict in delivery.verdicts]
        pipelines = [watch.pipeline for watch in self._watches.values()]
        shared = share(pipelines, events)
        return [
            writes_for(
                pipeline, shared[pipeline.spec.name][0], [*dead, *shared[pipeline.spec.name][1]], verdicts
            )
            for pipeline in pipelines
        ]

    async def _back_off(self, failures: int, error: Exception) -> None:
        wait = min(self.settings.backoff * 2 ** (failures - 1), self.settings.max_backoff)
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        self.state, self._error = "backoff", f"{type(error).__name__}: {error}"
        level = logging.WARNING if isinstance(error, WindsockError) else logging.ERROR
        logger.log(
            level,
            "windsock.source.failed source=%s retry_in=%.1fs: %s",
            self.source,
            wait,
            self._error,
            exc_info=level == logging.ERROR,
        )
        with contextlib.suppress(WindsockError):
            await self._call(self.log.heartbeat, self.source, self.owner, self.state, error=self._error)
        await asyncio.sleep(wait)

    async def _call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """The log blocks, the event loop must not."""
        return await asyncio.to_thread(method, *args, **kwargs)


def _heed_cancellation() -> None:
    """Stop if we were told to: a client library may have swallowed it, as ``wait_for`` of Python 3.11 can."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def writes_for(
    pipeline: Pipeline,
    events: Sequence[Event],
    dead: Sequence[DeadLetter] = (),
    verdicts: Sequence[Verdict] = (),
) -> Write:
    """What a watcher's pipeline makes of events, ready to append. A step that breaks costs one event.

    ``dead`` and ``verdicts`` are what the source itself did not pass on.
    """
    try:
        outcome = pipeline.run(events)
    except Exception as error:
        if len(events) > 1:
            single = [writes_for(pipeline, [event]) for event in events]
            return join_writes(pipeline.spec.name, [writes_for(pipeline, [], dead, verdicts), *single])
        logger.exception("windsock.pipeline.failed watcher=%s", pipeline.spec.name)
        letters = [
            DeadLetter(
                stage="pipeline",
                category=Category.INVALID,
                reason=f"{type(error).__name__}: {error}",
                error=traceback.format_exc(),
                body=event.encode(),
            )
            for event in events
        ]
        return Write(
            watcher=pipeline.spec.name,
            events=[],
            dead=[*dead, *letters],
            filtered=len(verdicts),
            verdicts=verdicts,
        )
    failures = [verdict.reason for verdict in outcome.verdicts if verdict.reason]
    if failures:
        logger.warning(
            "windsock.filter.failed watcher=%s events=%d: %s", pipeline.spec.name, len(failures), failures[0]
        )
    return Write(
        watcher=pipeline.spec.name,
        events=outcome.kept,
        dedup=outcome.dedup,
        bodies=outcome.bodies,
        dead=[*dead, *outcome.dead],
        filtered=len(outcome.verdicts) + len(verdicts),
        verdicts=[*verdicts, *outcome.verdicts],
        numbers=outcome.numbers,
        flush=outcome.flush,
    )


def join_writes(watcher: str, writes: Sequence[Write], dead: Sequence[DeadLetter] = ()) -> Write:
    """Several writes to one watcher as one, so that they are stored together or not at all."""
    return Write(
        watcher=watcher,
        events=[event for write in writes for event in write.events],
        dedup=[digest for write in writes for digest in write.dedup],
        bodies=[body for write in writes for body in write.bodies],
        dead=[*dead, *(letter for write in writes for letter in write.dead)],
        filtered=sum(write.filtered for write in writes),
        verdicts=[verdict for write in writes for verdict in write.verdicts],
        numbers=[number for write in writes for number in write.numbers],
        flush=any(write.flush for write in writes),
    )
