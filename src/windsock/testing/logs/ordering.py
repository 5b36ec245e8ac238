"""In order: events with one key are with at most one run at a time, oldest first."""

from __future__ import annotations

from windsock.log.base import Log
from windsock.log.records import State
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, ids, put, states, watch

__all__ = ["OrderingContract"]


class OrderingContract(LogScene):
    """Watchers with a key."""

    def test_busy_key_is_left_for_later(self, log: Log) -> None:
        """Events behind a busy key are skipped, the others go on, and later they come in order."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "a1", "b1", "a2", "c1", "a3", "b2", keyed=True)
        assert ids(log.claim(["orders"], "fulfil", "r1", limit=1)) == ["a1"]
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=2)) == ["b1", "c1"]
        assert log.claim(["orders"], "fulfil", "r3") == []
        assert states(log, "fulfil")["a2"] is State.BLOCKED
        log.settle("fulfil", "r1", ok=True)
        assert states(log, "fulfil")["a2"] is State.PENDING
        assert ids(log.claim(["orders"], "fulfil", "r4", limit=1)) == ["a2"]
        log.settle("fulfil", "r2", ok=True)
        assert ids(log.claim(["orders"], "fulfil", "r5", limit=1)) == ["b2"]
        log.settle("fulfil", "r4", ok=True)
        assert ids(log.claim(["orders"], "fulfil", "r6", limit=1)) == ["a3"]

    def test_one_run_takes_a_key_whole(self, log: Log) -> None:
        """One run may have many events of a key, in their order."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "a1", "b1", "a2", "b2", keyed=True)
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a1", "b1", "a2", "b2"]

    def test_new_events_wait_behind_a_busy_key(self, log: Log) -> None:
        """An event that arrives while its key is busy waits, however late it comes."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "a1", keyed=True)
        log.claim(["orders"], "fulfil", "r1")
        put(log, "orders", "a2", "b1", keyed=True)
        assert ids(log.claim(["orders"], "fulfil", "r2")) == ["b1"]
        put(log, "orders", "a3", "b2", "c1", keyed=True)
        assert ids(log.claim(["orders"], "fulfil", "r3")) == ["c1"]
        log.settle("fulfil", "r1", ok=True)
        assert ids(log.claim(["orders"], "fulfil", "r4")) == ["a2", "a3"]

    def test_retry_keeps_the_key_busy(self, log: Log, clock: VirtualClock) -> None:
        """While an event waits for its retry nothing with its key overtakes it."""
        watch(log, "orders", "fulfil", key="key", retry_delay=100.0)
        put(log, "orders", "a1", "a2", "b1", keyed=True)
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.settle("fulfil", "r1", ok=False)
        assert ids(log.claim(["orders"], "fulfil", "r2")) == ["b1"]
        assert states(log, "fulfil") == {"a1": State.PENDING, "a2": State.BLOCKED, "b1": State.CLAIMED}
        clock.advance(100)
        assert ids(log.claim(["orders"], "fulfil", "r3")) == ["a1", "a2"]

    def test_failed_key_returns_in_order(self, log: Log, clock: VirtualClock) -> None:
        """A key whose events failed at different times still comes back oldest first."""
        watch(log, "orders", "fulfil", key="key", retry_delay=100.0)
        put(log, "orders", "a1", "a2", "a3", keyed=True)
        log.claim(["orders"], "fulfil", "r1", limit=2)
        log.settle("fulfil", "r1", ok=False)
        clock.advance(100)
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=1)) == ["a1"]
        log.settle("fulfil", "r2", ok=False)
        clock.advance(100)
        assert log.claim(["orders"], "fulfil", "r3") == []
        clock.advance(100)
        assert ids(log.claim(["orders"], "fulfil", "r4")) == ["a1", "a2", "a3"]

    def test_dead_event_frees_its_key(self, log: Log) -> None:
        """An event that is set aside lets the next of its key go on."""
        watch(log, "orders", "fulfil", key="key", max_attempts=1)
        put(log, "orders", "a1", "a2", keyed=True)
        [a1] = log.claim(["orders"], "fulfil", "r1", limit=1)
        log.settle("fulfil", "r1", ok=False)
        assert states(log, "fulfil")["a1"] is State.DEAD
        [a2] = log.claim(["orders"], "fulfil", "r2", limit=1)
        assert (a1.id, a2.id) == ("a1", "a2")
        put(log, "orders", "a3", keyed=True)
        assert a2.seq is not None
        log.dead_letter("fulfil", "r2", a2.seq, "broken")
        assert ids(log.claim(["orders"], "fulfil", "r3")) == ["a3"]

    def test_released_run_frees_its_keys(self, log: Log) -> None:
        """The events of a run that is gone come back in front of those that waited behind them."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "a1", "a2", "b1", keyed=True)
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.claim(["orders"], "fulfil", "r2")
        log.release_run("fulfil", "r1")
        assert ids(log.claim(["orders"], "fulfil", "r3")) == ["a1", "a2"]

    def test_limit_over_several_watchers_passes_over_nothing(self, log: Log) -> None:
        """Events behind the limit and beside a busy key all come later, each once."""
        watch(log, "orders", "fulfil", key="key")
        watch(log, "returns", "fulfil")
        put(log, "orders", "a1", keyed=True)
        log.claim(["orders"], "fulfil", "busy")
        put(log, "returns", "x", "y")
        put(log, "orders", "b1", "c1", "a2", "d1", keyed=True)
        both = ["orders", "returns"]
        assert ids(log.claim(both, "fulfil", "r1", limit=3)) == ["x", "y", "b1"]
        assert log.settle("fulfil", "r1", ok=True) == 3
        assert ids(log.claim(both, "fulfil", "r2", limit=3)) == ["c1", "d1"]
        log.settle("fulfil", "busy", ok=True)
        assert ids(log.claim(both, "fulfil", "r3", limit=3)) == ["a2"]

    def test_triggered_run_respects_busy_keys(self, log: Log) -> None:
        """A run that takes what it was triggered with leaves busy keys alone."""
        watch(log, "orders", "fulfil", key="key")
        [a1] = put(log, "orders", "a1", keyed=True)
        log.claim_announced("orders", "fulfil", "r1", up_to=a1)
        *_, last = put(log, "orders", "a2", "b1", keyed=True)
        assert log.claim_announced("orders", "fulfil", "r2", up_to=last) == 1
        assert states(log, "fulfil") == {"a1": State.CLAIMED, "a2": State.BLOCKED, "b1": State.CLAIMED}
        log.settle("fulfil", "r1", ok=True)
        assert log.claim_announced("orders", "fulfil", "r3", up_to=last) == 1
        assert states(log, "fulfil")["a2"] is State.CLAIMED

    def test_events_without_a_key_never_wait(self, log: Log) -> None:
        """In an ordered watcher an event without a key waits for nobody."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "x")
        log.claim(["orders"], "fulfil", "r1")
        put(log, "orders", "y")
        assert ids(log.claim(["orders"], "fulfil", "r2")) == ["y"]

    def test_without_an_order_keys_do_not_block(self, log: Log) -> None:
        """A watcher without a key option hands events of one key to several runs."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a1", "a2", keyed=True)
        assert ids(log.claim(["orders"], "fulfil", "r1", limit=1)) == ["a1"]
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=1)) == ["a2"]

    def test_keys_are_busy_per_dag_and_watcher(self, log: Log) -> None:
        """A key that is busy for one Dag or in one watcher is free for and in another."""
        watch(log, "orders", "fulfil", "audit", key="key")
        watch(log, "returns", "fulfil", key="key")
        put(log, "orders", "a1", keyed=True)
        log.claim(["orders"], "fulfil", "r1")
        put(log, "orders", "a2", keyed=True)
        put(log, "returns", "a3", keyed=True)
        assert ids(log.claim(["orders"], "audit", "r1")) == ["a1", "a2"]
        assert ids(log.claim(["orders", "returns"], "fulfil", "r2")) == ["a3"]
