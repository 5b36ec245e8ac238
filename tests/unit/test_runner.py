"""The runner: source → steps → log → ack, with the memory source and the memory log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from windsock.events import Category, DeadLetter, Event, SourceError
from windsock.log import Log, LogUnavailable
from windsock.log.records import EventQuery
from windsock.log.sqlite import SqliteLog
from windsock.pipeline import Pipeline
from windsock.runner import Runner, RunnerSettings, writes_for
from windsock.sources.memory import Channel, channel
from windsock.spec import WatcherSpec

SOURCE = "memory:test"
QUICK = RunnerSettings(lease=5.0, heartbeat=0.02, backoff=0.01, max_backoff=0.05)


@pytest.fixture
def log() -> Iterator[SqliteLog]:
    """A memory log with one watcher and one Dag."""
    log = SqliteLog(":memory:")
    log.register(WatcherSpec(name="orders", kind="memory", options={"channel": "orders"}), source=SOURCE)
    log.subscribe("orders", "fulfil")
    yield log
    log.close()


@pytest.fixture
def orders() -> Iterator[Channel]:
    """The channel that the runner reads."""
    yield channel("orders")
    channel("orders").clear()


def order(number: int) -> Event:
    """A small event."""
    return Event.make({"number": number}, source="shop", type="order", id=number)


def make_runner(log: Log, owner: str = "a") -> Runner:
    """A runner on the channel, with short times."""
    return Runner(
        source=SOURCE, kind="memory", options={"channel": "orders"}, log=log, owner=owner, settings=QUICK
    )


@contextlib.asynccontextmanager
async def running(runner: Runner) -> AsyncIterator[Runner]:
    """Run the runner for the block, then stop it and check that it stopped cleanly."""
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def logged(log: Log) -> list[int]:
    """The numbers in the log, in order."""
    return [record.event.data["number"] for record in reversed(log.events(EventQuery(limit=10_000)))]


async def test_everything_is_appended_in_order_then_acked(log: SqliteLog, orders: Channel) -> None:
    """What a source delivers is in the log, in order, by the time it is acked."""
    orders.put(*(order(n) for n in range(2500)))
    async with running(make_runner(log)):
        await asyncio.wait_for(orders.drained(), 10)
    assert logged(log) == list(range(2500))


async def test_nothing_is_acked_when_the_commit_fails(
    log: SqliteLog, orders: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed append is no ack: the events come again and are logged once."""
    append, failures = log.append, [LogUnavailable("disk full"), LogUnavailable("disk full")]

    def flaky(*args: object, **kwargs: object) -> object:
        if failures:
            assert orders.acked == []
            raise failures.pop()
        return append(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "append", flaky)
    orders.put(order(1), order(2))
    async with running(make_runner(log)):
        await asyncio.wait_for(orders.drained(), 10)
    assert logged(log) == [1, 2]


async def test_redelivery_after_a_lost_ack_is_a_duplicate(log: SqliteLog, orders: Channel) -> None:
    """Committed but not acked, read again: once in the log."""
    orders.put(order(1))
    async with running(make_runner(log)):
        await asyncio.wait_for(orders.drained(), 10)
        orders.put(order(1), order(2))
        await asyncio.wait_for(orders.drained(), 10)
    assert logged(log) == [1, 2]
    assert log.health()[0].duplicates == 1


async def test_a_failing_source_is_connected_again(log: SqliteLog, orders: Channel) -> None:
    """Errors of the source are shown in health, retried with backoff, and lose nothing."""
    for _ in range(3):
        orders.fail_next(SourceError("broker is away: start it"))
    orders.put(order(1))
    async with running(make_runner(log)):
        await until(lambda: "broker is away" in (log.health()[0].error or ""))
        await asyncio.wait_for(orders.drained(), 10)
        await until(lambda: log.health()[0].state == "running")
        assert log.health()[0].error is None
    assert logged(log) == [1]


async def test_the_source_is_paused_at_the_high_water_mark(log: SqliteLog, orders: Channel) -> None:
    """Past the high-water mark reading stands still; below the low-water mark it goes on; nothing is lost."""
    options = {"channel": "orders"}
    log.register(
        WatcherSpec(name="orders", kind="memory", options=options, high_water=10, low_water=5), source=SOURCE
    )
    async with running(make_runner(log)):
        orders.put(*(order(n) for n in range(20)))
        await until(lambda: log.health()[0].state == "paused")
        orders.put(*(order(n) for n in range(20, 3020)))
        assert log.backlog(["orders"]) <= 20 + 1000
        while len(logged(log)) < 3020:
            log.claim(["orders"], "fulfil", f"run-{log.health()[0].logged}")
            for dag_id, run_id in log.active_runs():
                log.settle(dag_id, run_id, ok=True)
            await asyncio.sleep(0.01)
    assert logged(log) == list(range(3020))


async def test_two_runners_one_reads_and_the_other_takes_over(log: SqliteLog, orders: Channel) -> None:
    """Only the owner of the lease reads; when it stops, the other one goes on."""
    first, second = make_runner(log, "a"), make_runner(log, "b")
    async with running(second):
        async with running(first):
            orders.put(*(order(n) for n in range(100)))
            await asyncio.wait_for(orders.drained(), 10)
            assert max(runner.state for runner in (first, second)) == "standby"
        orders.put(*(order(n) for n in range(100, 200)))
        await asyncio.wait_for(orders.drained(), 10)
    assert logged(log) == list(range(200))


async def test_a_runner_that_lost_its_lease_appends_nothing(log: SqliteLog, orders: Channel) -> None:
    """A stale owner's append is refused; the new owner has the source."""
    async with running(make_runner(log, "a")) as runner:
        await until(lambda: runner.state == "running")
        stolen = None
        while stolen is None:
            held = log.acquire(SOURCE, "a", 0.0)
            assert held is not None
            stolen = log.acquire(SOURCE, "thief", 60.0)
        orders.put(order(1))
        await until(lambda: runner.state == "standby")
        assert logged(log) == []
        assert orders.acked == []
        log.release(stolen)
        await asyncio.wait_for(orders.drained(), 10)
    assert logged(log) == [1]


async def test_malformed_input_becomes_a_dead_letter(log: SqliteLog, orders: Channel) -> None:
    """What could not become an event is in the dead letters with its bytes, and its neighbours go on."""
    letter = DeadLetter(stage="parse", category=Category.INVALID, reason="not JSON", body=b"\xff{")
    orders.put(order(1), letter, order(2))
    async with running(make_runner(log)):
        await asyncio.wait_for(orders.drained(), 10)
    assert logged(log) == [1, 2]
    assert [(d.stage, d.body) for d in log.dead_letters()] == [("parse", b"\xff{")]


async def test_every_watcher_of_a_source_gets_its_events(log: SqliteLog, orders: Channel) -> None:
    """Watchers share one reader; each has its own filter, and one that joins later is taken up."""
    options = {"channel": "orders"}
    log.register(
        WatcherSpec(name="large", kind="memory", options=options, where="data.number >= 8"), source=SOURCE
    )
    async with running(make_runner(log)):
        orders.put(*(order(n) for n in range(10)))
        await asyncio.wait_for(orders.drained(), 10)
    counts = {health.watcher: (health.logged, health.filtered) for health in log.health()}
    assert counts == {"orders": (10, 0), "large": (2, 8)}


async def test_no_watcher_no_ack(orders: Channel) -> None:
    """With no watcher registered nothing is read, so nothing is lost."""
    log = SqliteLog(":memory:")
    orders.put(order(1))
    async with running(make_runner(log)) as runner:
        await until(lambda: runner.state == "backoff")
    assert orders.acked == []
    log.close()


def test_a_step_that_breaks_costs_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside a step sets one event aside, with the traceback; the rest go on."""
    pipeline = Pipeline.compile(WatcherSpec(name="orders", kind="memory"))
    run = pipeline.run

    def broken(events: list[Event]) -> object:
        if any(event.data["number"] == 2 for event in events):
            raise ZeroDivisionError("two")
        return run(events)

    monkeypatch.setattr(pipeline, "run", broken)
    write = writes_for(pipeline, [order(n) for n in range(4)])
    assert [event.data["number"] for event in write.events] == [0, 1, 3]
    assert [letter.reason for letter in write.dead] == ["ZeroDivisionError: two"]
    assert "Traceback" in (write.dead[0].error or "")


async def test_a_runner_that_is_stopped_says_so(log: SqliteLog, orders: Channel) -> None:
    """Health tells a reader that was stopped from one that died."""
    async with running(make_runner(log)):
        await until(lambda: log.health()[0].state == "running")
    assert log.health()[0].state == "stopped"
