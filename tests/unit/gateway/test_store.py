"""The log behind the gateway: opened late, opened once, closed by whoever opened it."""

from __future__ import annotations

import asyncio

import pytest

from windsock.events import Event
from windsock.gateway.refusal import Refused
from windsock.gateway.store import Store
from windsock.log import LogUnavailable
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec


def new_log() -> SqliteLog:
    log = SqliteLog(":memory:")
    log.register(WatcherSpec(name="orders", kind="webhook", options={"auth": "none"}), source="webhook")
    return log


async def test_the_log_is_opened_once_and_on_first_use() -> None:
    """Nothing is opened before the first request, and requests that come together open one log."""
    opened: list[SqliteLog] = []

    def open_log() -> SqliteLog:
        opened.append(new_log())
        return opened[-1]

    store = Store(open_log)
    assert opened == []
    answers = await asyncio.gather(*(store.watchers() for _ in range(5)))
    assert [[spec.name for spec in specs] for specs in answers] == [["orders"]] * 5
    assert len(opened) == 1
    await store.aclose()
    with pytest.raises(LogUnavailable):
        opened[0].watchers()


async def test_a_log_that_does_not_open_is_tried_again() -> None:
    """While the log cannot be opened each request is refused with 503; the first that can opens it."""
    failures = [LogUnavailable("starting"), OSError("no space left")]

    def open_log() -> SqliteLog:
        if failures:
            raise failures.pop(0)
        return new_log()

    store = Store(open_log)
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            await store.watchers()
        assert caught.value.status == 503
    assert [spec.name for spec in await store.watchers()] == ["orders"]
    await store.aclose()


async def test_a_given_log_stays_open() -> None:
    """A log that somebody else opened is theirs to close; the store takes no more writes."""
    log = new_log()
    store = Store(log)
    write = Write(watcher="orders", events=[Event(id="a", source="s", type="t")])
    assert (await store.append(write)).new[0].id == "a"
    await store.aclose()
    with pytest.raises(Refused) as caught:
        await store.append(write)
    assert caught.value.status == 503
    assert len(log.watchers()) == 1
    log.close()
