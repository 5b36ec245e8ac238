"""A Dag that sources events: a state machine, a saga whose task is killed, a read model, folded state."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import Event, Projection, Saga, StateMachine, claim, state
from windsock.sourcing import SagaContext, Step, Transition
from windsock.watchers import WebhookAssetWatcher

told = Asset("sourced", watchers=[WebhookAssetWatcher(name="sourced", auth="none", rate=0, history=True)])


def count(row: Any, event: Event) -> Any:
    """How many events."""
    return (row or 0) + 1


def reserve(context: SagaContext) -> str:
    """Leaves a trace, so that the test sees how often it was done."""
    record(["reserved", context.key])
    return context.key


def pack(context: SagaContext) -> None:
    """Dies with its whole process, the first time."""
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


order = StateMachine(
    "sourced-order",
    states=["new", "paid", "shipped"],
    initial="new",
    transitions=[
        Transition("new", "paid", on="order.paid", guard="data.amount > 0"),
        Transition("paid", "shipped", on="order.shipped"),
    ],
)
ship = Saga("sourced-ship", [Step("reserve", reserve), Step("pack", pack)])
totals = Projection("sourced-totals", count, watchers=["sourced"])


@dag(schedule=[told], max_active_runs=1)
def sources() -> None:
    """Moves, ships and counts."""

    @task(retries=3, retry_delay=timedelta(seconds=1))
    def take() -> None:
        events = claim(told)
        moves = [order.apply(event) for event in events]
        for event, move in zip(events, moves, strict=True):
            if move.after == "shipped":
                ship.run(event)
        totals.update()
        record([move.subject, move.after, state(move.subject, count)] for move in moves)

    take()


sources()
