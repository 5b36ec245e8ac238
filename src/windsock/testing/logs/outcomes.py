"""Outcome-linked: what a run's end means for its events."""

from __future__ import annotations

import pytest

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.records import State
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, ids, put, states, watch

__all__ = ["OutcomeContract"]


class OutcomeContract(LogScene):
    """Settling, releasing, setting aside, clearing."""

    def test_success_is_done(self, log: Log) -> None:
        """A run that succeeded has its events done, and only its own."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b", "c")
        log.claim(["orders"], "fulfil", "r1", limit=2)
        log.claim(["orders"], "fulfil", "r2")
        assert log.settle("fulfil", "r1", ok=True) == 2
        assert states(log, "fulfil") == {"a": State.DONE, "b": State.DONE, "c": State.CLAIMED}
        assert log.backlog(["orders"]) == 1

    def test_failure_returns_after_a_growing_delay(self, log: Log, clock: VirtualClock) -> None:
        """Each failure doubles the wait, counts an attempt, and the next run sees the count."""
        watch(log, "orders", "fulfil", retry_delay=10.0, max_attempts=5)
        put(log, "orders", "a")
        for attempt, delay in enumerate((10, 20, 40, 80)):
            [claimed] = log.claim(["orders"], "fulfil", f"r{attempt}")
            assert claimed.attempt == attempt
            assert log.settle("fulfil", f"r{attempt}", ok=False) == 1
            assert states(log, "fulfil") == {"a": State.PENDING}
            clock.advance(delay - 1)
            assert log.claim(["orders"], "fulfil", "early") == []
            clock.advance(1)
        assert [item.attempt for item in log.claim(["orders"], "fulfil", "last")] == [4]

    def test_delay_is_at_most_an_hour(self, log: Log, clock: VirtualClock) -> None:
        """However long the delay, an event comes back within an hour."""
        watch(log, "orders", "fulfil", retry_delay=3000.0, max_attempts=100)
        put(log, "orders", "a")
        for attempt, delay in enumerate((3000, 3600, 3600)):
            log.claim(["orders"], "fulfil", f"r{attempt}")
            log.settle("fulfil", f"r{attempt}", ok=False)
            clock.advance(delay)
        assert ids(log.claim(["orders"], "fulfil", "last")) == ["a"]

    def test_failed_too_often_is_dead(self, log: Log, clock: VirtualClock) -> None:
        """After the last attempt an event is a dead letter that names the run, and comes back no more."""
        watch(log, "orders", "fulfil", retry_delay=10.0, max_attempts=2)
        [seq] = put(log, "orders", "a")
        for run in ("r1", "r2"):
            assert len(log.claim(["orders"], "fulfil", run)) == 1
            assert log.settle("fulfil", run, ok=False, reason="out of paper") == 1
            clock.advance(3600)
        assert states(log, "fulfil") == {"a": State.DEAD}
        assert log.claim(["orders"], "fulfil", "r3") == []
        assert log.due(["orders"]) == []
        assert log.backlog(["orders"]) == 0
        [record] = log.dead_letters()
        assert (record.watcher, record.seq, record.dag_id, record.run_id) == ("orders", seq, "fulfil", "r2")
        assert (record.category, record.attempts, record.at) == ("poison", 2, clock() - 3600)
        assert "out of paper" in record.reason
        assert record.body == event("a").encode()

    def test_attempts_are_each_event_s_own(self, log: Log, clock: VirtualClock) -> None:
        """An event that failed before dies alone; its fresh neighbour in the same run comes back."""
        watch(log, "orders", "fulfil", retry_delay=10.0, max_attempts=2)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        put(log, "orders", "b")
        clock.advance(10)
        assert [(item.id, item.attempt) for item in log.claim(["orders"], "fulfil", "r2")] == [
            ("a", 1),
            ("b", 0),
        ]
        assert log.settle("fulfil", "r2", ok=False) == 2
        assert states(log, "fulfil") == {"a": State.DEAD, "b": State.PENDING}

    def test_attempts_are_each_dag_s_own(self, log: Log) -> None:
        """What dies for one Dag lives on for another."""
        watch(log, "orders", "fulfil", "audit", max_attempts=1)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        assert states(log, "fulfil") == {"a": State.DEAD}
        assert [item.attempt for item in log.claim(["orders"], "audit", "r1")] == [0]

    def test_settling_twice_is_settling_once(self, log: Log) -> None:
        """A listener and a reconciler that both report a run change nothing the second time."""
        watch(log, "orders", "fulfil", max_attempts=2)
        put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "good", limit=1)
        log.claim(["orders"], "fulfil", "bad", limit=1)
        assert log.settle("fulfil", "good", ok=True) == 1
        assert log.settle("fulfil", "bad", ok=False) == 1
        for _ in range(2):
            assert log.settle("fulfil", "good", ok=True) == 0
            assert log.settle("fulfil", "bad", ok=False) == 0
        assert states(log, "fulfil") == {"a": State.DONE, "b": State.PENDING}
        assert log.dead_letters() == []

    def test_unknown_run_settles_nothing(self, log: Log) -> None:
        """The outcome of a run that claimed nothing is of no interest."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        assert log.settle("fulfil", "r1", ok=True) == 0
        assert log.settle("stranger", "r1", ok=False) == 0
        assert log.release_run("fulfil", "r1") == 0
        assert states(log, "fulfil") == {"a": State.PENDING}

    def test_released_events_return_at_once(self, log: Log) -> None:
        """A run that is gone without an outcome costs its events no attempt and no wait."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        assert log.release_run("fulfil", "r1") == 2
        assert log.release_run("fulfil", "r1") == 0
        assert states(log, "fulfil") == {"a": State.PENDING, "b": State.PENDING}
        assert len(log.due(["orders"])) == 1
        assert [(item.id, item.attempt) for item in log.claim(["orders"], "fulfil", "r2")] == [
            ("a", 0),
            ("b", 0),
        ]

    def test_one_event_is_set_aside(self, log: Log) -> None:
        """Setting one event aside leaves the run's others to the run's outcome."""
        watch(log, "orders", "fulfil", "audit")
        _, seq, _ = put(log, "orders", "a", "b", "c")
        log.claim(["orders"], "fulfil", "r1")
        log.dead_letter("fulfil", "r1", seq, "no such customer")
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.DEAD, "c": State.CLAIMED}
        assert states(log, "audit")["b"] is State.PENDING
        [record] = log.dead_letters(watcher="orders")
        assert (record.seq, record.dag_id, record.run_id) == (seq, "fulfil", "r1")
        assert (record.category, record.reason) == ("rejected", "no such customer")
        assert record.body == event("b").encode()
        assert log.settle("fulfil", "r1", ok=True) == 2
        assert states(log, "fulfil") == {"a": State.DONE, "b": State.DEAD, "c": State.DONE}

    def test_set_aside_once(self, log: Log) -> None:
        """A retried task that sets the same event aside again adds no second dead letter."""
        watch(log, "orders", "fulfil")
        [seq] = put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.dead_letter("fulfil", "r1", seq, "broken")
        log.dead_letter("fulfil", "r1", seq, "broken")
        assert len(log.dead_letters()) == 1
        log.settle("fulfil", "r1", ok=False)
        assert states(log, "fulfil") == {"a": State.DEAD}

    def test_reason_may_be_any_text(self, log: Log) -> None:
        """What an exception says, however broken the text, cannot keep a run from being settled."""
        watch(log, "orders", "fulfil", max_attempts=1)
        seq, _ = put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        broken = "half \ud800 a \0 word"
        log.dead_letter("fulfil", "r1", seq, broken)
        log.settle("fulfil", "r1", ok=False, reason=broken)
        assert [letter.reason[:5] for letter in log.dead_letters()] == ["half ", "half "]

    def test_only_its_own_events_are_set_aside(self, log: Log) -> None:
        """A run that sets aside an event which it does not have is told so, and nothing changes."""
        watch(log, "orders", "fulfil")
        _, b = put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.claim(["orders"], "fulfil", "r2", limit=1)
        for run_id in ("r1", "stranger"):
            with pytest.raises(WindsockError, match=run_id):
                log.dead_letter("fulfil", run_id, b, "not mine")
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.CLAIMED}
        assert log.dead_letters() == []

    def test_cleared_run_sees_the_same_events(self, log: Log, clock: VirtualClock) -> None:
        """A run that is cleared after its end, good or bad, sees exactly what it saw."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b", "c")
        log.claim(["orders"], "fulfil", "good", limit=1)
        log.claim(["orders"], "fulfil", "bad", limit=1)
        log.settle("fulfil", "good", ok=True)
        log.settle("fulfil", "bad", ok=False)
        assert ids(log.claim(["orders"], "fulfil", "good")) == ["a"]
        assert ids(log.claim(["orders"], "fulfil", "bad")) == ["b"]

    def test_cleared_run_takes_its_events_back(self, log: Log, clock: VirtualClock) -> None:
        """A failed run that is cleared has its events to itself again, and its success makes them done."""
        watch(log, "orders", "fulfil", retry_delay=10.0)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a"]
        clock.advance(3600)
        assert log.claim(["orders"], "fulfil", "r2") == []
        log.settle("fulfil", "r1", ok=True)
        assert states(log, "fulfil") == {"a": State.DONE}

    def test_cleared_run_fails_again(self, log: Log, clock: VirtualClock) -> None:
        """A cleared run that fails again counts one more attempt."""
        watch(log, "orders", "fulfil", retry_delay=10.0, max_attempts=3)
        put(log, "orders", "a")
        for _ in range(2):
            log.claim(["orders"], "fulfil", "r1")
            log.settle("fulfil", "r1", ok=False)
        clock.advance(20)
        assert [item.attempt for item in log.claim(["orders"], "fulfil", "r2")] == [2]

    def test_cleared_run_that_is_gone_gives_back_at_once(self, log: Log) -> None:
        """The wait of an earlier failure is over once the run had its events again."""
        watch(log, "orders", "fulfil", retry_delay=1000.0)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        log.claim(["orders"], "fulfil", "r1")
        assert log.release_run("fulfil", "r1") == 1
        assert [item.attempt for item in log.claim(["orders"], "fulfil", "r2")] == [1]

    def test_triggered_run_that_is_cleared_and_claims(self, log: Log) -> None:
        """A run that ended with what it was triggered with sees just that when, cleared, it claims."""
        watch(log, "orders", "fulfil")
        *_, up_to = put(log, "orders", "a", "b")
        log.claim_announced("orders", "fulfil", "r1", up_to=up_to)
        log.settle("fulfil", "r1", ok=True)
        put(log, "orders", "c")
        assert ids(log.claim(["orders"], "fulfil", "r1", limit=1)) == ["a", "b"]
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.CLAIMED, "c": State.PENDING}

    def test_cleared_run_leaves_what_another_has(self, log: Log, clock: VirtualClock) -> None:
        """A cleared run sees its events, but an event that another run took since is that run's to settle."""
        watch(log, "orders", "fulfil", retry_delay=10.0)
        put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        clock.advance(10)
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=1)) == ["a"]
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]
        log.settle("fulfil", "r1", ok=True)
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.DONE}
        log.settle("fulfil", "r2", ok=False)
        assert states(log, "fulfil") == {"a": State.PENDING, "b": State.DONE}

    def test_a_failed_run_that_succeeds_after_all(self, log: Log, clock: VirtualClock) -> None:
        """Only its failed task was cleared, so it never claims again: its success settles its events."""
        watch(log, "orders", "fulfil", retry_delay=10.0, max_attempts=2)
        put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        assert log.failed_runs(since=clock()) == [("fulfil", "r1")]
        assert log.settle("fulfil", "r1", ok=True) == 2
        assert states(log, "fulfil") == {"a": State.DONE, "b": State.DONE}
        assert log.failed_runs(since=0.0) == []
        clock.advance(60)
        assert log.claim(["orders"], "fulfil", "r2") == []

    def test_a_failed_run_that_runs_again_has_its_events_back(self, log: Log, clock: VirtualClock) -> None:
        """While a cleared run works, nobody else is given its events; a second failure counts again."""
        watch(log, "orders", "fulfil", retry_delay=10.0, max_attempts=2)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        assert log.reopen("fulfil", "r1") == 1
        clock.advance(60)
        assert log.claim(["orders"], "fulfil", "r2") == []
        assert log.active_runs() == [("fulfil", "r1"), ("fulfil", "r2")]
        log.settle("fulfil", "r1", ok=False)
        assert states(log, "fulfil") == {"a": State.DEAD}
        assert log.reopen("fulfil", "r1") == 1
        assert log.dead_letters() == []

    def test_reopening_leaves_what_another_run_took_and_what_was_set_aside(
        self, log: Log, clock: VirtualClock
    ) -> None:
        """A cleared run takes nothing from a run that works, and no event that its Dag did not want."""
        watch(log, "orders", "fulfil", retry_delay=10.0)
        _, rejected = put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.dead_letter("fulfil", "r1", rejected, "not ours")
        log.settle("fulfil", "r1", ok=False)
        clock.advance(60)
        assert ids(log.claim(["orders"], "fulfil", "r2")) == ["a"]
        assert log.reopen("fulfil", "r1") == 0
        assert log.settle("fulfil", "r1", ok=True) == 0
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.DEAD}
        assert [letter.reason for letter in log.dead_letters()] == ["not ours"]

    def test_nothing_is_set_aside_after_the_run_ended(self, log: Log) -> None:
        """An event that is done cannot become a dead letter."""
        watch(log, "orders", "fulfil")
        [seq] = put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        with pytest.raises(WindsockError, match="done already"):
            log.dead_letter("fulfil", "r1", seq, "too late")

    def test_a_claim_alone_is_no_subscription(self, log: Log) -> None:
        """A Dag that is not scheduled on the asset may claim, but is neither woken nor waited for."""
        watch(log, "orders")
        put(log, "orders", "a", "b")
        assert ids(log.claim(["orders"], "by hand", "r1", limit=1)) == ["a"]
        [place] = log.subscriptions(dag_id="by hand")
        assert not place.active
        assert log.due(["orders"]) == []
        assert log.backlog(["orders"]) == 0
