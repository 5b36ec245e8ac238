"""WatcherTrigger on Airflow's own shared-stream code, with a real log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent
from airflow.triggers.shared_stream import SharedStreamManager

from windsock.airflow.trigger import WatcherTrigger
from windsock.airflow.watchers import EventWatcher
from windsock.events import Event
from windsock.log import Log, LogUnavailable
from windsock.log.records import Write
from windsock.sources import source_key
from windsock.sources.memory import channel


class Triggerer:
    """What Airflow's triggerer does with shared-stream triggers: run, bind, persist, confirm."""

    def __init__(self) -> None:
        self.streams = SharedStreamManager()
        self.fired: list[dict[str, Any]] = []
        self._unconfirmed: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, trigger: WatcherTrigger, trigger_id: int) -> asyncio.Task[None]:
        """Run a trigger, as ``TriggerRunner.run_trigger`` does."""
        task = asyncio.create_task(self._run(trigger, trigger_id))
        self._tasks.append(task)
        return task

    async def _run(self, trigger: WatcherTrigger, trigger_id: int) -> None:
        key = trigger.shared_stream_key()
        stream = self.streams.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(stream):
                assert isinstance(event, TriggerEvent)
                seq = self.streams.bind_pending_event(trigger_id=trigger_id, key=key)
                assert seq is not None
                self._unconfirmed.append(seq)
                self.fired.append(event.payload)
        finally:
            await self.streams.unsubscribe(trigger_id, key)

    def persist(self) -> None:
        """The supervisor has committed the asset events."""
        self.streams.confirm_persisted(self._unconfirmed)
        self._unconfirmed = []

    async def stop(self) -> None:
        """Cancel every trigger, as on SIGTERM."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def triggerer() -> AsyncIterator[Triggerer]:
    """A triggerer that is stopped after the test."""
    triggerer = Triggerer()
    yield triggerer
    await triggerer.stop()


def watch(name: str, **options: Any) -> WatcherTrigger:
    """The trigger of a watcher on the test's channel."""
    return EventWatcher(name, kind="memory", channel="trigger-test", **options).trigger


def put(*numbers: int) -> None:
    """Send events into the channel."""
    channel("trigger-test").put(*(Event.make({"n": n}, source="t", type="t", id=n) for n in numbers))


@pytest.fixture(autouse=True)
def _clean_channel() -> None:
    channel("trigger-test").clear()


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


async def test_events_are_announced_and_the_announcement_counts_after_the_commit(
    log: Log, triggerer: Triggerer
) -> None:
    """Read, logged, announced with the events inline; due again until Airflow has committed."""
    triggerer.start(watch("a"), 1)
    await until(lambda: log.watcher("a"))
    log.subscribe("a", "dag")
    put(1, 2)
    await until(lambda: triggerer.fired)
    (payload,) = triggerer.fired
    assert [event["data"]["n"] for event in payload["events"]] == [1, 2]
    assert payload["windsock"]["watcher"] == "a"
    assert payload["windsock"]["count"] == 2
    assert log.due(["a"]), "not confirmed yet"
    triggerer.persist()
    await until(lambda: not log.due(["a"]))


async def test_what_was_not_committed_is_announced_again(log: Log, triggerer: Triggerer) -> None:
    """A triggerer that dies between the event and its commit loses nothing: the next one announces it."""
    triggerer.start(watch("a"), 1)
    await until(lambda: log.watcher("a"))
    log.subscribe("a", "dag")
    put(1)
    await until(lambda: triggerer.fired)
    await triggerer.stop()
    second = Triggerer()
    second.start(watch("a"), 2)
    await until(lambda: second.fired)
    await second.stop()
    assert second.fired[0]["windsock"]["up_to"] == triggerer.fired[0]["windsock"]["up_to"]


async def test_watchers_of_one_source_share_one_reader(log: Log, triggerer: Triggerer) -> None:
    """Two triggers on one source: each announces its own watcher, the source is read once."""
    triggerer.start(watch("even", where="data.n % 2 == 0"), 1)
    triggerer.start(watch("odd", where="data.n % 2 == 1"), 2)
    await until(lambda: len(log.watchers()) == 2)
    for name in ("even", "odd"):
        log.subscribe(name, f"{name}-dag")
    put(*range(10))
    await until(lambda: len(triggerer.fired) == 2)
    told = {p["windsock"]["watcher"]: [e["data"]["n"] for e in p["events"]] for p in triggerer.fired}
    assert told == {"even": [0, 2, 4, 6, 8], "odd": [1, 3, 5, 7, 9]}
    owners = {health.owner for health in log.health()}
    assert len(owners) == 1


async def test_nothing_more_is_announced_until_the_dag_has_claimed(log: Log, triggerer: Triggerer) -> None:
    """A burst is one wake-up call; the claim makes the rest due."""
    triggerer.start(watch("a", batch=3), 1)
    await until(lambda: log.watcher("a"))
    log.subscribe("a", "dag")
    put(*range(3))
    await until(lambda: triggerer.fired)
    triggerer.persist()
    await until(lambda: not log.due(["a"]))
    put(*range(3, 9))
    await until(lambda: log.health()[0].logged == 9)
    assert len(triggerer.fired) == 1
    assert [e.data["n"] for e in log.claim(["a"], "dag", "run-1")] == [0, 1, 2]
    await until(lambda: len(triggerer.fired) == 2)
    assert triggerer.fired[1]["windsock"]["count"] == 6


async def test_a_dag_that_is_gone_leaves_no_reader(log: Log, triggerer: Triggerer) -> None:
    """When no Dag is scheduled on the asset, reading stops though the trigger lives; and comes back."""
    triggerer.start(watch("a"), 1)
    await until(lambda: log.watcher("a"))
    log.subscribe("a", "dag")
    put(1)
    await until(lambda: log.health()[0].logged == 1)
    log.unsubscribe("a", "dag")
    source = source_key("memory", {"channel": "trigger-test"})
    free = None
    async with asyncio.timeout(15):
        while free is None:
            free = log.acquire(source, "nobody", 0.0)
            await asyncio.sleep(0.01)
    put(2)
    await asyncio.sleep(0)
    assert log.health()[0].logged == 1
    log.subscribe("a", "dag")
    await until(lambda: log.health()[0].logged == 2)


async def test_a_log_that_is_away_delays_and_loses_nothing(
    log: Log, triggerer: Triggerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger outlives a log that cannot be reached, and goes on when it is back."""
    due, failures = log.due, iter(range(3))

    def flaky(*args: Any, **kwargs: Any) -> Any:
        if next(failures, None) is not None:
            raise LogUnavailable("no route to host")
        return due(*args, **kwargs)

    monkeypatch.setattr(log, "due", flaky)
    task = triggerer.start(watch("a"), 1)
    await until(lambda: log.watcher("a"))
    log.subscribe("a", "dag")
    put(1)
    await until(lambda: triggerer.fired)
    assert not task.done()


async def test_events_of_the_gateway_are_announced_too(log: Log, triggerer: Triggerer) -> None:
    """What another process appends is found by looking."""
    trigger = EventWatcher("hook", kind="webhook", auth="none").trigger
    triggerer.start(trigger, 1)
    await until(lambda: log.watcher("hook"))
    log.subscribe("hook", "dag")
    log.append([Write(watcher="hook", events=[Event.make({"n": 1}, source="t", type="t")])])
    await until(lambda: triggerer.fired)


async def test_stopping_gives_the_lease_back(log: Log, triggerer: Triggerer) -> None:
    """After the last trigger left, another owner gets the source at once."""
    triggerer.start(watch("a"), 1)
    await until(lambda: log.health() and log.health()[0].state == "running")
    await triggerer.stop()
    assert log.acquire(source_key("memory", {"channel": "trigger-test"}), "next", 1.0) is not None


def test_a_trigger_is_rebuilt_from_what_it_serialises() -> None:
    """The definition survives Airflow's own serialisation of trigger arguments."""
    from airflow.serialization.encoders import encode_trigger

    trigger = watch("a", where="data.n > 1", key="data.n", batch=7, within="5s", dedupe="1h")
    encoded = encode_trigger(trigger)
    assert encoded["classpath"] == "windsock.airflow.trigger.WatcherTrigger"
    classpath, kwargs = trigger.serialize()
    again = WatcherTrigger(**kwargs)
    assert again.spec == trigger.spec
    assert again.shared_stream_key() == trigger.shared_stream_key()
    assert classpath == encoded["classpath"]


async def test_run_says_what_it_needs() -> None:
    """Outside shared streams the trigger refuses, with the reason."""
    with contextlib.suppress(StopAsyncIteration), pytest.raises(Exception, match=r"Airflow 3\.3"):
        await anext(watch("a").run())
