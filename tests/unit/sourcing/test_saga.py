"""Sagas: forwards, backwards, and again from the middle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from windsock.events import LeaseLost, WindsockError
from windsock.log import Log
from windsock.log.subjects import SagaRecord
from windsock.sourcing import Saga, SagaContext, SagaStuck, Step
from windsock.spec import SpecError
from windsock.testing.clock import VirtualClock


class World:
    """Where actions leave their marks, and what is to go wrong there."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken: dict[str, list[BaseException | None]] = {}
        self.slept: list[float] = []
        self.contexts: list[SagaContext] = []

    def act(self, name: str) -> Callable[[SagaContext], Any]:
        """An action or a compensation of this name."""

        def act(context: SagaContext) -> Any:
            self.contexts.append(context)
            planned = self.broken.get(name)
            error = planned.pop(0) if planned else None
            if error is not None:
                raise error
            self.done.append(name)
            return {"did": name}

        return act


@pytest.fixture
def world() -> World:
    """A world in which nothing goes wrong yet."""
    return World()


def ship(log: Log | None, world: World, *, transient: Any = (), **options: Any) -> Saga:
    """Three steps, the last of which has nothing to take back."""
    return Saga(
        "ship",
        [
            Step("reserve", world.act("reserve"), undo=world.act("release"), **options),
            Step("charge", world.act("charge"), undo=world.act("refund"), **options),
            Step("send", world.act("send"), **options),
        ],
        transient=transient,
        log=log,
        sleep=world.slept.append,
    )


def states(record: SagaRecord) -> dict[str, str]:
    """Where each step is."""
    return {step.name: step.state for step in record.steps}


def test_all_steps_are_done_in_order_and_once(log: Log, tell: Any, world: World) -> None:
    """Each gets the event and what the steps before it returned; the same event again does nothing new."""
    event = tell("order.created", n=1)
    saga = ship(log, world)
    for about in (event, event.as_dict(), msgspec.structs.replace(event, attempt=1, replay="r")):
        record = saga.run(about)
        assert record.state == "done"
    assert world.done == ["reserve", "charge", "send"]
    last = world.contexts[-1]
    assert last.event.data == {"n": 1}
    assert last.results == {"reserve": {"did": "reserve"}, "charge": {"did": "charge"}}
    assert (last.key, last.attempt) == ("ship:shop#1:send", 1)
    assert saga.unfinished() == []
    assert saga.progress(event) == log.sagas()[0]
    assert saga.progress("unknown") is None


def test_a_failed_step_takes_back_the_ones_before_it(log: Log, world: World) -> None:
    """The last one first; the failed step itself had no effect, and the answer says what happened."""
    world.broken["send"] = [RuntimeError("no carrier")]
    saga = ship(log, world)
    record = saga.run("o1", {"n": 1})
    assert world.done == ["reserve", "charge", "refund", "release"]
    assert (record.state, record.error) == ("compensated", "step 'send' failed: RuntimeError: no carrier")
    assert states(record) == {"reserve": "undone", "charge": "undone", "send": "failed"}
    assert world.contexts[-1].results["reserve"] == {"did": "reserve"}
    assert saga.run("o1").state == "compensated"
    assert world.done == ["reserve", "charge", "refund", "release"]


def test_a_step_is_tried_as_often_as_it_allows(log: Log, world: World) -> None:
    """With growing waits; every attempt is counted."""
    world.broken["charge"] = [RuntimeError("1"), RuntimeError("2")]
    record = ship(log, world, attempts=3, delay=1.0).run("o1")
    assert record.state == "done"
    assert world.slept == [1.0, 2.0]
    charge = record.step("charge")
    assert charge is not None
    assert (charge.attempts, charge.error) == (3, None)


def test_a_transient_error_stops_the_saga_where_it_is(log: Log, world: World) -> None:
    """The caller gets it, nothing is taken back, and the next run goes on with that step."""
    world.broken["charge"] = [ConnectionError("down")]
    saga = ship(log, world, transient=(ConnectionError,))
    with pytest.raises(ConnectionError):
        saga.run("o1")
    [waiting] = saga.unfinished()
    assert states(waiting) == {"reserve": "done", "charge": "failed"}
    assert saga.run("o1").state == "done"
    assert world.done == ["reserve", "charge", "send"]


def test_a_failing_compensation_is_tried_again_and_visible(log: Log, world: World) -> None:
    """After its attempts the run gives up for now; the next one goes on with the compensation."""
    world.broken = {"send": [RuntimeError("x")], "refund": [OSError("bank")] * 4}
    saga = ship(log, world, undo_attempts=3, delay=1.0)
    with pytest.raises(SagaStuck, match="'charge' failed 3 times"):
        saga.run("o1")
    assert world.slept == [1.0, 2.0]
    [stuck] = saga.unfinished()
    charge = stuck.step("charge")
    assert charge is not None
    assert (stuck.state, charge.state, charge.undo_attempts, charge.error) == (
        "compensating",
        "stuck",
        3,
        "OSError: bank",
    )
    assert saga.run("o1").state == "compensated"
    assert world.done == ["reserve", "charge", "refund", "release"]


class Killed(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("name", ["reserve", "charge", "send"])
def test_a_run_that_died_is_taken_up_where_it_was(log: Log, world: World, name: str) -> None:
    """Only the step under way begins again."""
    world.broken[name] = [Killed()]
    saga = ship(log, world)
    with pytest.raises(Killed):
        saga.run("o1")
    assert saga.run("o1").state == "done"
    assert world.done == ["reserve", "charge", "send"]
    step = saga.run("o1").step(name)
    assert step is not None
    assert step.attempts == 2


def test_an_older_run_can_do_no_more(log: Log, world: World) -> None:
    """One that was thought dead stops at its next step, because another has taken the saga up."""
    saga = ship(log, world)
    other = ship(log, world)

    def overtaken(context: SagaContext) -> None:
        other.run("o1")

    slow = Saga("ship", [Step("reserve", overtaken), *saga.steps[1:]], log=log)
    with pytest.raises(LeaseLost):
        slow.run("o1")
    assert world.done == ["reserve", "charge", "send"]


def test_a_result_that_cannot_be_kept_is_taken_back(log: Log, world: World) -> None:
    """The step has done something, so it is compensated with the others."""
    steps = [Step("odd", lambda context: {1, 2}, undo=world.act("undo odd"))]
    record = Saga("odd", steps, log=log).run("o1")
    assert record.state == "compensated"
    assert "plain JSON" in (record.error or "")
    assert world.done == ["undo odd"]


def test_a_failed_action_may_be_taken_back_too(log: Log, world: World) -> None:
    """With ``undo_failed``, for an action that may have done something before it failed."""
    world.broken["charge"] = [TimeoutError("who knows")]
    ship(log, world, undo_failed=True).run("o1")
    assert world.done == ["reserve", "refund", "release"]


def test_a_redriven_event_begins_a_compensated_saga_anew(log: Log, tell: Any, world: World) -> None:
    """After a fix the event is given back, and its saga has another chance."""
    world.broken["send"] = [RuntimeError("x")]
    event = tell("order.created")
    saga = ship(log, world)
    assert saga.run(event).state == "compensated"
    assert saga.run(msgspec.structs.replace(event, replay="redrive:1")).state == "done"


def test_ended_sagas_can_be_forgotten(log: Log, clock: VirtualClock, world: World) -> None:
    """Afterwards the same name begins anew."""
    saga = ship(log, world)
    saga.run("o1")
    clock.advance(60)
    assert saga.forget(before=dt.datetime.fromtimestamp(clock() - 90, dt.UTC)) == 0
    assert saga.forget(before=dt.datetime.fromtimestamp(clock(), dt.UTC)) == 1
    saga.run("o1")
    assert world.done == ["reserve", "charge", "send"] * 2


def test_steps_as_tasks_of_their_own(log: Log, world: World) -> None:
    """Each does its step once; a failure is its own, and compensate() takes back what was done."""
    world.broken["send"] = [RuntimeError("no carrier")]
    saga = ship(log, world)
    for _ in range(2):
        assert saga.do("reserve", "o1") == {"did": "reserve"}
    saga.do("charge", "o1")
    with pytest.raises(RuntimeError, match="no carrier"):
        saga.do("send", "o1")
    assert saga.compensate("o1", "no carrier").state == "compensated"
    assert world.done == ["reserve", "charge", "refund", "release"]
    with pytest.raises(WindsockError, match="is compensated: no carrier"):
        saga.do("send", "o1")
    with pytest.raises(WindsockError, match="no step 'fly'"):
        saga.do("fly", "o1")
    for step in ("reserve", "charge", "send"):
        saga.do(step, "o2")
    assert saga.compensate("o2").state == "done"


def test_a_step_under_way_is_taken_back_too(log: Log, world: World) -> None:
    """Its task died and will not come back; nobody knows what it had done."""
    world.broken["charge"] = [Killed()]
    saga = ship(log, world)
    saga.do("reserve", "o1")
    with pytest.raises(Killed):
        saga.do("charge", "o1")
    saga.compensate("o1", "its task died")
    assert world.done == ["reserve", "refund", "release"]


def test_a_step_that_is_no_longer_declared(log: Log, world: World) -> None:
    """A half-done saga cannot go on without the step that could take it back."""
    world.broken["charge"] = [Killed()]
    with pytest.raises(Killed):
        ship(log, world).run("o1")
    fewer = Saga("ship", [Step("charge", world.act("charge"))], log=log)
    with pytest.raises(WindsockError, match="the steps reserve behind it"):
        fewer.run("o1")


def test_mistakes_are_refused_when_it_is_declared(world: World) -> None:
    """No steps, two of one name, none that is ever tried; data that is no JSON is refused at the begin."""
    step = Step("a", world.act("a"))
    for steps in ([], [step, step], [Step("a", step.action, attempts=0)], [Step("a b", step.action)]):
        with pytest.raises(SpecError):
            Saga("s", steps)


def test_data_is_plain(log: Log, world: World) -> None:
    """What could not be given to a later run is refused before anything is done."""
    with pytest.raises(WindsockError, match="plain JSON"):
        ship(log, world).run("o1", {"when": {1}})
    assert world.done == []
