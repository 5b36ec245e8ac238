"""Reconcile: what does not agree is found, explained, repaired, and then agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from windsock.events import Event
from windsock.log.records import EventQuery, State, Write
from windsock.log.sqlite import SqliteLog
from windsock.reconcile import _GAPS, Report, reconcile
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock

Run = tuple[str, str]


@pytest.fixture
def clock() -> VirtualClock:
    """The log's time."""
    return VirtualClock()


@pytest.fixture
def log(clock: VirtualClock) -> Iterator[SqliteLog]:
    """One watcher that is read, one Dag, two events of which a run has the first."""
    log = SqliteLog(":memory:", clock=clock)
    log.register(WatcherSpec(name="orders", kind="memory", max_attempts=1), source="memory:1", asset="stock")
    log.subscribe("orders", "fulfil")
    log.heartbeat("memory:1", "host:1", "running", lag=0)
    events = [Event.make({}, source="s", type="t", id=id) for id in ("a", "b")]
    log.append([Write(watcher="orders", events=events)])
    log.announced(log.due(["orders"])[0])
    log.claim(["orders"], "fulfil", "r1", limit=1)
    yield log
    log.close()


class Airflow:
    """What Airflow says of runs."""

    def __init__(self, **states: str) -> None:
        self.states = {("fulfil", run): state for run, state in states.items()}

    def __call__(self, runs: Sequence[Run]) -> Mapping[Run, str]:
        return {run: self.states[run] for run in runs if run in self.states}


def compare(log: SqliteLog, clock: VirtualClock, *, repair: bool = False, **states: str) -> Report:
    """The report, with what Airflow says of the runs."""
    return reconcile(log, runs=Airflow(**states), repair=repair, now=clock)


def kinds(report: Report) -> list[str]:
    """What does not agree."""
    return [finding.kind for finding in report.findings]


def state_of(log: SqliteLog, id: str) -> State:
    """Where the event stands for the Dag."""
    return log.events(EventQuery(id=id))[0].state


def test_everything_agrees(log: SqliteLog, clock: VirtualClock) -> None:
    """Nothing is found, and the report says what was compared."""
    report = compare(log, clock, r1="running")
    assert report.clean
    assert (report.compared["events"], report.compared["unsettled runs"]) == (2, 1)
    assert report.lines()[-1].startswith("everything agrees: compared 1 watchers, 2 events")


def test_without_airflow_that_is_said(log: SqliteLog, clock: VirtualClock) -> None:
    """Runs that nobody asked about are not taken to agree in silence."""
    report = reconcile(log, now=clock)
    assert report.clean
    assert report.notes == ["runs were not compared: the log was named by hand (see --airflow)"]


@pytest.mark.parametrize(
    ("states", "kind", "then"),
    [
        ({}, "run_unknown", State.PENDING),
        ({"r1": "success"}, "run_succeeded", State.DONE),
        ({"r1": "failed"}, "run_failed", State.DEAD),
    ],
)
def test_a_run_that_ended_unnoticed(
    log: SqliteLog, clock: VirtualClock, states: dict[str, str], kind: str, then: State
) -> None:
    """Its events are settled as Airflow says; nothing is changed without repair; a second repair is idle."""
    assert kinds(compare(log, clock, **states)) == [kind]
    assert state_of(log, "a") is State.CLAIMED
    report = compare(log, clock, repair=True, **states)
    assert report.clean
    assert [finding.kind for finding in report.repaired] == [kind]
    assert state_of(log, "a") is then
    assert compare(log, clock, repair=True, **states).repaired == []


@pytest.mark.parametrize(
    ("now", "kind", "then"),
    [("running", "run_again", State.CLAIMED), ("success", "run_succeeded", State.DONE)],
)
def test_a_run_that_was_cleared_unnoticed(
    log: SqliteLog, clock: VirtualClock, now: str, kind: str, then: State
) -> None:
    """A failed run that goes on has its events back; one that succeeded after all has done them."""
    log.settle("fulfil", "r1", ok=False)
    assert compare(log, clock, r1="failed").clean
    assert kinds(compare(log, clock, r1=now)) == [kind]
    assert compare(log, clock, repair=True, r1=now).clean
    assert state_of(log, "a") is then


def test_a_gap_in_the_log_is_told_and_repaired(log: SqliteLog, clock: VirtualClock) -> None:
    """The finding has a place, a reason and a remedy; the remedy works."""
    with log._transaction() as tx:
        tx.rows("DELETE FROM claims RETURNING id")
    [finding] = compare(log, clock).findings
    assert (finding.kind, finding.where) == ("no_claim", "Dag fulfil of orders")
    assert "1 events, the first at 1" in finding.what
    assert (finding.why, finding.repair) == _GAPS["no_claim"][1:]
    text = "\n".join(compare(log, clock).lines())
    assert "repair: they wait for the Dag again" in text
    assert "1 do not agree" in text
    repaired = compare(log, clock, repair=True)
    assert repaired.clean
    assert repaired.lines()[0].startswith("repaired: Dag fulfil of orders")


def test_a_lost_event_is_told_and_a_purged_one_is_not(log: SqliteLog, clock: VirtualClock) -> None:
    """Of what was logged everything is accounted for: the finding is about the row that nobody deleted."""
    log.settle("fulfil", "r1", ok=True)
    clock.advance(200)
    log.purge(before=clock())
    report = compare(log, clock, r1="success")
    assert report.clean
    assert "1 events, 0 archived, 1 purged, 0 erased" in report.lines()[-1]
    with log._transaction() as tx:
        tx.rows("DELETE FROM events WHERE id = 'b' RETURNING seq")
    [finding] = compare(log, clock, r1="success").findings
    assert (finding.kind, finding.where) == ("missing", "orders")
    assert "has logged 2 events, and 1 of them" in finding.what
    assert compare(log, clock, repair=True, r1="success").clean


def test_what_cannot_be_repaired_stays(log: SqliteLog, clock: VirtualClock) -> None:
    """A source that nobody reads is not made well by a command: it is said what to do."""
    clock.advance(301)
    log.claim(["orders"], "fulfil", "r2")
    report = compare(log, clock, repair=True, r1="running", r2="running")
    assert kinds(report) == ["source_unread"]
    assert report.repaired == []
    assert "to do: start a triggerer" in "\n".join(report.lines())


def test_a_source_that_does_not_get_on(log: SqliteLog, clock: VirtualClock) -> None:
    """Failing, or behind without anything arriving; a paused one is meant to be."""
    log.heartbeat("memory:1", "host:1", "backoff", error="connection refused")
    report = compare(log, clock, r1="running")
    assert kinds(report) == ["source_failing"]
    assert "connection refused" in report.findings[0].what
    log.claim(["orders"], "fulfil", "r2")
    clock.advance(400)
    running = {"r1": "running", "r2": "running"}
    log.heartbeat("memory:1", "host:1", "running", lag=7)
    assert kinds(compare(log, clock, **running)) == ["source_stuck"]
    log.heartbeat("memory:1", "host:1", "paused", lag=7)
    assert compare(log, clock, **running).clean


def test_a_source_that_no_dag_wants_is_left_alone(log: SqliteLog, clock: VirtualClock) -> None:
    """Nobody has to read it."""
    log.settle("fulfil", "r1", ok=True)
    log.unsubscribe("orders", "fulfil")
    clock.advance(10_000)
    assert compare(log, clock, r1="success").clean


def test_every_gap_of_the_log_can_be_told() -> None:
    """Each kind that the log looks for has its words here."""
    from windsock.log.audit import _STATEMENTS

    assert _GAPS.keys() == _STATEMENTS.keys()
