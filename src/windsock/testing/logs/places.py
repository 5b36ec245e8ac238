"""Where a new Dag begins, and moving a Dag's place."""

from __future__ import annotations

import pytest

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.records import State
from windsock.spec import Batching
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, ids, put, states, watch

__all__ = ["PlaceContract"]


class PlaceContract(LogScene):
    """A place is where it was said to be, and moves without losing or repeating anything."""

    @pytest.mark.parametrize(
        ("start", "gets"), [("earliest", ["a", "b", "c"]), ("latest", ["c"]), (None, ["c"])]
    )
    def test_a_new_dag_begins_where_it_says(self, log: Log, start: str | None, gets: list[str]) -> None:
        """Earliest, latest, and by default the next event, since another Dag is there already."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        log.subscribe("orders", "audit", start=start)
        put(log, "orders", "c")
        assert ids(log.claim(["orders"], "audit", "r1")) == gets

    def test_a_new_dag_begins_at_a_time(self, log: Log, clock: VirtualClock) -> None:
        """With the first event that came at that time or later."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        noon = clock.advance(60)
        put(log, "orders", "b")
        clock.advance(60)
        put(log, "orders", "c")
        log.subscribe("orders", "audit", start=noon)
        assert ids(log.claim(["orders"], "audit", "r1")) == ["b", "c"]

    def test_the_watcher_says_where_its_dags_begin(self, log: Log) -> None:
        """Also for a Dag that claims before anybody has subscribed it; the Dag's own word counts more."""
        watch(log, "orders", "fulfil", new_dags="earliest")
        put(log, "orders", "a")
        assert ids(log.claim(["orders"], "audit", "r1")) == ["a"]
        log.subscribe("orders", "other", start="latest")
        assert log.claim(["orders"], "other", "r1") == []

    def test_a_known_dag_stays_where_it_is(self, log: Log) -> None:
        """A start is for the first time only."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        log.unsubscribe("orders", "fulfil")
        log.subscribe("orders", "fulfil", start="earliest")
        assert log.claim(["orders"], "fulfil", "r2") == []

    def test_moving_to_the_latest_passes_over_what_waits(self, log: Log) -> None:
        """What came back and what is fresh is settled; what a run has stays with it."""
        watch(log, "orders", "fulfil", batch=Batching(size=1), retry_delay=0.0)
        put(log, "orders", "a", "b", "c", "d")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        log.claim(["orders"], "fulfil", "r2", limit=1)
        log.claim(["orders"], "fulfil", "r3", limit=1)
        log.settle("fulfil", "r3", ok=False)
        seen = log.move("orders", "fulfil", "latest", dry_run=True)
        assert states(log, "fulfil")["b"] is State.PENDING
        moved = log.move("orders", "fulfil", "latest")
        assert (seen.skipped, moved) == (3, seen)
        assert states(log, "fulfil") == {
            "a": State.CLAIMED,
            "b": State.DONE,
            "c": State.DONE,
            "d": State.DONE,
        }
        put(log, "orders", "e")
        assert ids(log.claim(["orders"], "fulfil", "r4", limit=9)) == ["e"]
        assert log.gaps(grace=0, older=1) == []

    def test_moving_back_gives_what_was_never_given(self, log: Log) -> None:
        """Events from before the Dag's beginning come first; those that it has had do not come again."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        log.subscribe("orders", "audit")
        put(log, "orders", "c")
        log.claim(["orders"], "audit", "r1")
        log.settle("audit", "r1", ok=True)
        put(log, "orders", "d")
        moved = log.move("orders", "audit", "earliest")
        assert (moved.added, moved.seen, moved.skipped) == (2, 1, 0)
        assert [one.claims for one in log.due(["orders"])] != []
        assert ids(log.claim(["orders"], "audit", "r2", limit=9)) == ["a", "b", "d"]
        assert log.move("orders", "audit", "earliest").added == 0

    def test_moving_to_a_time(self, log: Log, clock: VirtualClock) -> None:
        """Forward to a time, what came later still waits."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        noon = clock.advance(60)
        put(log, "orders", "b")
        assert log.move("orders", "fulfil", noon).skipped == 1
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["b"]

    def test_a_stranger_has_no_place(self, log: Log) -> None:
        """Moving a Dag that was never there is refused, and makes no place."""
        watch(log, "orders", "fulfil")
        with pytest.raises(WindsockError, match="no place"):
            log.move("orders", "stranger", "latest")
        assert len(log.subscriptions()) == 1
