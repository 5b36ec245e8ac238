"""State machines: what moves, what is refused, and what happens when it is applied again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.subjects import Move
from windsock.sourcing import IllegalTransition, StateMachine, Transition
from windsock.spec import SpecError

STATES = ["new", "paid", "shipped", "cancelled"]
TRANSITIONS = [
    Transition("new", "paid", on="order.paid", guard="data.amount > 0"),
    Transition("paid", "shipped", when="type == 'parcel.sent' && data.carrier != ''"),
    Transition(["new", "paid"], "cancelled", on=["order.cancelled", "order.void*"]),
]


def honest(event: Event) -> bool:
    """A guard in Python; fails without the field."""
    return event.data["honest"] is True


def order(log: Log | None, **options: Any) -> StateMachine:
    """An order's life."""
    given = {"states": STATES, "initial": "new", "transitions": TRANSITIONS} | options
    return StateMachine("order", log=log, **given)


def test_events_move_a_subject_through_its_states(log: Log, tell: Any) -> None:
    """By type, by wildcard and by expression; each subject by itself; history and places can be asked for."""
    machine = order(log)
    assert machine.state("o1") == "new"
    assert machine.apply(tell("order.paid", amount=5)).after == "paid"
    assert machine.apply(tell("parcel.sent", carrier="x")).after == "shipped"
    assert machine.apply(tell("order.voided", "o2").as_dict()).after == "cancelled"
    assert (machine.state("o1"), machine.state("o2")) == ("shipped", "cancelled")
    assert [(move.before, move.after, move.event_id) for move in machine.history("o1")] == [
        ("new", "paid", "1"),
        ("paid", "shipped", "2"),
    ]
    assert [standing.subject for standing in machine.subjects("shipped")] == ["o1"]
    assert [standing.subject for standing in machine.subjects()] == ["o1", "o2"]


def test_an_event_moves_once(log: Log, tell: Any) -> None:
    """Applied again, also when it was stored twice or is replayed, it gives the same answer."""
    loop = [Transition("*", "paid", on="order.paid"), Transition("*", "new", on="order.reset")]
    machine = order(log, transitions=loop)
    paid, reset = tell("order.paid"), tell("order.reset")
    assert not machine.apply(paid).repeated
    machine.apply(reset)
    for again in (paid, msgspec.structs.replace(paid, seq=99, attempt=1, replay="r")):
        move = machine.apply(again)
        assert (move.after, move.repeated) == ("paid", True)
    assert machine.state("o1") == "new"
    assert len(machine.history("o1")) == 2


@pytest.mark.parametrize(
    ("type", "data", "reason"),
    [
        ("parcel.sent", {"carrier": "x"}, "'o1' is 'new', from where 'parcel.sent' leads nowhere"),
        ("order.paid", {"amount": 0}, "data.amount > 0 is not true"),
        ("order.paid", {}, "data.amount > 0 is not true (Key not found"),
        ("unheard.of", {}, "leads nowhere"),
    ],
)
def test_what_is_illegal_is_refused_with_the_reason(
    log: Log, tell: Any, type: str, data: dict[str, Any], reason: str
) -> None:
    """Nothing moves, and the refusal is remembered; the same delivery is refused again."""
    machine = order(log)
    event = tell(type, **data)
    for _ in range(2):
        with pytest.raises(IllegalTransition) as caught:
            machine.apply(event)
        assert reason in str(caught.value)
    assert machine.state("o1") == "new"
    [move] = machine.history("o1")
    assert (move.before, move.after) == ("new", None)


def test_a_refused_event_stays_refused_in_its_run(log: Log, tell: Any) -> None:
    """A retry does not apply what was set aside, though the state has changed; a redrive does."""
    machine = order(log)
    sent, paid = tell("parcel.sent", carrier="x"), tell("order.paid", amount=1)
    with pytest.raises(IllegalTransition):
        machine.apply(sent)
    machine.apply(paid)
    with pytest.raises(IllegalTransition):
        machine.apply(sent)
    assert machine.apply(msgspec.structs.replace(sent, replay="redrive:1")).after == "shipped"


def test_guards_in_python(log: Log, tell: Any) -> None:
    """A function, or its dotted name; one that fails refuses the event with its error."""
    for guard in (honest, f"{__name__}:honest"):
        machine = order(log, transitions=[Transition("new", "paid", on="p", guard=guard)])
        subject = f"s-{guard}"
        with pytest.raises(IllegalTransition, match="honest is not true"):
            machine.apply(tell("p", subject, honest=False))
        with pytest.raises(IllegalTransition, match="KeyError"):
            machine.apply(tell("p", subject))
        assert machine.apply(tell("p", subject, honest=True)).after == "paid"


def test_the_first_transition_whose_guard_is_true_is_taken(log: Log, tell: Any) -> None:
    """Guards choose between transitions of one event."""
    machine = order(
        log,
        transitions=[
            Transition("new", "cancelled", on="p", guard="data.n > 10"),
            Transition("new", "paid", on="p", guard="data.n > 1"),
            Transition("new", "shipped", on="p"),
        ],
    )
    for subject, n, after in (("a", 11, "cancelled"), ("b", 2, "paid"), ("c", 0, "shipped")):
        assert machine.apply(tell("p", subject, n=n)).after == after


def test_subjects(log: Log, tell: Any) -> None:
    """The event's subject, else its key, or an expression; without any the event is refused."""
    event = msgspec.structs.replace(tell("order.paid", None, amount=1), key="k1")
    assert order(log).apply(event).subject == "k1"
    machine = StateMachine(
        "by-number", states=STATES, initial="new", transitions=TRANSITIONS, subject="data.number", log=log
    )
    assert machine.apply(tell("order.paid", amount=1, number=7)).subject == "7"
    with pytest.raises(IllegalTransition, match="names no subject"):
        machine.apply(tell("order.paid", amount=1))


def test_ignored_types_are_no_mistake(log: Log, tell: Any) -> None:
    """They leave everything as it is, and no trace."""
    machine = order(log, ignore=["order.viewed"])
    move = machine.apply(tell("order.viewed"))
    assert (move.before, move.after) == ("new", "new")
    assert machine.history("o1") == []


def test_a_state_that_is_no_longer_declared(log: Log, tell: Any) -> None:
    """It is an error that says what to do, until it is declared again or renamed."""
    order(log).apply(tell("order.paid", amount=1))
    fewer = {"states": ["new", "billed", "done"], "transitions": [Transition("billed", "done", on="end")]}
    with pytest.raises(WindsockError, match="renamed="):
        order(log, **fewer).state("o1")
    machine = order(log, **fewer, renamed={"paid": "billed"})
    assert machine.state("o1") == "billed"
    assert machine.apply(tell("end")).after == "done"


def test_another_process_moves_meanwhile(log: Log, tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is made anew on the state that the other one left."""
    machine = order(log)
    paid, cancelled = tell("order.paid", amount=1), tell("order.cancelled")
    store = log.put_move

    def interrupted(move: Move, *, expected: int) -> Move | None:
        monkeypatch.setattr(log, "put_move", store)
        machine.apply(paid)
        return store(move, expected=expected)

    monkeypatch.setattr(log, "put_move", interrupted)
    move = machine.apply(cancelled)
    assert (move.before, move.after) == ("paid", "cancelled")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": "old"}, "the state 'old', which is none of new, paid"),
        ({"transitions": [Transition("old", "paid", on="p")]}, "transition 1 leaves the state 'old'"),
        ({"transitions": [Transition("new", "old", on="p")]}, "transition 1 leads to the state 'old'"),
        ({"transitions": [Transition("new", "paid")]}, "needs `on`"),
        (
            {"transitions": [Transition("new", "paid", on="p", guard="data.n >")]},
            "state machine 'order': transition 1, guard",
        ),
        ({"transitions": [Transition("new", "paid", when="1 + 1")]}, "must be true or false"),
        ({"renamed": {"x": "old"}}, "'old'"),
        ({"subject": "data."}, "state machine 'order': subject"),
    ],
)
def test_mistakes_are_refused_when_it_is_declared(options: dict[str, Any], message: str) -> None:
    """A wrong definition never gets as far as an event."""
    with pytest.raises(SpecError) as caught:
        order(None, **options)
    assert message in str(caught.value)


def test_it_needs_a_log() -> None:
    """A machine without one says how to give it one."""
    with pytest.raises(WindsockError, match="has no log"):
        order(None).state("o1")
