"""What was set aside, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import Category, DeadLetter
from windsock.log.base import Log
from windsock.log.records import Revived, Write
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, put, watch

__all__ = ["LettersContract"]


def bury(log: Log, watcher: str, dag: str, run_id: str) -> None:
    """A run that fails with what it claimed."""
    log.claim([watcher], dag, run_id)
    log.settle(dag, run_id, ok=False, reason=f"{run_id} broke")


class LettersContract(LogScene):
    """Dead letters."""

    def test_a_redriven_event_is_claimed_again_in_its_place(self, log: Log) -> None:
        """It keeps its identity, its position and its order, and its attempts begin anew."""
        watch(log, "orders", "fulfil", max_attempts=1)
        [seq] = put(log, "orders", "a")
        bury(log, "orders", "fulfil", "one")
        put(log, "orders", "b")
        [letter] = log.dead_letters()
        assert (letter.event_id, letter.seq, letter.attempts) == ("a", seq, 1)
        assert log.redrive([letter.id]) == Revived(delivered=1, others=[], missing=[])
        assert log.dead_letters() == []
        claimed = log.claim(["orders"], "fulfil", "two")
        assert (claimed[0].seq, claimed[0].attempt) == (seq, 0)
        assert [e.id for e in claimed] == ["a", "b"]
        [closed] = log.dead_letters(state=None)
        assert (closed.state, closed.settled_at is not None) == ("redriven", True)

    def test_redriving_twice_does_nothing_new(self, log: Log) -> None:
        """A letter is not redriven again while its event waits or is done; nor is one that never was."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        bury(log, "orders", "fulfil", "one")
        [letter] = log.dead_letters()
        log.redrive([letter.id])
        log.claim(["orders"], "fulfil", "two")
        log.settle("fulfil", "two", ok=True)
        nothing = Revived(delivered=0, others=[], missing=[letter.id, 999])
        assert log.redrive([999, letter.id, 999]) == nothing
        assert log.claim(["orders"], "fulfil", "three") == []

    def test_first_and_last_death(self, log: Log, clock: VirtualClock) -> None:
        """An event that dies again after a redrive shows when it first died."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        bury(log, "orders", "fulfil", "one")
        first = clock()
        log.redrive([log.dead_letters()[0].id])
        clock.advance(60)
        bury(log, "orders", "fulfil", "two")
        [letter] = log.dead_letters()
        assert (letter.first_at, letter.at) == (first, first + 60)

    def test_one_dag_is_redriven_alone(self, log: Log) -> None:
        """Another Dag that has the event behind it does not see it again."""
        watch(log, "orders", "fulfil", "audit", max_attempts=1)
        put(log, "orders", "a")
        bury(log, "orders", "fulfil", "one")
        log.claim(["orders"], "audit", "one")
        log.settle("audit", "one", ok=True)
        log.redrive([letter.id for letter in log.dead_letters()])
        assert log.claim(["orders"], "audit", "two") == []
        assert [e.id for e in log.claim(["orders"], "fulfil", "two")] == ["a"]

    def test_what_never_became_an_event_is_handed_back(self, log: Log) -> None:
        """A letter of the pipeline is closed by the append that brings its event, and by nothing less."""
        watch(log, "orders", "fulfil")
        dead = DeadLetter(stage="validate", category=Category.INVALID, reason="r", body=b"{}", event_id="a")
        log.append([Write(watcher="orders", events=[], dead=[dead])])
        revived = log.redrive([log.dead_letters()[0].id])
        [letter] = revived.others
        assert (revived.delivered, revived.missing) == (0, [])
        assert (letter.stage, letter.body, letter.event_id) == ("validate", b"{}", "a")
        assert [open_.id for open_ in log.dead_letters()] == [letter.id]
        log.append([Write(watcher="orders", events=[event("a")], redriven=[letter.id])])
        assert log.dead_letters() == []
        assert [e.id for e in log.claim(["orders"], "fulfil", "one")] == ["a"]

    def test_discarded_letters_stay_closed(self, log: Log) -> None:
        """A discarded letter is neither listed nor redriven, and its event stays dead."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        bury(log, "orders", "fulfil", "one")
        [letter] = log.dead_letters()
        assert log.discard([letter.id]) == 1
        assert log.discard([letter.id]) == 0
        assert log.dead_letters() == []
        assert log.redrive([letter.id]) == Revived(delivered=0, others=[], missing=[letter.id])
        assert log.claim(["orders"], "fulfil", "two") == []

    @pytest.mark.parametrize(
        ("narrow", "wanted"),
        [
            ({"watcher": "orders"}, ["a", "x"]),
            ({"dag_id": "fulfil"}, ["a"]),
            ({"category": "invalid"}, ["x", "y"]),
            ({"stage": "run"}, ["a"]),
            ({"event_id": "a"}, ["a"]),
            ({"text": "ONE BROKE"}, ["a"]),
            ({"text": "100%"}, ["y"]),
            ({"since": 1_700_000_010.0}, ["y"]),
            ({"until": 1_700_000_010.0}, ["a", "x"]),
            ({"limit": 1}, ["y"]),
            ({"ids": []}, []),
        ],
    )
    def test_letters_are_narrowed(
        self, log: Log, clock: VirtualClock, narrow: dict[str, Any], wanted: list[str]
    ) -> None:
        """Each argument leaves out what it does not name; the newest come first."""
        watch(log, "orders", "fulfil", max_attempts=1)
        watch(log, "parcels", "ship")
        put(log, "orders", "a")
        bury(log, "orders", "fulfil", "one")
        x = DeadLetter(stage="filter", category=Category.INVALID, reason="no field", body=b"", event_id="x")
        log.append([Write(watcher="orders", events=[], dead=[x])])
        clock.advance(10)
        y = DeadLetter(stage="source", category=Category.INVALID, reason="at 100%", body=b"", event_id="y")
        log.append([Write(watcher="parcels", events=[], dead=[y])])
        found = [letter.event_id for letter in log.dead_letters(**narrow)]
        assert sorted(found, key=str) == wanted
