"""audit(): the whole story of a subject."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import WindsockError
from windsock.log import Log
from windsock.log.sqlite import SqliteLog
from windsock.sourcing import IllegalTransition, StateMachine, Transition, audit
from windsock.testing.clock import VirtualClock


def test_every_event_with_what_came_of_it(log: Log, clock: VirtualClock, tell: Any) -> None:
    """Who said what when, what each Dag did, why one set it aside, and how machines moved."""
    log.subscribe("orders", "fulfil")
    log.subscribe("orders", "report")
    machine = StateMachine(
        "order",
        states=["new", "paid"],
        initial="new",
        transitions=[Transition("new", "paid", on="paid")],
        log=log,
    )
    start = clock()
    first, second = tell("paid", amount=1), tell("sent")
    tell("paid", "o2")
    clock.advance(5)
    log.claim(["orders"], "fulfil", "r1", limit=2)
    machine.apply(first)
    with pytest.raises(IllegalTransition):
        machine.apply(second)
    log.dead_letter("fulfil", "r1", second.seq or 0, "not paid")
    log.settle("fulfil", "r1", ok=True)
    one, two = audit("o1", log=log)
    assert (one.event_id, one.type, one.source, one.watcher) == ("1", "paid", "shop", "orders")
    assert (one.received_at, one.data) == (start, {"amount": 1})
    fulfil, report = one.dags
    assert (fulfil.dag_id, fulfil.state, fulfil.run_id, fulfil.run_state) == ("fulfil", "done", "r1", "done")
    assert (fulfil.claimed_at, fulfil.attempts, fulfil.reason) == (start + 5, 0, None)
    assert (report.dag_id, report.state, report.run_id) == ("report", "pending", None)
    assert [(move.machine, move.after) for move in one.moves] == [("order", "paid")]
    assert (two.dags[0].state, two.dags[0].reason) == ("dead", "not paid")
    assert [move.after for move in two.moves] == [None]


def test_pages(log: Log, tell: Any) -> None:
    """A long story is read in parts."""
    events = [tell("told") for _ in range(5)]
    assert [entry.event_id for entry in audit("o1", log=log, limit=2)] == ["1", "2"]
    assert [entry.event_id for entry in audit("o1", log=log, after=events[3].seq)] == ["5"]
    assert audit("nobody", log=log) == []


def test_a_log_without_a_history_says_so() -> None:
    """An empty trail would be a lie."""
    log = SqliteLog(":memory:")
    with pytest.raises(WindsockError, match="history=True"):
        audit("o1", log=log)
    log.close()
