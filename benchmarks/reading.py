"""Part E: how fast each source is read into the log, beside its client library's bare read-and-ack loop.

The same server on the same two cores serves both, so what is compared is what Windsock adds: events made,
filtered, deduplicated, stored durably in SQLite with the position, then acked. Rounds alternate.
Part F: what two hundred watchers cost while nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from report import Finding, number, progress

from windsock.connections import fixed
from windsock.log.sqlite import SqliteLog
from windsock.runner import Runner
from windsock.sources import source_key
from windsock.spec import WatcherSpec

__all__ = ["measure_idle", "measure_sources"]

TARGETS = {"kafka": 25_000, "nats": 10_000, "redis_stream": 10_000, "rabbitmq": 4_000}
"""Events a second that must be reached; the others are measured and stated."""
SLOW = ("sqs", "s3")
SHARE = 0.5
"""What of the bare loop must be reached, unless the source has a rate to reach that the log limits."""
IDLE_WATCHERS, IDLE_LIMIT = 200, 0.05


def measure_sources(folder: Path, *, quick: bool) -> Iterator[Finding]:
    """Reader throughput of each source that has a benchmark."""
    for kind in (*TARGETS, *SLOW):
        progress(f"sources: {kind}")
        bench = importlib.import_module(f"sources.{kind}").Bench(folder / kind)
        count = (2_000 if quick else 5_000) if kind in SLOW else (20_000 if quick else 60_000)
        try:
            yield asyncio.run(_compare(bench, count, rounds=1 if quick else 3))
        finally:
            bench.close()


async def _compare(bench: Any, count: int, rounds: int) -> Finding:
    bare, ours = [], []
    for _ in range(rounds):
        bench.fresh()
        await bench.fill(count)
        began = time.perf_counter()
        await bench.bare(count)
        bare.append(count / (time.perf_counter() - began))
        bench.fresh()
        await bench.fill(count)
        ours.append(await _through_the_runner(bench, count))
    baseline, windsock = statistics.median(bare), statistics.median(ours)
    share = windsock / baseline
    rate = TARGETS.get(bench.kind)
    reached, target = None, "stated"
    if bench.kind == "kafka":
        reached, target = windsock >= rate, f"{number(rate)}/s"
    elif rate:
        reached = windsock >= rate and share >= SHARE
        target = f"{number(rate)}/s and {SHARE:.0%}"
    return Finding(
        part="sources",
        what=f"read {bench.kind} into the SQLite log, {number(count)} events",
        baseline=f"{number(baseline)}/s bare client",
        windsock=f"{number(windsock)}/s",
        ratio=share,
        target=target,
        reached=reached,
        raw={"bare": bare, "windsock": ours},
    )


class _CountingLog(SqliteLog):
    """Knows how much was stored without asking the database."""

    stored = 0

    def append(self, writes: Any, **kwargs: Any) -> Any:
        appended = super().append(writes, **kwargs)
        self.stored += sum(len(one.new) for one in appended)
        return appended


async def _through_the_runner(bench: Any, count: int) -> float:
    """Events a second from the start of the runner to the last event stored."""
    with tempfile.TemporaryDirectory(prefix="windsock-bench-") as folder:
        log = _CountingLog(Path(folder) / "log.db")
        options = bench.options()
        key = source_key(bench.kind, options)
        spec = WatcherSpec(name="bench", kind=bench.kind, options=options, high_water=10 * count + 100_000)
        log.register(spec, source=key)
        log.subscribe("bench", "bench")
        done = asyncio.Event()

        def appended() -> None:
            if log.stored >= count:
                done.set()

        runner = Runner(
            source=key,
            kind=bench.kind,
            options=options,
            log=log,
            owner="bench",
            connections=fixed(*bench.connections()),
            on_append=appended,
        )
        began = time.perf_counter()
        task = asyncio.create_task(runner.run())
        try:
            await done.wait()
            return count / (time.perf_counter() - began)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            log.close()


def measure_idle(folder: Path, *, quick: bool) -> Iterator[Finding]:
    """The processor time of a triggerer's event loop that holds two hundred watchers on quiet sources."""
    progress(f"idle: {IDLE_WATCHERS} watchers")
    share = asyncio.run(_idle(folder, seconds=5 if quick else 20))
    yield Finding(
        part="idle",
        what=f"{IDLE_WATCHERS} watchers on quiet sources",
        baseline="",
        windsock=f"{share:.1%} of a core",
        target=f"{IDLE_LIMIT:.0%}",
        reached=share <= IDLE_LIMIT,
        raw={"share": share},
    )


async def _idle(folder: Path, seconds: float) -> float:
    from windsock.airflow import settings
    from windsock.airflow.trigger import WatcherTrigger

    log = SqliteLog(folder / "idle.db")
    settings.get_log = lambda: log
    tasks = []
    for number_ in range(IDLE_WATCHERS):
        directory = folder / f"idle-{number_}"
        directory.mkdir()
        spec = WatcherSpec(name=f"w{number_}", kind="memory", options={"channel": f"idle-{number_}"})
        if number_ % 2:
            spec = WatcherSpec(name=f"w{number_}", kind="files", options={"path": str(directory)})
        log.register(spec, source=source_key(spec.kind, spec.options))
        log.subscribe(spec.name, "dag")
        trigger = WatcherTrigger(spec.as_dict())
        producer = trigger.create_shared_stream_producer({"watcher": spec.as_dict()})
        tasks.append(asyncio.create_task(_listen(trigger, producer)))
    try:
        while sum(h.state == "running" for h in log.health()) < IDLE_WATCHERS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        processor, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        return (time.process_time() - processor) / (time.perf_counter() - began)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        log.close()


async def _listen(trigger: Any, producer: Any) -> None:
    """What Airflow's triggerer does with a trigger on a shared stream that stays quiet."""

    async def announcements() -> Any:
        async for announcement, _ in producer.open_stream():
            yield announcement

    try:
        async for _ in trigger.filter_shared_stream(announcements()):
            pass
    finally:
        await producer.aclose()
