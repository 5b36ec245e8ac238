"""What the log keeps for event sourcing: events by subject, snapshots, moves, sagas, read models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from windsock.events import Event, LeaseLost
from windsock.log.base import Log
from windsock.log.records import StoredEvent, Write
from windsock.log.subjects import SNAPSHOTS, Move, SagaStep, Snapshot, ViewGone
from windsock.spec import Ordering, Retention
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, put, watch

__all__ = ["SourcingContract"]

LONG = "x" * 5000


def tell(log: Log, watcher: str, *told: tuple[str, str], numbers: Sequence[int] = ()) -> list[int]:
    """Append one event per (subject, id) in one write; the seqs."""
    events = [
        Event(id=id, source="suite", type="suite.told", subject=subject, key="k" if numbers else None)
        for subject, id in told
    ]
    [appended] = log.append([Write(watcher=watcher, events=events, numbers=numbers)])
    return [stored.seq for stored in appended.new if stored.seq is not None]


def found(events: Iterable[StoredEvent]) -> list[str]:
    """The ids of stored events."""
    return [stored.event.id for stored in events]


def snapshot(seq: int, **other: Any) -> Snapshot:
    """A snapshot of the subject ``a``."""
    fields: dict[str, Any] = {"version": "v1", "events": 1, "last_at": 0.0, "state": b"{}"} | other
    return Snapshot(subject="a", reducer="fold", seq=seq, **fields)


def move(event: str, before: str, after: str | None, **other: Any) -> Move:
    """A decision of the machine ``m`` on the subject ``a``."""
    return Move(
        machine="m",
        subject="a",
        event=event,
        event_id=event,
        event_type="t",
        seq=None,
        before=before,
        after=after,
        **other,
    )


class SourcingContract(LogScene):
    """Event sourcing."""

    def test_events_are_found_by_subject(self, log: Log, clock: VirtualClock) -> None:
        """Those of every watcher with a history, oldest first, within the bounds; of the others none."""
        watch(log, "orders", history=True)
        watch(log, "bills", history=True)
        watch(log, "other")
        first, *_ = tell(log, "orders", ("a", "1"), ("b", "2"), ("a", "3"))
        tell(log, "other", ("a", "4"))
        clock.advance(10)
        last, _ = tell(log, "bills", ("a", "5"), (LONG, "6"))
        put(log, "orders", "no subject")
        assert found(log.subject_events("a")) == ["1", "3", "5"]
        assert found(log.subject_events("a", after=first, up_to=last)) == ["3", "5"]
        assert found(log.subject_events("a", up_to=last - 1)) == ["1", "3"]
        assert found(log.subject_events("a", until=clock() - 1)) == ["1", "3"]
        assert found(log.subject_events("b")) == ["2"]
        assert found(log.subject_events(LONG)) == ["6"]
        assert found(log.subject_events(LONG + "y")) == []
        [stored] = log.subject_events(LONG)
        assert (stored.watcher, stored.received_at, stored.event.subject) == ("bills", clock(), LONG)

    def test_many_events_of_a_subject_are_read_in_pages(self, log: Log) -> None:
        """More than a page of them are all there, in order."""
        watch(log, "orders", history=True)
        tell(log, "orders", *[("a", str(n)) for n in range(2500)])
        assert found(log.subject_events("a")) == [str(n) for n in range(2500)]

    def test_what_waited_in_a_sequence_is_found_too(self, log: Log, clock: VirtualClock) -> None:
        """Events that were released behind a gap have their subject."""
        watch(log, "orders", history=True, key="key", sequence=Ordering(by="data.n", wait=10))
        tell(log, "orders", ("a", "1"), ("a", "3"), numbers=[1, 3])
        assert found(log.subject_events("a")) == ["1"]
        clock.advance(11)
        log.release_gaps()
        assert found(log.subject_events("a")) == ["1", "3"]

    def test_a_history_can_begin_later(self, log: Log) -> None:
        """What came before a watcher had a history is found once it is indexed; snapshots are dropped."""
        watch(log, "orders")
        tell(log, "orders", ("a", "1"), ("b", "2"))
        watch(log, "orders", history=True)
        [seq] = tell(log, "orders", ("a", "3"))
        assert found(log.subject_events("a")) == ["3"]
        assert log.put_snapshot(snapshot(seq), after=0, folded=1)
        assert log.index_subjects("orders") == 2
        assert found(log.subject_events("a")) == ["1", "3"]
        assert log.snapshot("a", "fold", "v1") is None
        assert log.index_subjects("orders") == 0

    def test_horizon(self, log: Log) -> None:
        """How far the log is, for all watchers or some."""
        assert log.horizon() == 0
        watch(log, "orders")
        watch(log, "bills")
        put(log, "orders", "a")
        [last] = put(log, "bills", "b")
        assert log.horizon() == log.horizon(["bills"]) == last
        assert log.horizon(["orders"]) == last - 1
        assert log.horizon(["unknown"]) == 0

    def test_the_latest_fitting_snapshot_is_given(self, log: Log, clock: VirtualClock) -> None:
        """By version, position and time."""
        watch(log, "orders", history=True)
        one, two = tell(log, "orders", ("a", "1"), ("a", "2"))
        early = snapshot(one, last_at=clock())
        late = snapshot(two, events=2, last_at=clock() + 10, state=b'{"n":2}')
        assert log.put_snapshot(early, after=0, folded=1)
        assert log.put_snapshot(late, after=one, folded=1)
        assert log.snapshot("a", "fold", "v1") == late
        assert log.snapshot("a", "fold", "v1", up_to=one) == early
        assert log.snapshot("a", "fold", "v1", until=clock() + 9) == early
        for subject, reducer, version in (("b", "fold", "v1"), ("a", "other", "v1"), ("a", "fold", "v2")):
            assert log.snapshot(subject, reducer, version) is None

    def test_a_snapshot_of_another_history_is_refused(self, log: Log) -> None:
        """One that misses an event, or that was made of a snapshot which is gone, is not kept."""
        watch(log, "orders", history=True)
        one, two = tell(log, "orders", ("a", "1"), ("a", "2"))
        assert not log.put_snapshot(snapshot(two), after=0, folded=1)
        assert not log.put_snapshot(snapshot(two), after=one, folded=1)
        assert log.snapshot("a", "fold", "v1") is None

    def test_only_the_newest_snapshots_of_the_newest_version_are_kept(self, log: Log) -> None:
        """Snapshots of one subject and reducer do not pile up."""
        watch(log, "orders", history=True)
        seqs = tell(log, "orders", *[("a", str(n)) for n in range(SNAPSHOTS + 5)])
        for number, seq in enumerate(seqs, 1):
            assert log.put_snapshot(snapshot(seq), after=0, folded=number)
        assert log.snapshot("a", "fold", "v1", up_to=seqs[4]) is None
        assert log.snapshot("a", "fold", "v1", up_to=seqs[5]) is not None
        assert log.put_snapshot(snapshot(seqs[0], version="v2"), after=0, folded=1)
        assert log.drop_snapshots("a", "fold") == 1
        assert log.snapshot("a", "fold", "v2") is None

    def test_a_machine_moves_once_for_an_event(self, log: Log, clock: VirtualClock) -> None:
        """The second time the first decision comes back, whatever the second one was."""
        first = log.put_move(move("e1", "new", "paid"), expected=0)
        assert first == move("e1", "new", "paid", at=clock())
        clock.advance(5)
        again = log.put_move(move("e1", "paid", "shipped"), expected=1)
        assert again == msgspec.structs.replace(move("e1", "new", "paid", at=clock() - 5), repeated=True)
        standing = log.standing("m", "a")
        assert standing is not None
        assert (standing.state, standing.moves, standing.at) == ("paid", 1, clock() - 5)
        assert log.standing("m", "b") is log.standing("other", "a") is None

    def test_a_decision_on_an_old_state_is_not_stored(self, log: Log) -> None:
        """Of two that decided at the same time the second has to look again."""
        assert log.put_move(move("e1", "new", "paid"), expected=0)
        assert log.put_move(move("e2", "new", "cancelled"), expected=0) is None
        assert log.put_move(move("e2", "new", None, reason="r"), expected=0) is None
        assert [one.event for one in log.moves(machine="m", subject="a")] == ["e1"]
        assert log.put_move(move("e2", "paid", "shipped"), expected=1)

    def test_a_refusal_stands_until_another_delivery(self, log: Log) -> None:
        """It is remembered, moves nothing, and gives way when the event is redriven."""
        assert log.put_move(move("e1", "new", None, reason="no"), expected=0)
        again = log.put_move(move("e1", "new", "paid"), expected=0)
        assert again is not None
        assert (again.after, again.reason, again.repeated) == (None, "no", True)
        assert log.standing("m", "a") is None or log.moves(machine="m")[0].after is None
        redriven = log.put_move(move("e1", "new", "paid", delivery="redrive:1"), expected=0)
        assert redriven is not None
        assert redriven.after == "paid"
        [only] = log.moves(machine="m", event="e1")
        assert only.after == "paid"

    def test_standings_are_listed_and_forgotten(self, log: Log) -> None:
        """By machine and state, in order of their names; a forgotten subject leaves nothing."""
        for subject, after in (("c", "paid"), ("a", "paid"), ("b", "new")):
            one = msgspec.structs.replace(move(f"e-{subject}", "new", after), subject=subject)
            assert log.put_move(one, expected=0)
        assert [one.subject for one in log.standings("m")] == ["a", "b", "c"]
        assert [one.subject for one in log.standings("m", state="paid")] == ["a", "c"]
        assert [one.subject for one in log.standings("m", after="a", limit=1)] == ["b"]
        assert log.forget_subject("a") == 2
        assert [one.subject for one in log.standings("m")] == ["b", "c"]
        assert log.moves(subject="a") == []

    def test_a_saga_goes_on_where_it_is(self, log: Log, clock: VirtualClock) -> None:
        """Its data is that of its begin; steps and states are kept; it is listed while it is unfinished."""
        begun = log.open_saga("ship", "o1", {"n": 1})
        assert (begun.state, begun.data, begun.steps) == ("running", {"n": 1}, ())
        log.put_saga(begun, step=SagaStep(name="pay", state="done", attempts=1, result=[1, None]))
        clock.advance(1)
        again = log.open_saga("ship", "o1", {"n": 2})
        assert again.data == {"n": 1}
        assert again.step("pay") == SagaStep(
            name="pay", state="done", attempts=1, result=[1, None], at=clock() - 1
        )
        assert [one.id for one in log.sagas(unfinished=True)] == ["o1"]
        ended = log.put_saga(again, state="done")
        assert (ended.state, ended.updated_at) == ("done", clock())
        assert log.sagas(unfinished=True) == []
        assert log.sagas(saga="ship", id="o1") == [ended]
        assert log.sagas(saga="other") == []

    def test_whoever_took_a_saga_up_last_has_it(self, log: Log) -> None:
        """An earlier one can store nothing any more."""
        old = log.open_saga("ship", "o1", None)
        new = log.open_saga("ship", "o1", None)
        with pytest.raises(LeaseLost, match="another run"):
            log.put_saga(old, state="done")
        assert log.put_saga(new, state="compensating", error="e").error == "e"

    def test_a_compensated_saga_begins_anew_for_another_delivery(self, log: Log) -> None:
        """The same delivery leaves it as it ended, a redrive starts it afresh; what is done stays done."""
        begun = log.open_saga("ship", "o1", {"n": 1})
        log.put_saga(begun, step=SagaStep(name="pay", state="undone"), state="compensated", error="e")
        assert log.open_saga("ship", "o1", {"n": 2}).state == "compensated"
        anew = log.open_saga("ship", "o1", {"n": 2}, delivery="redrive:1")
        assert (anew.state, anew.data, anew.steps, anew.error) == ("running", {"n": 2}, (), None)
        log.put_saga(anew, state="done")
        assert log.open_saga("ship", "o1", None, delivery="redrive:2").state == "done"

    def test_ended_sagas_are_forgotten(self, log: Log, clock: VirtualClock) -> None:
        """Those that ended before a time; what is unfinished or later stays."""
        for name, state in (("a", "done"), ("b", "compensated"), ("c", "running")):
            step = SagaStep(name="pay", state="done")
            log.put_saga(log.open_saga("ship", name, None), step=step, state=state)
        clock.advance(10)
        log.put_saga(log.open_saga("ship", "d", None), state="done")
        assert log.forget_sagas("other", before=clock()) == 0
        assert log.forget_sagas("ship", before=clock()) == 2
        assert sorted(one.id for one in log.sagas()) == ["c", "d"]
        assert log.open_saga("ship", "a", None).steps == ()

    def test_a_history_is_kept(self, log: Log, clock: VirtualClock) -> None:
        """Events that state is made of outlive the general retention; limits of the watcher's own hold."""
        watch(log, "orders", history=True)
        watch(log, "bills", history=True, retention=Retention(age=60))
        tell(log, "orders", ("a", "1"))
        tell(log, "bills", ("a", "2"))
        clock.advance(1000)
        assert log.purge(before=clock()) == 1
        assert found(log.subject_events("a")) == ["1"]

    def test_rows_and_position_are_stored_together(self, log: Log) -> None:
        """A second process that was at the same position stores nothing and has to look again."""
        view = log.open_view("totals", "v1")
        assert (view.generation, view.position, view.live, view.events) == (1, 0, True, 0)
        further = log.advance_view(view, {"a": b"1", "b": b"2"}, position=7, events=3)
        assert further is not None
        assert (further.position, further.events) == (7, 3)
        assert log.advance_view(view, {"a": b"9"}, position=8, events=1) is None
        assert log.advance_view(further, {"a": b"3", "b": None}, position=9, events=2) is not None
        assert log.view_rows("totals") == [("a", b"3")]
        assert log.open_view("totals", "v2").version == "v1"
        assert [one.position for one in log.views()] == [9]

    def test_rows_are_found_by_key_and_prefix(self, log: Log) -> None:
        """In the order of their keys, a page at a time."""
        view = log.open_view("totals", "v1")
        names = ["a", "a/1", "a/2", "a0", "b", "é/1", "z\U0010ffff", "z\U0010ffffa"]
        log.advance_view(view, {name: name.encode() for name in names}, position=1, events=1)

        def keys(**narrow: Any) -> list[str]:
            return [key for key, _ in log.view_rows("totals", **narrow)]

        assert keys() == sorted(names)
        assert keys(prefix="a/") == ["a/1", "a/2"]
        assert keys(prefix="a", after="a/1", limit=2) == ["a/2", "a0"]
        assert keys(prefix="z\U0010ffff") == ["z\U0010ffff", "z\U0010ffffa"]
        assert sorted(keys(keys=["b", "a/2", "none"])) == ["a/2", "b"]
        assert keys(keys=[]) == []
        assert log.view_rows("unknown") == []

    def test_a_rebuilt_view_is_seen_when_it_is_published(self, log: Log) -> None:
        """Readers have the old rows until then, and the old ones are gone afterwards."""
        old = log.open_view("totals", "v1")
        log.advance_view(old, {"a": b"old"}, position=5, events=1)
        new = log.open_view("totals", "v2", anew=True)
        assert (new.generation, new.live, new.position) == (2, False, 0)
        built = log.advance_view(new, {"a": b"new"}, position=5, events=1)
        assert built is not None
        assert log.view_rows("totals") == [("a", b"old")]
        assert log.publish_view(built).live
        assert log.view_rows("totals") == [("a", b"new")]
        assert [(one.generation, one.version, one.live) for one in log.views("totals")] == [(2, "v2", True)]
        assert log.view_rows("totals", generation=1) == []
        with pytest.raises(ViewGone, match="rebuilt"):
            log.advance_view(old, {}, position=6, events=0)
        assert log.drop_view("totals") == 1
        assert (log.views(), log.view_rows("totals", generation=2)) == ([], [])

    def test_a_rebuild_that_was_given_up_leaves_nothing(self, log: Log) -> None:
        """The next rebuild begins anew, and the one that was under way learns that it is over."""
        log.open_view("totals", "v1")
        half = log.open_view("totals", "v2", anew=True)
        log.advance_view(half, {"a": b"half"}, position=3, events=1)
        whole = log.open_view("totals", "v2", anew=True)
        assert log.view_rows("totals", generation=whole.generation) == []
        log.publish_view(whole)
        with pytest.raises(ViewGone, match="rebuilt"):
            log.publish_view(half)
        assert [one.generation for one in log.views()] == [whole.generation]
