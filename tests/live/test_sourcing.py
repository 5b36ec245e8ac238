"""Event sourcing from a Dag on a real Airflow, with a task that is killed in the middle of a saga."""

from __future__ import annotations

import pytest

from live.field import Field
from windsock.events import Event
from windsock.sourcing import audit, state

pytestmark = pytest.mark.live


def tell(field: Field, id: str, type: str, subject: str, amount: int) -> None:
    """Send one CloudEvent."""
    names = {"specversion": "1.0", "id": id, "source": "shop", "type": type, "subject": subject}
    answer = field.post("sourced", {"amount": amount}, **{f"ce-{name}": text for name, text in names.items()})
    assert answer.status_code == 202, answer.text


def amounts(value: int, event: Event) -> int:
    """Adds up what was paid."""
    return value + int(event.data["amount"])


def test_events_are_sourced_once_though_a_task_is_killed(field: Field) -> None:
    """Subjects move once, the saga goes on where its process died, what is illegal is a dead letter."""
    field.stack.wait_for(field.subscribed("sources"), 90, "the subscription")
    tell(field, "1", "order.paid", "so1", 5)
    tell(field, "2", "order.shipped", "so1", 0)
    tell(field, "3", "order.shipped", "so2", 0)
    field.stack.wait_for(field.settled("sources"), 180, "the events to be settled")
    standing = field.log.standing("sourced-order", "so1")
    assert standing is not None
    assert (standing.state, standing.moves) == ("shipped", 2)
    assert field.log.standing("sourced-order", "so2") is None
    [letter] = field.log.dead_letters(watcher="sourced")
    assert (letter.event_id, letter.category) == ("3", "rejected")
    assert "'so2' is 'new'" in letter.reason
    [saga] = field.log.sagas(saga="sourced-ship")
    assert saga.state == "done"
    assert {step.name: step.attempts for step in saga.steps} == {"reserve": 1, "pack": 2}
    assert len(field.notes("sources", "reserved")) == 1
    assert field.log.view_rows("sourced-totals") == [("so1", b"2"), ("so2", b"1")]
    assert state("so1", amounts, log=field.log, initial=0) == 5
    trail = audit("so1", log=field.log)
    assert [(entry.event_id, entry.dags[0].state) for entry in trail] == [("1", "done"), ("2", "done")]
    assert [move.after for entry in trail for move in entry.moves] == ["paid", "shipped"]
