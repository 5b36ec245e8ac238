"""A memory log with two watchers that keep a history, and the verbs of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock

Tell = Callable[..., Event]


@pytest.fixture
def clock() -> VirtualClock:
    """The time that the log sees."""
    return VirtualClock()


@pytest.fixture
def log(clock: VirtualClock) -> Iterator[SqliteLog]:
    """The log."""
    log = SqliteLog(":memory:", clock=clock)
    for name in ("orders", "bills"):
        log.register(WatcherSpec(name=name, kind="memory", history=True), source="s", asset="shop")
    yield log
    log.close()


@pytest.fixture
def tell(log: SqliteLog) -> Tell:
    """Stores an event and gives it back as the log has it; ids are numbers."""
    count = 0

    def tell(type: str, subject: str | None = "o1", /, *, watcher: str = "orders", **data: Any) -> Event:
        nonlocal count
        count += 1
        event = Event.make(data, id=count, source="shop", type=type, subject=subject)
        [appended] = log.append([Write(watcher=watcher, events=[event])])
        return appended.new[0]

    return tell
