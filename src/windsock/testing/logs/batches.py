"""Batches: closed by size, bytes, time, quiet or a flush, in the order of the log."""

from __future__ import annotations

from windsock.log.base import Log
from windsock.log.records import EventQuery, State
from windsock.spec import Batching
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, ids, put, states, watch

__all__ = ["BatchContract"]


def batches(log: Log) -> list[list[str]]:
    """The ids of the closed batches' events, oldest first."""
    groups: dict[int, list[str]] = {}
    for record in reversed(log.events(EventQuery(limit=1000))):
        if record.batch is not None and record.state is not State.OPEN:
            groups.setdefault(record.batch, []).append(record.event.id)
    return list(groups.values())


class BatchContract(LogScene):
    """When events become a batch."""

    def test_by_default_each_append_is_a_batch(self, log: Log) -> None:
        """With neither a window nor a quiet period a batch closes with the append that opened it."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        put(log, "orders", "c")
        assert batches(log) == [["a", "b"], ["c"]]
        assert log.close_batches() == 0

    def test_large_append_becomes_several_batches(self, log: Log) -> None:
        """An append larger than the size is cut into batches of that size and a rest."""
        watch(log, "orders", "fulfil", batch=Batching(size=2))
        put(log, "orders", *"abcde")
        assert batches(log) == [["a", "b"], ["c", "d"], ["e"]]

    def test_rest_of_a_large_append_waits(self, log: Log) -> None:
        """With a window the rest of a large append stays open and is filled by the next."""
        watch(log, "orders", "fulfil", batch=Batching(size=2, within=60))
        put(log, "orders", *"abcde")
        assert batches(log) == [["a", "b"], ["c", "d"]]
        assert states(log, "fulfil")["e"] is State.OPEN
        put(log, "orders", "f", "g")
        assert batches(log) == [["a", "b"], ["c", "d"], ["e", "f"]]

    def test_bytes_close_a_batch(self, log: Log) -> None:
        """A batch closes with the event that brings it to its bytes."""
        size = len(event("a").encode())
        watch(log, "orders", "fulfil", batch=Batching(bytes=2 * size, within=60))
        put(log, "orders", "a")
        assert batches(log) == []
        put(log, "orders", "b", "c")
        assert batches(log) == [["a", "b"]]

    def test_one_event_past_the_bytes_is_a_batch(self, log: Log) -> None:
        """An event larger than the batch's bytes is not stuck."""
        watch(log, "orders", "fulfil", batch=Batching(bytes=10, within=60))
        put(log, "orders", "a", "b")
        assert batches(log) == [["a"], ["b"]]

    def test_window_closes_a_batch(self, log: Log, clock: VirtualClock) -> None:
        """A batch closes when its first event has waited for the window, whatever came after."""
        watch(log, "orders", "fulfil", batch=Batching(within=10))
        put(log, "orders", "a")
        clock.advance(9)
        put(log, "orders", "b")
        assert log.close_batches() == 0
        clock.advance(1)
        assert log.close_batches() == 1
        assert batches(log) == [["a", "b"]]
        assert log.close_batches() == 0

    def test_next_window_starts_with_the_next_event(self, log: Log, clock: VirtualClock) -> None:
        """Each batch has its own window."""
        watch(log, "orders", "fulfil", batch=Batching(size=2, within=10))
        put(log, "orders", "a")
        clock.advance(9)
        put(log, "orders", "b", "c")
        clock.advance(9)
        assert log.close_batches() == 0
        clock.advance(1)
        assert log.close_batches() == 1
        assert batches(log) == [["a", "b"], ["c"]]

    def test_quiet_closes_a_batch(self, log: Log, clock: VirtualClock) -> None:
        """A batch closes when nothing came for the quiet period; each event starts it anew."""
        watch(log, "orders", "fulfil", batch=Batching(quiet=10))
        for name in "abc":
            put(log, "orders", name)
            clock.advance(9)
            assert log.close_batches() == 0
        clock.advance(1)
        assert log.close_batches() == 1
        assert batches(log) == [["a", "b", "c"]]

    def test_window_bounds_the_quiet(self, log: Log, clock: VirtualClock) -> None:
        """With both, whichever comes first closes the batch."""
        watch(log, "orders", "fulfil", batch=Batching(quiet=10, within=15))
        put(log, "orders", "a")
        clock.advance(9)
        put(log, "orders", "b")
        clock.advance(6)
        assert log.close_batches() == 1
        put(log, "orders", "c")
        clock.advance(10)
        assert log.close_batches() == 1
        assert batches(log) == [["a", "b"], ["c"]]

    def test_flush_closes_a_batch(self, log: Log) -> None:
        """A write that says so closes the batch it is in."""
        watch(log, "orders", "fulfil", batch=Batching(within=60))
        put(log, "orders", "a")
        put(log, "orders", "b", flush=True)
        put(log, "orders", "c")
        assert batches(log) == [["a", "b"]]

    def test_batches_of_watchers_are_their_own(self, log: Log, clock: VirtualClock) -> None:
        """One watcher's window says nothing of another's; what is due closes together."""
        watch(log, "orders", "fulfil", batch=Batching(within=10))
        watch(log, "returns", "fulfil", batch=Batching(within=20))
        put(log, "orders", "a")
        put(log, "returns", "r")
        clock.advance(10)
        assert log.close_batches() == 1
        assert batches(log) == [["a"]]
        put(log, "orders", "b")
        clock.advance(10)
        assert log.close_batches() == 2

    def test_open_batch_is_not_there_yet(self, log: Log, clock: VirtualClock) -> None:
        """Events of an open batch are backlog, but neither claimable nor due."""
        watch(log, "orders", "fulfil", batch=Batching(within=10))
        put(log, "orders", "a", "b")
        assert log.backlog(["orders"]) == 2
        assert states(log, "fulfil") == {"a": State.OPEN, "b": State.OPEN}
        assert log.due(["orders"]) == []
        assert log.claim(["orders"], "fulfil", "r1") == []
        assert log.claim_announced("orders", "fulfil", "r2", up_to=1000) == 0
        clock.advance(10)
        log.close_batches()
        assert states(log, "fulfil") == {"a": State.PENDING, "b": State.PENDING}
        assert len(log.due(["orders"])) == 1
        assert ids(log.claim(["orders"], "fulfil", "r3")) == ["a", "b"]

    def test_new_definition_applies_to_the_open_batch(self, log: Log, clock: VirtualClock) -> None:
        """A watcher whose window is taken away leaves no batch open for ever."""
        watch(log, "orders", "fulfil", batch=Batching(within=10))
        put(log, "orders", "a")
        watch(log, "orders", batch=Batching())
        clock.advance(10)
        log.close_batches()
        assert batches(log) == [["a"]]
