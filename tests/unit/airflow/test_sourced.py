"""Event sourcing from inside a Dag: the log is found, and a refused event becomes a dead letter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import windsock
from windsock.airflow import claim as claim_module
from windsock.airflow import sourced
from windsock.events import Event
from windsock.log import Log
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.sourcing import IllegalTransition, Step, Transition
from windsock.spec import WatcherSpec

LIFE: dict[str, Any] = {
    "states": ["new", "paid"],
    "initial": "new",
    "transitions": [Transition("new", "paid", on="paid")],
}


@pytest.fixture
def events(log: Log) -> list[Event]:
    """Two events of one subject, claimed by the run ``r1``."""
    log.register(WatcherSpec(name="orders", kind="memory", history=True), source="s", asset="shop")
    log.subscribe("orders", "fulfil")
    told = [Event.make({"n": n}, source="s", type="paid", id=n, subject="o1") for n in range(2)]
    log.append([Write(watcher="orders", events=told)])
    return log.claim(["orders"], "fulfil", "r1")


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if inside a task of the run ``r1``."""
    context = {"dag_run": SimpleNamespace(dag_id="fulfil", run_id="r1")}
    for module in (claim_module, sourced):
        monkeypatch.setattr(module, "get_current_context", lambda: context)


@pytest.mark.usefixtures("in_task")
def test_a_refused_event_is_set_aside_in_its_run(log: Log, events: list[Event]) -> None:
    """With the reason, once, and the run goes on; a second try of the task changes nothing."""
    machine = windsock.StateMachine("order", **LIFE)
    for _ in range(2):
        moves = [machine.apply(event.as_dict()) for event in events]
        assert [move.after for move in moves] == ["paid", None]
    [letter] = log.dead_letters()
    assert (letter.event_id, letter.category, letter.run_id) == ("1", "rejected", "r1")
    assert letter.reason == "'o1' is 'paid', from where 'paid' leads nowhere"


def test_outside_a_run_it_is_an_error(log: Log, events: list[Event]) -> None:
    """There is no run whose event could be set aside."""
    machine = windsock.StateMachine("order", **LIFE)
    machine.apply(events[0])
    with pytest.raises(IllegalTransition):
        machine.apply(events[1])
    assert log.dead_letters() == []


def test_everything_finds_the_log_of_this_airflow(log: Log, events: list[Event]) -> None:
    """state(), a projection and a saga need no log, and take one that is given."""
    assert windsock.state("o1", lambda n, event: n + event.data["n"], initial=10) == 11
    view = windsock.Projection("numbers", lambda row, event: [*(row or []), event.data["n"]])
    view.update()
    assert view.get("o1") == [0, 1]
    saga = windsock.Saga("ship", [Step("send", lambda context: context.event.subject)])
    record = saga.run(events[0])
    assert (record.state, record.steps[0].result) == ("done", "o1")
    other = SqliteLog(":memory:")
    other.register(WatcherSpec(name="orders", kind="memory", history=True), source="s")
    assert windsock.state("o1", lambda n, event: n + 1, initial=0, log=other) == 0
    assert view.using(other).rows() == {}
    other.close()
