"""Explain: every verdict on an event's way, and why a Dag ran or did not."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import msgspec
import pytest

from unit.rules.desk import Desk
from windsock.events import Category, DeadLetter, Event
from windsock.explain import Way, explain_dag, explain_event
from windsock.log.records import Scan, Write
from windsock.log.sqlite import SqliteLog
from windsock.pipeline import Pipeline
from windsock.runner import writes_for
from windsock.spec import Ordering, Retry, WatcherSpec
from windsock.testing.clock import VirtualClock

SPEC = WatcherSpec(
    name="orders",
    kind="memory",
    types=("order.*",),
    where="data.total > 100",
    key="data.user",
    max_attempts=1,
)


@pytest.fixture
def clock() -> VirtualClock:
    """The log's time."""
    return VirtualClock()


@pytest.fixture
def log(clock: VirtualClock) -> Iterator[SqliteLog]:
    """A log with one watcher and one Dag."""
    log = SqliteLog(":memory:", clock=clock)
    log.register(SPEC, source="memory:orders", asset="stock")
    log.subscribe("orders", "fulfil")
    yield log
    log.close()


def send(log: SqliteLog, id: str, total: int = 200, type: str = "order.created", user: str = "ada") -> None:
    """One event through the watcher's pipeline."""
    event = Event.make({"total": total, "user": user}, source="shop", type=type, id=id)
    log.append([writes_for(Pipeline.compile(SPEC), [event])])


def way(log: SqliteLog, id: str) -> Way:
    """The one way that the event took."""
    [found] = explain_event(log, id).ways
    return found


def said(found: Way) -> list[str]:
    """The verdicts, stage by stage."""
    return [f"{step.stage}: {step.verdict}" for step in found.steps]


def test_a_filtered_event_shows_the_false_part(log: SqliteLog) -> None:
    """The part of the condition that was false is shown with the value that made it so."""
    send(log, "small", total=12)
    found = way(log, "small")
    assert said(found) == ["source: received", "filter: filtered"]
    assert found.steps[-1].detail == "data.total > 100 is false: data.total = 12"
    send(log, "other", type="refund")
    assert way(log, "other").steps[-1].detail == "type 'refund' is none of order.*"


def test_a_duplicate_names_the_first_one(log: SqliteLog) -> None:
    """Both the stored event and the one that came again are explained."""
    send(log, "a")
    send(log, "a")
    stored, again = explain_event(log, "a").ways
    assert said(stored)[:2] == ["source: received", "log: stored"]
    assert again.steps[-1].detail == f"of {stored.steps[1].detail.split(',')[0]}"


def test_the_whole_way_of_a_settled_event(log: SqliteLog) -> None:
    """Batch, announcement, run and outcome."""
    send(log, "a")
    log.announced(log.due(["orders"])[0])
    log.claim(["orders"], "fulfil", "run-1")
    log.settle("fulfil", "run-1", ok=True)
    found = way(log, "a")
    assert said(found)[2:] == ["batch: closed", "announce: announced", "Dag: done"]
    assert "run run-1 (done)" in found.steps[-1].detail
    assert found.next == "fulfil: nothing, its run succeeded"


def test_what_comes_next(log: SqliteLog, clock: VirtualClock) -> None:
    """Waiting for a run, for its key, for the Dag, or for its batch."""
    send(log, "a")
    assert way(log, "a").next == "fulfil: it is announced with the next look"
    log.claim(["orders"], "fulfil", "run-1")
    assert way(log, "a").next == "fulfil: the outcome of run run-1"
    send(log, "b")
    assert "waits for run run-1" in way(log, "b").next
    log.settle("fulfil", "run-1", ok=True)
    log.subscribe("orders", "fulfil", paused=True)
    assert way(log, "b").next == "fulfil: it is delivered when the Dag is unpaused"


def test_an_event_that_came_back_names_every_run(log: SqliteLog, clock: VirtualClock) -> None:
    """The run that failed with it stands before the one that has it now."""
    log.register(msgspec.structs.replace(SPEC, max_attempts=2), source="memory:orders")
    send(log, "a")
    log.claim(["orders"], "fulfil", "run-1")
    log.settle("fulfil", "run-1", ok=False, reason="it broke")
    clock.advance(3600)
    log.claim(["orders"], "fulfil", "run-2")
    log.settle("fulfil", "run-2", ok=True)
    found = way(log, "a")
    assert said(found)[-2:] == ["run: failed", "Dag: done"]
    assert found.steps[-2].detail == "fulfil, run run-1"


def test_a_dead_event_names_its_letter(log: SqliteLog) -> None:
    """The letter, its reason and the way back."""
    send(log, "a")
    log.claim(["orders"], "fulfil", "run-1")
    log.settle("fulfil", "run-1", ok=False, reason="it broke")
    found = way(log, "a")
    assert said(found)[-2:] == ["Dag: dead", "dead: dead"]
    assert "poison: it broke" in found.steps[-1].detail
    [letter] = log.dead_letters()
    assert found.next == f"fulfil: nothing by itself; `windsock dlq redrive {letter.id}` after a fix"
    log.discard([letter.id])
    assert way(log, "a").next == "fulfil: nothing, its letter is closed"
    invalid = DeadLetter(stage="validate", category=Category.INVALID, reason="no id", body=b"", event_id="x")
    log.append([Write(watcher="orders", events=[], dead=[invalid])])
    assert said(way(log, "x")) == ["validate: dead"]


def test_a_dead_event_that_is_retried_says_when(log: SqliteLog, clock: VirtualClock) -> None:
    """Time and attempts left, of an event that died at a Dag and of one that never became an event."""
    retry = {"poison": Retry(attempts=2, delay=60.0, jitter=0.0), "invalid": Retry(attempts=1, delay=60.0)}
    log.register(msgspec.structs.replace(SPEC, retry=retry), source="memory:orders")
    clock.now = time.time() + 86400
    send(log, "a")
    log.claim(["orders"], "fulfil", "run-1")
    log.settle("fulfil", "run-1", ok=False)
    [letter] = log.dead_letters()
    when = dt.datetime.fromtimestamp(clock() + 60, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    by_hand = f"`windsock dlq redrive {letter.id}` does so at once"
    assert way(log, "a").next == f"fulfil: it is retried at {when}, 2 attempts left; {by_hand}"
    clock.now = time.time() - 3600
    invalid = DeadLetter(stage="validate", category=Category.INVALID, reason="no id", body=b"", event_id="x")
    log.append([Write(watcher="orders", events=[], dead=[invalid])])
    assert way(log, "x").next.startswith("it is retried with the next look, 1 attempt left")


def test_a_held_event_names_the_number_it_waits_for(log: SqliteLog) -> None:
    """Which number is missing."""
    log.register(WatcherSpec(name="seq", kind="memory", key="k", sequence=Ordering(by="n")), source="s")
    events = [Event.make({}, source="s", type="t", id=str(n), key="k") for n in (1, 3)]
    log.append([Write(watcher="seq", events=events, numbers=[1, 3])])
    assert way(log, "3").steps[0].detail == "number 3 of key 'k' waits for number 2"


def test_an_event_that_waits_for_another_leg() -> None:
    """A correlation that has seen the event says which leg is missing."""
    desk = Desk()
    desk.watch("orders")
    desk.watch("payments")
    rule = {"all_of": ["orders", "payments"], "within": "1h", "by": "data.id"}
    desk.open(desk.watch("paid", "correlate", options={"watcher": "paid", "rule": rule}))
    desk.put("orders", {"id": 1})
    desk.read()
    [stored] = desk.log.scan(Scan(watchers=["orders"]))
    [found] = explain_event(desk.log, stored.event.id).ways
    waits = [(step.verdict, step.detail) for step in found.steps if step.stage == "correlate"]
    assert waits == [("paid", "waits for payments")]
    desk.log.close()


def test_nothing_is_known_of_a_stranger(log: SqliteLog) -> None:
    """An unknown id is said to be unknown, with the reasons there may be."""
    assert explain_event(log, "nobody").lines()[0].startswith("Nothing is known of the event 'nobody'")


def test_why_a_dag_ran(log: SqliteLog, clock: VirtualClock) -> None:
    """Arrivals and runs around the time; or why there were none."""
    assert "no event arrived" in explain_dag(log, "fulfil", at=clock()).conclusion
    send(log, "a")
    assert "1 still wait" in explain_dag(log, "fulfil", at=clock()).conclusion
    log.claim(["orders"], "fulfil", "run-1")
    found = explain_dag(log, "fulfil", at=clock())
    assert found.conclusion == "it ran: 1 claims of events around then"
    assert found.steps[-1].detail == "run-1 took 1 of orders"
    log.subscribe("orders", "fulfil", paused=True)
    clock.advance(86400)
    assert "paused" in explain_dag(log, "fulfil", at=clock()).conclusion
    assert "no subscription" in explain_dag(log, "stranger", at=clock()).conclusion
