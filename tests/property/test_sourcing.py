"""Whatever happens in whatever order: state, read models, machines and sagas keep their word."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.sourcing import IllegalTransition, Projection, Saga, SagaContext, StateMachine, Step, Transition
from windsock.sourcing import state as folded
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock

SUBJECTS = ["a", "b", "c"]
STATES = ["new", "open", "held", "shut"]
TYPES = ["t1", "t2", "t3"]


def new_log() -> SqliteLog:
    """A memory log with two watchers."""
    log = SqliteLog(":memory:", clock=VirtualClock())
    for name in ("one", "two"):
        log.register(WatcherSpec(name=name, kind="memory", history=True), source="s")
    return log


def ids(value: Any, event: Event) -> Any:
    """The order of the events, which a fold must not lose."""
    return [*(value or []), event.id]


appends = st.tuples(
    st.sampled_from(["one", "two"]), st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=4)
)
looks = st.tuples(st.just("look"), st.sampled_from(SUBJECTS), st.integers(1, 6))


@given(st.lists(st.one_of(appends, looks), max_size=25), st.integers(0, 60))
@settings(deadline=None, max_examples=60)
def test_state_with_snapshots_is_state_without(script: list[Any], at: int) -> None:
    """Whenever snapshots were made, now and at any earlier position."""
    log, told = new_log(), 0
    for step in script:
        if step[0] == "look":
            folded(step[1], ids, log=log, snapshot_every=step[2])
            continue
        events = [Event(id=str(told + n), source="s", type="t", subject=s) for n, s in enumerate(step[1])]
        told += len(events)
        log.append([Write(watcher=step[0], events=events)])
    for subject in SUBJECTS:
        plain = folded(subject, ids, log=log, snapshot_every=0)
        assert folded(subject, ids, log=log) == plain
        assert folded(subject, ids, log=log, rebuild=True) == plain
        assert folded(subject, ids, log=log, at=at) == folded(subject, ids, log=log, snapshot_every=0, at=at)
    log.close()


def last_ids(row: Any, event: Event) -> Any:
    """The ids of a row, which every third event ends."""
    return None if event.id.endswith(("3", "6", "9")) else [*(row or []), event.id]


@given(st.lists(st.one_of(appends, st.just(("update",))), max_size=25))
@settings(deadline=None, max_examples=60)
def test_a_read_model_is_what_a_rebuild_makes_of_it(script: list[Any]) -> None:
    """However the updates fell between the events."""
    log, told = new_log(), 0
    view = Projection("v", last_ids, log=log)
    expected: dict[str, Any] = {}
    for step in script:
        if step == ("update",):
            view.update()
            continue
        events = [Event(id=str(told + n), source="s", type="t", subject=s) for n, s in enumerate(step[1])]
        told += len(events)
        log.append([Write(watcher=step[0], events=events)])
        for event in events:
            expected[event.subject or ""] = last_ids(expected.get(event.subject or ""), event)
    view.update()
    incremental = view.rows()
    assert incremental == {key: row for key, row in sorted(expected.items()) if row is not None}
    view.rebuild()
    assert view.rows() == incremental
    log.close()


transitions = st.builds(
    Transition,
    st.one_of(st.just("*"), st.lists(st.sampled_from(STATES), min_size=1, max_size=3)),
    st.sampled_from(STATES),
    on=st.lists(st.sampled_from(TYPES), min_size=1, max_size=2),
    guard=st.sampled_from([None, "data.n > 2", "data.missing"]),
)
happenings = st.tuples(
    st.sampled_from(SUBJECTS), st.sampled_from(TYPES), st.integers(0, 5), st.integers(0, 9)
)


@given(st.lists(transitions, max_size=6), st.lists(happenings, max_size=30))
@settings(deadline=None, max_examples=60)
def test_a_machine_is_never_in_an_undeclared_state(rules: list[Any], script: list[Any]) -> None:
    """It moves only as declared, once for each event, and its history leads to where it is."""
    log = new_log()
    machine = StateMachine("m", states=STATES, initial="new", transitions=rules, log=log)
    seen: dict[str, str | None] = {}
    for subject, kind, n, number in script:
        event = Event(id=f"{subject}{kind}{n}{number}", source="s", type=kind, subject=subject, data={"n": n})
        before = machine.state(subject)
        try:
            after: str | None = machine.apply(event).after
        except IllegalTransition:
            after = None
        assert seen.setdefault(event.id, after) == after
        now = machine.state(subject)
        assert now in STATES
        if now != before:
            assert any(
                now == rule.after and kind in rule.on and (rule.before == "*" or before in rule.before)
                for rule in rules
            )
    for subject in SUBJECTS:
        place = "new"
        for move in machine.history(subject):
            assert move.before == place
            place = move.after or place
        assert machine.state(subject) == place
    log.close()


class Killed(BaseException):
    """The process dies."""


class Fate:
    """Counts the moments at which a process can die, and kills it at some of them."""

    def __init__(self, deaths: set[int]) -> None:
        self.deaths = deaths
        self.moment = 0
        self.died = 0

    def pass_by(self) -> None:
        self.moment += 1
        if self.moment in self.deaths:
            self.died += 1
            raise Killed

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with a moment before and one after it."""

        def called(*args: Any, **kwargs: Any) -> Any:
            self.pass_by()
            result = call(*args, **kwargs)
            self.pass_by()
            return result

        return called


@given(
    st.integers(1, 5), st.integers(-1, 4), st.sets(st.integers(1, 60), max_size=6), st.sets(st.integers(0, 8))
)
@settings(deadline=None, max_examples=150)
def test_a_saga_ends_whole_or_taken_back(
    count: int, fails_at: int, deaths: set[int], bad_undos: set[int]
) -> None:
    """Interrupted anywhere, any number of times: all steps are done, or all taken back, the last one first.

    Nothing happens twice but for the one thing under way when a process died.
    """
    log, fate = new_log(), Fate(deaths)
    effects: list[tuple[str, int]] = []
    undos = 0

    def act(number: int) -> Callable[[SagaContext], None]:
        def action(_: SagaContext) -> None:
            if number == fails_at:
                raise ValueError("this step cannot be done")
            effects.append(("do", number))

        return fate.around(action)

    def undo(number: int) -> Callable[[SagaContext], None]:
        def compensation(_: SagaContext) -> None:
            nonlocal undos
            undos += 1
            if undos - 1 in bad_undos:
                raise OSError("not now")
            effects.append(("undo", number))

        return fate.around(compensation)

    steps = [Step(f"s{n}", act(n), undo=undo(n), undo_attempts=20) for n in range(count)]
    for name in ("open_saga", "put_saga"):
        setattr(log, name, fate.around(getattr(log, name)))
    saga = Saga("s", steps, log=log)
    for _ in range(len(deaths) + 1):
        try:
            record = saga.run("it")
            break
        except Killed:
            continue
    once = [effect for effect, _ in groupby(effects)]
    assert len(effects) - len(once) <= fate.died
    if 0 <= fails_at < count:
        assert record.state == "compensated"
        assert once == [("do", n) for n in range(fails_at)] + [("undo", n) for n in reversed(range(fails_at))]
    else:
        assert record.state == "done"
        assert once == [("do", n) for n in range(count)]
    assert saga.unfinished() == []
    log.close()
