"""What is particular to the SQLite log: many rows go into one statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from windsock.events import Event, dedup_hash
from windsock.log.records import EventQuery, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock


@pytest.fixture
def log() -> Iterator[SqliteLog]:
    """An empty log with two watchers, one of which keeps a history."""
    with closing(SqliteLog(":memory:", clock=VirtualClock())) as log:
        log.register(WatcherSpec(name="orders", kind="memory"), source="s")
        log.register(WatcherSpec(name="accounts", kind="memory", history=True), source="s")
        yield log


def _events(numbers: range, size: int = 10) -> list[Event]:
    return [
        Event.make("x" * size, source="s", type="t", id=str(number), subject=f"account-{number}")
        for number in numbers
    ]


def _write(events: list[Event], watcher: str = "orders") -> Write:
    return Write(watcher=watcher, events=events, dedup=[dedup_hash(watcher, event.id) for event in events])


@pytest.mark.parametrize("watcher", ["orders", "accounts"])
@pytest.mark.parametrize("count", [1, 49, 50, 51, 499, 500, 553, 1101])
def test_append_of_any_size(log: SqliteLog, watcher: str, count: int) -> None:
    """However many events one append brings, each is stored once, in order."""
    events = _events(range(count))
    [appended] = log.append([_write(events, watcher)])
    assert [event.id for event in appended.new] == [event.id for event in events]
    assert not appended.duplicates
    stored = log.events(EventQuery(watcher=watcher, limit=count + 1))
    assert [record.event.id for record in reversed(stored)] == [event.id for event in events]


def test_duplicates_among_many(log: SqliteLog) -> None:
    """Those that are known are found wherever in a large append they stand, with the first of each."""
    [first] = log.append([_write(_events(range(0, 1101, 7)))])
    [second] = log.append([_write(_events(range(1101)))])
    assert [event.id for event in second.new] == [str(number) for number in range(1101) if number % 7]
    known = {event.id: event.seq for event in first.new}
    assert {event.id: seq for event, seq in second.duplicates} == known


def test_large_events_among_many(log: SqliteLog) -> None:
    """A large event is stored beside small ones, all in order."""
    events = [*_events(range(300)), *_events(range(300, 301), size=100_000), *_events(range(301, 700))]
    log.append([_write(events)])
    stored = log.events(EventQuery(watcher="orders", limit=1000))
    assert [(r.event.id, r.event.data) for r in reversed(stored)] == [(e.id, e.data) for e in events]


def test_subjects_stay_with_their_events(log: SqliteLog) -> None:
    """Each event of a large append is found by its own subject."""
    log.append([_write(_events(range(1101)), "accounts")])
    for number in (0, 499, 500, 1050, 1100):
        found = log.subject_events(f"account-{number}")
        assert [record.event.id for record in found] == [str(number)]
