"""Dead letters that accumulate, as events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windsock.events import Category, DeadLetter
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.rules.letters import DeadLettersConfig, DeadLettersSource
from windsock.sources.base import Delivery
from windsock.spec import SpecError, WatcherSpec
from windsock.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """The time that the log sees."""
    return VirtualClock()


@pytest.fixture
def log(clock: VirtualClock) -> Iterator[SqliteLog]:
    """A log with three watchers, one of which gets the alerts."""
    log = SqliteLog(":memory:", clock=clock)
    for name in ("orders", "parcels", "alerts"):
        log.register(WatcherSpec(name=name, kind="memory"), source=name)
    yield log
    log.close()


def bury(log: SqliteLog, watcher: str, count: int) -> None:
    """So many letters."""
    dead = [DeadLetter(stage="s", category=Category.INVALID, reason="r", body=b"")] * count
    log.append([Write(watcher=watcher, events=[], dead=dead)])


def source(log: SqliteLog, of: tuple[str, ...] | str = ()) -> DeadLettersSource:
    """A source that tells of more than two letters in an hour."""
    made = DeadLettersSource(DeadLettersConfig(watcher="alerts", over="2/1h", of=of))
    made.log = log
    return made


def letters(delivery: Delivery | None) -> dict[str, int] | None:
    """What a delivery tells, by watcher."""
    if delivery is None:
        return None
    (event,) = delivery.events
    assert event.type == "windsock.dead_letters.accumulating"
    assert event.data["letters"] == sum(event.data["watchers"].values())
    return dict(event.data["watchers"])


def test_more_than_allowed_is_told_once_in_a_window(log: SqliteLog, clock: VirtualClock) -> None:
    """At the number nothing is told, above it once; a new window with new letters is told again."""
    watched = source(log)
    bury(log, "orders", 2)
    assert watched.look(clock()) is None
    bury(log, "parcels", 1)
    assert letters(watched.look(clock())) == {"orders": 2, "parcels": 1}
    bury(log, "parcels", 5)
    assert watched.look(clock() + 3599) is None
    clock.advance(3601)
    assert watched.look(clock()) is None
    bury(log, "orders", 3)
    assert letters(watched.look(clock())) == {"orders": 3}


async def test_the_window_survives_a_restart(log: SqliteLog, clock: VirtualClock) -> None:
    """What was committed with the event is all that the next reader needs."""
    bury(log, "orders", 3)
    told = source(log).look(clock())
    assert told is not None
    again = source(log)
    await again.connect(told.cursor)
    assert again.look(clock() + 3599) is None


@pytest.mark.parametrize("of", ["orders", ("orders",)])
def test_only_the_named_watchers_count(
    log: SqliteLog, clock: VirtualClock, of: tuple[str, ...] | str
) -> None:
    """Letters of others are not told."""
    bury(log, "parcels", 9)
    watched = source(log, of)
    assert watched.look(clock()) is None
    bury(log, "orders", 3)
    assert letters(watched.look(clock())) == {"orders": 3}


def test_its_own_letters_do_not_count(log: SqliteLog, clock: VirtualClock) -> None:
    """A Dag that fails on alerts causes no alert."""
    bury(log, "alerts", 9)
    assert source(log).look(clock()) is None


def test_a_wrong_rate_is_refused() -> None:
    """The mistake is found when the watcher is declared."""
    with pytest.raises(SpecError, match="is not a rate"):
        DeadLettersSource(DeadLettersConfig(watcher="alerts", over="many"))
