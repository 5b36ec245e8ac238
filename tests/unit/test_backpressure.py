"""Backpressure: each watcher's own marks, and the total, where the lowest priority stops first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from windsock.backpressure import WaterMarks
from windsock.events import Event
from windsock.log.records import Kept, Lease, WatcherHealth
from windsock.log.sqlite import SqliteLog
from windsock.runner import Runner, RunnerSettings
from windsock.sources.memory import channel
from windsock.spec import WatcherSpec

SETTINGS = RunnerSettings(lease=5.0, heartbeat=0.02, high_water_total=100, low_water_total=50)
LEASE = Lease(name="s", owner="o", epoch=1, expires_at=0.0)


def kept(*, backlog: int = 0, total: int | None = None, rank: int = 0) -> Kept:
    """What a reader of a watcher with the marks 10 and 5 is told."""
    spec = WatcherSpec(name="w", kind="memory", high_water=10, low_water=5)
    return Kept(lease=LEASE, backlog=backlog, specs=(spec,), total=total, rank=rank)


def stops(marks: WaterMarks, *seen: Kept) -> list[bool]:
    return [marks.reason(one) is not None for one in seen]


def test_own_marks() -> None:
    """A source stops at its high mark and goes on at the low one, not between them."""
    seen = [kept(backlog=one) for one in (9, 10, 6, 5, 9, 10)]
    assert stops(WaterMarks(), *seen) == [False, True, True, False, False, True]


def test_marks_of_the_total() -> None:
    """The total stops a source that has no backlog of its own, until it is down to the low mark."""
    seen = [kept(total=one) for one in (99, 100, 51, 50, 99)]
    assert stops(WaterMarks(100, 50), *seen) == [False, True, True, False, False]


def test_the_higher_priority_has_more_room() -> None:
    """Each priority stops a tenth later and goes on a tenth earlier than the one below it."""
    assert stops(WaterMarks(100, 50), kept(total=109, rank=1), kept(total=110, rank=1)) == [False, True]
    marks = WaterMarks(100, 50)
    assert stops(marks, *(kept(total=one, rank=1) for one in (110, 56, 55))) == [True, True, False]


def test_without_a_total_there_is_no_limit_in_all() -> None:
    """By default only the watcher's own marks count."""
    assert stops(WaterMarks(), kept(total=10**9), kept()) == [False, False]


def test_reasons_say_which_mark_it_was() -> None:
    """Health can show why a source stands still and when it goes on."""
    assert (
        WaterMarks().reason(kept(backlog=12)) == "12 events of its watchers are not settled; it goes on at 5"
    )
    reason = WaterMarks(100, 50).reason(kept(total=120, rank=1))
    assert reason is not None
    assert "120 events of all watchers" in reason
    assert "goes on at 55" in reason


@pytest.fixture
def log() -> Iterator[SqliteLog]:
    """Two watchers on two sources: what is urgent has the higher priority."""
    log = SqliteLog(":memory:")
    for name, priority in (("bulk", 0), ("urgent", 5)):
        spec = WatcherSpec(name=name, kind="memory", options={"channel": name}, priority=priority)
        log.register(spec, source=name)
        log.subscribe(name, "dag")
    yield log
    log.close()
    channel("bulk").clear()
    channel("urgent").clear()


@contextlib.asynccontextmanager
async def reading(log: SqliteLog) -> AsyncIterator[None]:
    """A runner on each source for the block."""
    tasks = [
        asyncio.create_task(
            Runner(
                source=name, kind="memory", options={"channel": name}, log=log, owner=name, settings=SETTINGS
            ).run()
        )
        for name in ("bulk", "urgent")
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def put(name: str, first: int, count: int) -> None:
    channel(name).put(
        *(Event.make({}, source=name, type="t", id=f"{name}-{n}") for n in range(first, first + count))
    )


async def until(log: SqliteLog, **states: str) -> dict[str, WatcherHealth]:
    """Wait until health shows these states."""
    async with asyncio.timeout(20):
        while True:
            health = {one.watcher: one for one in log.health()}
            if all(health[name].state == state for name, state in states.items()):
                return health
            await asyncio.sleep(0.01)


def settle(log: SqliteLog, name: str, count: int) -> None:
    """A run takes events and succeeds."""
    run_id = f"run-{log.health()[0].logged}-{count}"
    log.claim([name], "dag", run_id, limit=count)
    log.settle("dag", run_id, ok=True)


async def test_the_lowest_priority_is_paused_first(log: SqliteLog) -> None:
    """The total stops bulk, then urgent, with the reason in health; urgent goes on before bulk does."""
    async with reading(log):
        put("bulk", 0, 102)
        health = await until(log, bulk="paused", urgent="running")
        assert "102 events of all watchers are not settled" in (health["bulk"].error or "")
        assert health["urgent"].error is None
        put("urgent", 0, 10)
        await until(log, bulk="paused", urgent="paused")
        settle(log, "bulk", 59)
        health = await until(log, urgent="running")
        assert health["bulk"].state == "paused"
        settle(log, "bulk", 10)
        health = await until(log, bulk="running", urgent="running")
        assert health["bulk"].error is None
