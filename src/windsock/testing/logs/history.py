"""What was: stored events read again, and replays."""

from __future__ import annotations

import pytest

from windsock.log.base import Log
from windsock.log.records import Replay, Scan
from windsock.log.transaction import LogError
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, put, watch

__all__ = ["HistoryContract"]


def names(log: Log, **query: object) -> list[str]:
    """The names of the scanned events."""
    return [stored.event.id for stored in log.scan(Scan(**query))]  # type: ignore[arg-type]


def run(log: Log, dag: str, run_id: str, *watchers: str) -> list[tuple[str, str | None]]:
    """A successful run: what it claimed, each with its replay."""
    events = log.claim(watchers or ["orders"], dag, run_id)
    log.settle(dag, run_id, ok=True)
    return [(event.id, event.replay) for event in events]


class HistoryContract(LogScene):
    """Scans and replays."""

    def test_scan_reads_oldest_first(self, log: Log) -> None:
        """Every stored event comes, in the order of the log, also across pages."""
        watch(log, "orders", "fulfil")
        put(log, "orders", *range(1005))
        assert names(log) == [str(n) for n in range(1005)]

    @pytest.mark.parametrize(
        ("query", "wanted"),
        [
            ({"watchers": ["orders"]}, ["a", "b", "c"]),
            ({"watchers": ["parcels", "orders"]}, ["a", "b", "c", "d"]),
            ({"watchers": []}, []),
            ({"asset": "post"}, ["d"]),
            ({"key": "b"}, ["b"]),
            ({"type": "none"}, []),
            ({"since": 1_700_000_010.0}, ["c", "d"]),
            ({"until": 1_700_000_010.0}, ["a", "b"]),
            ({"limit": 3}, ["a", "b", "c"]),
            ({"ids": ["d", "a", "nobody"]}, ["a", "d"]),
        ],
    )
    def test_scan_is_narrowed(
        self, log: Log, clock: VirtualClock, query: dict[str, object], wanted: list[str]
    ) -> None:
        """Each field of the query leaves out what it does not name."""
        watch(log, "orders", "fulfil")
        watch(log, "parcels", "ship", asset="post")
        put(log, "orders", "a", "b", keyed=True)
        clock.advance(10)
        put(log, "orders", "c", keyed=True)
        put(log, "parcels", "d", keyed=True)
        assert names(log, **query) == wanted

    def test_scan_between_positions(self, log: Log) -> None:
        """After one seq and up to another."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", *"abcde")
        assert names(log, after=seqs[1], up_to=seqs[3]) == ["c", "d"]
        assert names(log, seqs=[seqs[4], seqs[0]]) == ["a", "e"]

    def test_a_replay_is_delivered_again(self, log: Log) -> None:
        """Settled events come back to the subscribed Dags, marked, and settle again."""
        watch(log, "orders", "fulfil", "audit")
        seqs = put(log, "orders", *"abc")
        run(log, "fulfil", "first")
        run(log, "audit", "first")
        replay = log.plan_replay("again", seqs[:2])
        assert (replay.planned, replay.made, replay.under_way) == (4, 4, 4)
        assert log.due(["orders"])
        for dag in ("fulfil", "audit"):
            assert run(log, dag, "second") == [("a", "again"), ("b", "again")]
            assert run(log, dag, "third") == []
        log.advance_replays()
        [done] = log.replays()
        assert (done.under_way, done.finished_at is not None) == (0, True)

    def test_a_replay_for_one_dag(self, log: Log) -> None:
        """Other Dags are left alone, and the same name for another Dag is refused."""
        watch(log, "orders", "fulfil", "audit")
        seqs = put(log, "orders", "a")
        run(log, "fulfil", "first")
        run(log, "audit", "first")
        log.plan_replay("again", seqs, dag_id="audit")
        assert run(log, "fulfil", "second") == []
        assert run(log, "audit", "second") == [("a", "again")]
        with pytest.raises(LogError, match="audit"):
            log.plan_replay("again", seqs, dag_id="fulfil")

    def test_the_same_replay_twice_does_nothing_new(self, log: Log) -> None:
        """A replay that is asked for again delivers only what it had not planned."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", *"ab")
        run(log, "fulfil", "first")
        log.plan_replay("again", seqs[:1])
        assert run(log, "fulfil", "second") == [("a", "again")]
        replay = log.plan_replay("again", seqs)
        assert replay.planned == 2
        assert run(log, "fulfil", "third") == [("b", "again")]

    def test_a_replay_is_capped(self, log: Log) -> None:
        """No more than the cap is under way; the rest follows as it is settled, in order."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", *"abcde")
        run(log, "fulfil", "first")
        assert log.plan_replay("again", seqs, cap=2).under_way == 2
        got = []
        for number in range(3):
            got += run(log, "fulfil", f"again-{number}")
            log.advance_replays()
        assert [name for name, _ in got] == list("abcde")

    def test_what_is_not_settled_is_not_replayed(self, log: Log) -> None:
        """An event that the Dag will get anyway, or has in a run, is not delivered twice."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", *"ab")
        log.claim(["orders"], "fulfil", "running", limit=1)
        replay: Replay = log.plan_replay("again", seqs)
        assert (replay.skipped, replay.under_way) == (2, 0)
        log.settle("fulfil", "running", ok=True)
        assert run(log, "fulfil", "second") == [("b", None)]

    def test_a_dag_that_came_later_can_have_the_past(self, log: Log) -> None:
        """Events from before a Dag's first day are delivered to it by a replay."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", *"ab")
        log.subscribe("orders", "late")
        put(log, "orders", "c")
        assert run(log, "late", "first") == [("c", None)]
        log.plan_replay("past", seqs, dag_id="late")
        assert run(log, "late", "second") == [("a", "past"), ("b", "past")]

    def test_a_failed_replay_is_retried(self, log: Log, clock: VirtualClock) -> None:
        """A replayed event of a failed run returns with its mark, like any other."""
        watch(log, "orders", "fulfil", retry_delay=5.0)
        seqs = put(log, "orders", "a")
        run(log, "fulfil", "first")
        log.plan_replay("again", seqs)
        log.claim(["orders"], "fulfil", "second")
        log.settle("fulfil", "second", ok=False)
        clock.advance(6)
        [event] = log.claim(["orders"], "fulfil", "third")
        assert (event.replay, event.attempt) == ("again", 1)
