"""state(): folded from events, with snapshots and without."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import pytest

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.sqlite import SqliteLog
from windsock.sourcing import state
from windsock.sourcing.base import code_version, function_name
from windsock.testing.clock import VirtualClock

SEEN: list[str] = []
RATES = {"euro": 1}


@pytest.fixture(autouse=True)
def _seen() -> None:
    SEEN.clear()


def total(value: Any, event: Event) -> Any:
    """Adds up amounts, and writes down what it was asked."""
    SEEN.append(event.id)
    return (value or 0) + event.data["amount"]


def scaled(value: Any, event: Event) -> Any:
    """Adds up amounts at a rate that is not its own."""
    return (value or 0) + event.data["amount"] * RATES["euro"]


def kinds(value: Any, event: Event) -> Any:
    """A tuple of types, which no JSON can bring back."""
    return (*(value or ()), event.type)


def wrapping(function: Any) -> Any:
    """A decorator."""

    @functools.wraps(function)
    def wrapped(value: Any, event: Event) -> Any:
        return function(value, event)

    return wrapped


def test_events_of_all_watchers_are_folded_in_order(log: Log, tell: Any) -> None:
    """A subject's events count, whoever brought them, and nobody else's; none leaves the initial state."""
    tell("paid", amount=1)
    tell("paid", "o2", amount=100)
    tell("billed", watcher="bills", amount=2)
    assert state("o1", total, log=log) == 3
    assert SEEN == ["1", "3"]
    assert state("nobody", total, log=log, initial=7) == 7


def test_the_next_call_goes_on_from_the_snapshot(log: Log, tell: Any) -> None:
    """Only what came since is read again."""
    for _ in range(5):
        tell("paid", amount=1)
    assert state("o1", total, log=log, snapshot_every=5) == 5
    tell("paid", amount=1)
    SEEN.clear()
    assert state("o1", total, log=log, snapshot_every=5) == 6
    assert SEEN == ["6"]


def test_few_events_make_no_snapshot(log: Log, tell: Any) -> None:
    """Below ``snapshot_every`` nothing is stored, and 0 never stores anything."""
    for _ in range(4):
        tell("paid", amount=1)
    state("o1", total, log=log, snapshot_every=5)
    state("o1", total, log=log, snapshot_every=0)
    state("o1", total, log=log, at=3, snapshot_every=1)
    SEEN.clear()
    state("o1", total, log=log)
    assert len(SEEN) == 4


def test_rebuild_begins_at_the_first_event(log: Log, tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When something that the reducer uses has changed, its snapshots are out of date until a rebuild."""
    for _ in range(3):
        tell("paid", amount=1)
    assert state("o1", scaled, log=log, snapshot_every=3) == 3
    monkeypatch.setitem(RATES, "euro", 2)
    assert state("o1", scaled, log=log) == 3
    assert state("o1", scaled, log=log, rebuild=True) == 6
    assert state("o1", scaled, log=log) == 6


def test_as_of_a_position_and_a_time(log: Log, clock: VirtualClock, tell: Any) -> None:
    """What came later is left out, also when a snapshot has it already."""
    first = tell("paid", amount=1)
    clock.advance(60)
    tell("paid", amount=10)
    assert state("o1", total, log=log, snapshot_every=1) == 11
    early = dt.datetime.fromtimestamp(clock() - 30, dt.UTC)
    assert state("o1", total, log=log, at=first.seq) == 1
    assert state("o1", total, log=log, at=early) == 1
    assert state("o1", total, log=log, at=early, rebuild=True) == 1
    assert state("o1", total, log=log, at=early - dt.timedelta(days=1), initial=0) == 0
    for wrong in (dt.datetime(2026, 1, 1), True, "yesterday"):  # noqa: DTZ001 - the mistake itself
        with pytest.raises(WindsockError, match="name a seq"):
            state("o1", total, log=log, at=wrong)  # type: ignore[arg-type]


def test_another_version_or_initial_state_begins_anew(log: Log, tell: Any) -> None:
    """Snapshots of one version are not used for another, nor those that began elsewhere."""
    for _ in range(3):
        tell("paid", amount=1)
    assert state("o1", total, log=log, snapshot_every=1, version=1) == 3
    for change in ({"version": 2}, {"version": 1, "initial": 10}, {"version": 1, "name": "other"}):
        SEEN.clear()
        state("o1", total, log=log, snapshot_every=1, **change)  # type: ignore[arg-type]
        assert len(SEEN) == 3, change


def test_what_would_not_come_back_is_refused(log: Log, tell: Any) -> None:
    """A state that JSON changes is an error when it is stored, not a wrong state later."""
    tell("paid")
    assert state("o1", kinds, log=log) == ("paid",)
    with pytest.raises(WindsockError, match="plain JSON"):
        state("o1", kinds, log=log, snapshot_every=1)
    with pytest.raises(WindsockError, match="cannot be stored"):
        state("o1", kinds_object, log=log, snapshot_every=1)


def kinds_object(value: Any, event: Event) -> Any:
    """Something that is no JSON at all."""
    return {"event": object()}


def test_a_failing_reducer_names_the_event(log: Log, tell: Any) -> None:
    """The error is the reducer's own, with the event that it failed on."""
    tell("paid")
    with pytest.raises(KeyError) as caught:
        state("o1", total, log=log)
    assert caught.value.__notes__ == ["the reducer failed on event '1' (seq 1) of 'o1'"]


def test_a_log_without_a_history_says_so() -> None:
    """Instead of the state of a subject that seems to have no events."""
    log = SqliteLog(":memory:")
    with pytest.raises(WindsockError, match="history=True"):
        state("o1", total, log=log)
    log.close()


def test_an_initial_state_is_not_changed(log: Log, tell: Any) -> None:
    """A reducer that changes the state it is given does not change the caller's."""
    tell("paid", amount=1)
    start: list[str] = []
    assert state("o1", lambda value, event: value.append(event.id) or value, log=log, initial=start) == ["1"]
    assert start == []


def test_names_that_last() -> None:
    """A function of a module has one, also in a Dag file that Airflow imports under a name of its own."""
    assert function_name(total) == f"{__name__}.total"
    assert function_name(Event.make) == "windsock.events.Event.make"
    for nameless in (lambda value, event: value, functools.partial(total), SEEN.append):
        assert function_name(nameless) is None
    in_dag_file = functools.wraps(total)(lambda value, event: value)
    in_dag_file.__module__ = "unusual_prefix_0a1b2c_orders"
    assert function_name(in_dag_file) == "orders.total"


def test_versions_follow_the_code() -> None:
    """Equal code has one version; another constant, a default or a wrapped function makes another."""

    def one(value: Any, event: Event) -> Any:
        return value in {"a", "b"}

    def other(value: Any, event: Event) -> Any:
        return value in {"a", "c"}

    def defaulted(value: Any, event: Event, extra: int = 1) -> Any:
        return value in {"a", "b"}

    versions = {code_version(each) for each in (one, other, defaulted, wrapping(one), wrapping(other))}
    assert len(versions) == 5
    assert code_version(wrapping(one)) == code_version(wrapping(one))
    assert code_version(one, 1) != code_version(one, 2)
