"""Diff and forecast: what a definition would have made of a log's past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from windsock.diff import WatcherDiff, diff
from windsock.events import Event
from windsock.forecast import forecast
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.pipeline import Pipeline
from windsock.runner import writes_for
from windsock.spec import Batching, WatcherSpec
from windsock.testing.clock import VirtualClock

DAY = 86400.0
SPEC = WatcherSpec(name="orders", kind="memory", where="data.total > 100", batch=Batching(size=2))


@pytest.fixture
def clock() -> VirtualClock:
    """The log's time: a Monday, 00:00 UTC."""
    return VirtualClock(1_699_833_600.0)


@pytest.fixture
def log(clock: VirtualClock) -> Iterator[SqliteLog]:
    """Two days with an order an hour, of 50, 150, 250, 50, …; two Dags want them."""
    log = SqliteLog(":memory:", clock=clock)
    log.register(SPEC, source="memory:orders", asset="stock")
    log.subscribe("orders", "fulfil")
    log.subscribe("orders", "audit")
    for hour in range(48):
        total = 50 + 100 * (hour % 3)
        event = Event.make({"total": total, "user": hour % 2}, source="shop", type="order", id=f"o{hour}")
        log.append([writes_for(Pipeline.compile(SPEC), [event])])
        clock.advance(3600)
    yield log
    log.close()


def changed(log: SqliteLog, **options: Any) -> WatcherDiff:
    """What changes if the orders are declared with these options."""
    new = msgspec.structs.replace(SPEC, **options)
    [found] = diff(log, old={"orders": SPEC}, new={"orders": new}).watchers
    return found


def test_the_same_definition_changes_nothing(log: SqliteLog) -> None:
    """Every event is judged, the filtered ones too, and nothing differs."""
    found = changed(log)
    assert (found.events, found.changed, found.options) == (48, False, [])
    assert (found.old.kept, found.old.filtered, found.old.batches, found.old.runs) == (32, 16, 32, 64)
    assert found.summary() == "nothing changes"


def test_a_wider_filter_keeps_what_was_filtered(log: SqliteLog) -> None:
    """The remembered events are newly kept, with the reason why they were not before."""
    found = changed(log, where="data.total > 10")
    assert found.changes == {"newly kept": 16}
    assert found.first is not None
    assert (found.first.event_id, found.first.old, found.first.new) == ("o0", "filtered", "kept")
    assert "data.total > 100 is false: data.total = 50" in found.first.reason
    assert found.summary() == "+32 runs, +16 batches, +16 events kept, 16 newly kept"


def test_a_narrower_filter_names_the_first_event(log: SqliteLog) -> None:
    """Newly filtered, with the part of the new condition that is false."""
    found = changed(log, where="data.total > 200")
    assert found.changes == {"newly filtered": 16}
    assert found.first is not None
    assert found.first.event_id == "o1"
    assert found.first.reason == "data.total > 200 is false: data.total = 150"


def test_a_schema_makes_events_invalid(log: SqliteLog) -> None:
    """Newly invalid, with what the schema says."""
    found = changed(log, schema={"type": "object", "properties": {"user": {"const": 0}}})
    assert found.changes == {"newly invalid": 16}
    assert found.first is not None
    assert "validate" in found.first.reason


def test_another_dedupe_key_makes_duplicates(log: SqliteLog) -> None:
    """Of each user the first order is left."""
    found = changed(log, dedupe_key="string(data.user)")
    assert found.changes == {"newly duplicate": 30}
    assert found.new.kept == 2


def test_batches_and_runs(log: SqliteLog) -> None:
    """Waiting four hours for a batch makes fewer runs, and changes no event."""
    found = changed(log, batch=Batching(size=10, within=4 * 3600.0))
    assert (found.changes, found.changed) == ({}, True)
    assert found.new.batches < found.old.batches / 2
    assert found.new.runs == 2 * found.new.batches


def test_a_key_alters_events(log: SqliteLog) -> None:
    """What stays kept but looks different is counted, and shown."""
    found = changed(log, key="string(data.user)")
    assert found.changes == {"altered": 32}
    assert found.first is not None
    assert found.first.reason == "key None → '1'"


def test_what_it_cannot_know_is_said(log: SqliteLog) -> None:
    """A transformation, and filtered events that are forgotten."""
    notes = " ".join(changed(log, transform={"data.total": "data.total * 2"}).notes)
    assert "stored events are as unwrap, transform and versions left them" in notes
    assert "a change of transform shows only in part" in notes
    log.append([Write(watcher="orders", events=[], filtered=5)])
    assert "21 events were filtered so far, the newest 16 are remembered" in " ".join(changed(log).notes)


def test_watchers_of_one_side_only(log: SqliteLog) -> None:
    """New and removed ones are a change; the texts name them."""
    other = WatcherSpec(name="returns", kind="memory")
    found = diff(log, old={"orders": SPEC}, new={"returns": other})
    assert (found.added, found.removed, found.changed) == (["returns"], ["orders"], True)
    assert found.summary() == "returns: new; orders: removed"
    assert "returns: new, no past to judge it by" in found.lines()


def test_a_comment_for_a_pull_request(log: SqliteLog) -> None:
    """Markdown with the summary, the numbers before and after, and the first event that differs."""
    new = msgspec.structs.replace(SPEC, where="data.total > 200")
    text = diff(log, old={"orders": SPEC}, new={"orders": new}).markdown()
    assert "**orders: -32 runs, -16 batches, -16 events kept, 16 newly filtered**" in text
    assert "| kept | 32 | 16 | -16 |" in text
    assert "First event that differs: o1 at" in text


def test_a_part_of_the_past(log: SqliteLog, clock: VirtualClock) -> None:
    """Only what arrived in the time that is asked for is judged."""
    [found] = diff(log, old={"orders": SPEC}, new={"orders": SPEC}, since=clock() - DAY).watchers
    assert found.events == 24


def test_forecast(log: SqliteLog, clock: VirtualClock) -> None:
    """Events, batches and runs a day, hours, weekdays, and how long runs have their events."""
    log.claim(["orders"], "fulfil", "r1")
    clock.advance(120)
    log.settle("fulfil", "r1", ok=True)
    found = forecast(log, SPEC, since=clock() - 7 * DAY, until=clock())
    assert found.days == pytest.approx(2, abs=0.1)
    assert found.events == 48
    assert found.events_per_day == pytest.approx(16, rel=0.01)
    assert found.runs_per_day == pytest.approx(2 * found.batches_per_day)
    assert found.run_minutes_per_day == pytest.approx(2 * found.runs_per_day)
    assert (found.dags, len(found.by_hour), found.by_weekday["Mon"]) == (2, 24, 16)
    assert sum(found.by_hour) == pytest.approx(found.events_per_day)
    text = "\n".join(found.lines())
    assert "only 2.0 of the 7 days" in text
    assert "busiest hour" in text


def test_forecast_of_another_definition(log: SqliteLog, clock: VirtualClock) -> None:
    """The definition counts, not what was stored: a wider filter promises more."""
    wider = msgspec.structs.replace(SPEC, where=None)
    found = forecast(log, wider, since=clock() - 2 * DAY, until=clock())
    assert found.events_per_day == pytest.approx(24)


def test_no_forecast_without_a_past(log: SqliteLog, clock: VirtualClock) -> None:
    """Nothing is promised of a watcher that nothing is known of."""
    found = forecast(log, WatcherSpec(name="new", kind="memory"), since=clock() - DAY, until=clock())
    assert found.events_per_day == 0
    assert found.lines() == ["new: no forecast", "  note: the log has nothing of this watcher in that time"]
