"""Several handles on one store see one log, and what was committed outlives them."""

from __future__ import annotations

import pytest

from windsock.events import LeaseLost
from windsock.log.base import Log
from windsock.log.records import EventQuery, Write
from windsock.spec import Batching
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.leases import taken
from windsock.testing.logs.scene import SOURCE, LogScene, OpenLog, event, ids, put, states, watch

__all__ = ["DurabilityContract"]


class DurabilityContract(LogScene):
    """Opening the same store again."""

    def test_everything_outlives_the_handle(self, log: Log, open_log: OpenLog, clock: VirtualClock) -> None:
        """After closing and opening again all is as it was: events, places, claims, cursor, keys, batch."""
        spec = watch(log, "orders", "fulfil", batch=Batching(size=2, within=10))
        put(log, "orders", "a", "b", "c", dedup=True)
        claimed = log.claim(["orders"], "fulfil", "r1", limit=1)
        log.append([], source=SOURCE, cursor={"at": 9})
        records, health, places = log.events(EventQuery()), log.health(), log.subscriptions()
        log.close()
        again = open_log(clock)
        try:
            assert again.watchers() == [spec]
            assert (again.events(EventQuery()), again.health(), again.subscriptions()) == (
                records,
                health,
                places,
            )
            assert again.cursor(SOURCE) == {"at": 9}
            assert again.claim(["orders"], "fulfil", "r1") == claimed
            assert put(again, "orders", "a", dedup=True) == []
            clock.advance(10)
            assert again.close_batches() == 1
            assert ids(again.claim(["orders"], "fulfil", "r2")) == ["b", "c"]
        finally:
            again.close()

    def test_two_handles_are_one_log(self, log: Log, open_log: OpenLog, clock: VirtualClock) -> None:
        """What one handle commits another sees at once, and they never hand out the same event."""
        other = open_log(clock)
        try:
            watch(log, "orders", "fulfil")
            put(other, "orders", "a", "b", dedup=True)
            assert put(log, "orders", "b", "c", dedup=True)
            assert ids(log.claim(["orders"], "fulfil", "r1", limit=2)) == ["a", "b"]
            assert ids(other.claim(["orders"], "fulfil", "r2", limit=2)) == ["c"]
            assert ids(other.claim(["orders"], "fulfil", "r1")) == ["a", "b"]
            other.settle("fulfil", "r1", ok=True)
            assert states(log, "fulfil") == states(other, "fulfil")
        finally:
            other.close()

    def test_new_definition_reaches_other_handles(
        self, log: Log, open_log: OpenLog, clock: VirtualClock
    ) -> None:
        """A handle that knew the old definition appends by the new one."""
        other = open_log(clock)
        try:
            watch(log, "orders", "fulfil", batch=Batching(within=60))
            put(other, "orders", "a")
            watch(log, "orders", batch=Batching(size=2, within=60))
            put(other, "orders", "b")
            assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]
        finally:
            other.close()

    def test_takeover_fences_the_other_handle(self, log: Log, open_log: OpenLog, clock: VirtualClock) -> None:
        """An owner whose lease was taken through another handle can append no more."""
        other = open_log(clock)
        try:
            watch(log, "orders", "fulfil")
            old = taken(log.acquire("queue", "one", 30))
            assert other.acquire("queue", "two", 30) is None
            clock.advance(31)
            new = taken(other.acquire("queue", "two", 30))
            with pytest.raises(LeaseLost):
                log.append([Write(watcher="orders", events=[event("a")])], lease=old)
            other.append([Write(watcher="orders", events=[event("b")])], lease=new)
            assert ids(log.claim(["orders"], "fulfil", "r1")) == ["b"]
        finally:
            other.close()
