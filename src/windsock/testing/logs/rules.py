"""What rules remember: stored with the append, or not at all."""

from __future__ import annotations

import pytest

from windsock.events import LeaseLost
from windsock.log.base import Log
from windsock.log.records import Beat, Write
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, put, watch

__all__ = ["RulesContract"]

SOURCE = "correlate:suite"


class RulesContract(LogScene):
    """State by key, and where every watcher is."""

    def test_state_is_stored_changed_and_forgotten(self, log: Log) -> None:
        """Each append brings what changed; None forgets a key, and sources do not see each other's."""
        log.append([], source=SOURCE, state={"": (b"\x00one", None), "b": (b"two", 7.5), "ä\x7f": (b"", 1.0)})
        log.append([], source="another", state={"b": (b"other", None)})
        log.append([], source=SOURCE, state={"b": (b"changed", 8.0), "": None, "never": None})
        assert dict(log.remembered(SOURCE)) == {"b": (b"changed", 8.0), "ä\x7f": (b"", 1.0)}
        assert log.recall(SOURCE, "b") == (b"changed", 8.0)
        assert log.recall(SOURCE, "") is None
        assert log.recall("another", "b") == (b"other", None)

    def test_state_comes_back_whole(self, log: Log) -> None:
        """However many keys there are, all are read, the unnamed one too."""
        state = {f"k{n}": (str(n).encode(), None) for n in range(12_000)} | {"": (b"whole", 0.5)}
        log.append([], source=SOURCE, state=state)
        assert dict(log.remembered(SOURCE)) == state

    def test_state_and_events_are_stored_together(self, log: Log, clock: VirtualClock) -> None:
        """An append that is refused changes neither events nor cursor nor state."""
        watch(log, "joined")
        stale = log.acquire(SOURCE, "a", 10)
        clock.advance(11)
        current = log.acquire(SOURCE, "b", 10)
        write = Write(watcher="joined", events=[event("1")])
        with pytest.raises(LeaseLost):
            log.append([write], source=SOURCE, cursor={"n": 1}, state={"k": (b"x", None)}, lease=stale)
        assert (log.cursor(SOURCE), log.recall(SOURCE, "k")) == (None, None)
        log.append([write], source=SOURCE, cursor={"n": 1}, state={"k": (b"x", None)}, lease=current)
        assert log.cursor(SOURCE) == {"n": 1}
        assert log.recall(SOURCE, "k") == (b"x", None)

    def test_an_erasure_sends_readers_back(self, log: Log) -> None:
        """A reader that has an erased key in mind can store nothing of it; the next one has what is left."""
        lease, other = log.acquire(SOURCE, "a", 10), log.acquire("another", "a", 10)
        assert lease is not None
        assert other is not None
        log.append([], source=SOURCE, state={"k": (b"x", None), "l": (b"y", None)}, lease=lease)
        assert log.erase("k", readers=[SOURCE, "nobody"], dry_run=True) == {"rule_states": 1}
        log.renew(lease, 10)
        assert log.erase("k", readers=[SOURCE, "nobody"]) == {"rule_states": 1}
        with pytest.raises(LeaseLost):
            log.append([], source=SOURCE, state={"k": (b"xx", None)}, lease=lease)
        assert log.beat([Beat(lease=lease, state="running")], 10) == [None]
        assert log.acquire(SOURCE, "b", 10) is not None
        assert dict(log.remembered(SOURCE)) == {"l": (b"y", None)}
        log.renew(other, 10)

    def test_marks_are_the_newest_events(self, log: Log) -> None:
        """A watcher's mark is the seq of its newest event, with its definition."""
        spec = watch(log, "orders")
        watch(log, "quiet")
        *_, last = put(log, "orders", "a", "b", "c")
        marks = log.marks()
        assert (marks["orders"].seq, marks["orders"].spec) == (last, spec)
        assert marks["quiet"].seq == 0
        assert log.marks()["orders"].spec is marks["orders"].spec

    def test_behind_counts_what_was_not_read(self, log: Log) -> None:
        """How many events of the named watchers are after their positions; an unknown one has none."""
        watch(log, "orders")
        watch(log, "payments")
        first, *_ = put(log, "orders", "a", "b", "c")
        put(log, "payments", "d")
        assert log.behind({"orders": first, "payments": 0, "unknown": 0}) == 3

    def test_arrivals_are_the_newest_times(self, log: Log, clock: VirtualClock) -> None:
        """When a watcher's events came, oldest first, at most so many and not older than asked for."""
        watch(log, "orders")
        watch(log, "payments")
        times = []
        for n in range(5):
            put(log, "orders", n)
            put(log, "payments", n)
            times.append(clock.now)
            clock.advance(10)
        assert log.arrivals("orders", since=times[1], limit=100) == times[1:]
        assert log.arrivals("orders", since=0, limit=2) == times[3:]
        assert log.arrivals("unknown", since=0, limit=2) == []
