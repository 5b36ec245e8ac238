"""Faults that are put into the log's tables, found, repaired, and gone."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.records import EventQuery, Write
from windsock.spec import Batching, Ordering, Retention
from windsock.testing.archive import MemoryArchive
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, ids, put, watch

__all__ = ["AuditContract"]

GRACE = 300.0
OLDER = 86400.0


def break_it(log: Any, *statements: str) -> None:
    """Change the tables behind the log's back; each statement returns rows, so that it surely hit some."""
    with log._transaction() as tx:  # noqa: SLF001 - nothing else can break it
        for statement in statements:
            assert tx.rows(f"{statement} RETURNING 1 AS hit"), statement


def found(log: Log) -> list[str]:
    """The kinds of gaps that there are."""
    return [gap.kind for gap in log.gaps(grace=GRACE, older=OLDER)]


FAULTS: dict[str, tuple[str, ...]] = {
    "logged": ("UPDATE watchers SET logged = 1",),
    "open_batch": ("UPDATE watchers SET closed_seq = 3 WHERE closed_seq > 3",),
    "missing": ("DELETE FROM events WHERE seq = 1",),
    "no_event": (
        "DELETE FROM events WHERE seq = 2",
        "INSERT INTO forgotten (watcher_id, purged) SELECT id, 1 FROM watchers",
    ),
    "lost": ("DELETE FROM entries WHERE seq = 1",),
    "no_claim": ("DELETE FROM claims WHERE run_id = 'r2'",),
    "letter_open": ("UPDATE entries SET state = 'done' WHERE state = 'dead'",),
    "no_letter": ("DELETE FROM dead_letters WHERE id > 0",),
    "dead_count": ("UPDATE watchers SET dead = 0",),
    "held_count": ("UPDATE watchers SET held = 7",),
}
"""Kind of gap → how it comes about in the scene of :meth:`AuditContract.scene`."""


class AuditContract(LogScene):
    """A log that is used as it should be has no gaps; each fault is found, and its repair leaves none."""

    @pytest.fixture
    def scene(self, log: Log) -> Log:
        """Of four events one is done, one with a run, one dead, one waits."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", "a", "b", "c", "d")
        assert seqs == [1, 2, 3, 4]
        log.announced(log.due(["orders"])[0])
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.settle("fulfil", "r1", ok=True)
        log.claim(["orders"], "fulfil", "r2", limit=2)
        log.dead_letter("fulfil", "r2", 3, "broken")
        return log

    def test_a_log_in_use_has_no_gaps(self, scene: Log) -> None:
        """Nothing is found, nothing is repaired, and the numbers are those of the scene."""
        assert found(scene) == []
        before = scene.events(EventQuery())
        for kind in (*FAULTS, "ahead", "waiting", "held", "replay", "not_claimed", "overdue_batch"):
            assert scene.mend(kind, grace=GRACE) == 0
        assert scene.events(EventQuery()) == before
        totals = scene.totals()
        assert (totals["events"], totals["deliveries"], totals["letters"], totals["claims"]) == (4, 3, 1, 2)

    @pytest.mark.parametrize("kind", FAULTS)
    def test_each_fault_is_found_and_mended(self, scene: Log, kind: str) -> None:
        """The fault is the only finding; after its repair there is none, and a second repair does nothing."""
        break_it(scene, *FAULTS[kind])
        assert found(scene) == [kind]
        assert scene.mend(kind, grace=GRACE) >= 1
        assert found(scene) == []
        assert scene.mend(kind, grace=GRACE) == 0

    def test_a_lost_event_is_delivered(self, scene: Log) -> None:
        """What the Dag had no record of comes first in its next claim."""
        break_it(scene, *FAULTS["lost"])
        scene.mend("lost", grace=GRACE)
        assert ids(scene.claim(["orders"], "fulfil", "r3", limit=9)) == ["a", "d"]

    def test_a_place_that_fell_back(self, scene: Log) -> None:
        """Deliveries beyond the place: it moves behind them, and no event comes twice."""
        break_it(scene, "UPDATE subscriptions SET frontier = 1", "DELETE FROM entries WHERE seq = 2")
        assert found(scene) == ["ahead"]
        scene.mend("ahead", grace=GRACE)
        assert found(scene) == []
        assert ids(scene.claim(["orders"], "fulfil", "r3", limit=9)) == ["b", "d"]

    def test_an_open_batch_that_was_forgotten_closes(self, scene: Log) -> None:
        """Events that no batch counted are announced after the repair."""
        break_it(scene, *FAULTS["open_batch"])
        scene.mend("open_batch", grace=GRACE)
        assert scene.close_batches() == 1
        assert ids(scene.claim(["orders"], "fulfil", "r3", limit=9)) == ["d"]

    def test_an_overdue_batch_is_closed(self, log: Log, clock: VirtualClock) -> None:
        """A batch that nobody closed in time."""
        watch(log, "orders", "fulfil", batch=Batching(within=60))
        put(log, "orders", "a")
        clock.advance(60 + GRACE)
        assert found(log) == ["overdue_batch"]
        assert log.mend("overdue_batch", grace=GRACE) == 1
        assert found(log) == []

    def test_a_batch_that_nobody_announces(self, log: Log, clock: VirtualClock) -> None:
        """It is found until it is announced; a clock that jumped is put right by the repair."""
        watch(log, "orders", "fulfil", throttle=30.0)
        put(log, "orders", "a")
        break_it(log, "UPDATE watchers SET announced_at = 9000000000")
        clock.advance(GRACE + 30)
        assert found(log) == ["not_announced"]
        assert log.due(["orders"]) == []
        assert log.mend("not_announced", grace=GRACE) == 1
        log.announced(log.due(["orders"])[0])
        assert found(log) == []

    def test_a_dag_that_does_not_answer_is_told_again(self, log: Log, clock: VirtualClock) -> None:
        """Woken, and no claim since: the repair makes the announcement due at once."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        for _ in range(4):
            log.announced(log.due(["orders"])[0])
            clock.advance(300)
        log.announced(log.due(["orders"])[0])
        assert found(log) == ["not_claimed"]
        assert log.due(["orders"]) == []
        assert log.mend("not_claimed", grace=GRACE) == 1
        assert found(log) == []
        assert len(log.due(["orders"])) == 1

    def test_events_that_wait_too_long(self, log: Log, clock: VirtualClock) -> None:
        """Fresh ones and those that came back are counted; a paused Dag lets them wait as it should."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        log.announced(log.due(["orders"])[0])
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.release_run("fulfil", "r1")
        clock.advance(OLDER + 1)
        [gap] = log.gaps(grace=GRACE, older=OLDER)
        assert (gap.kind, gap.count, gap.dag_id) == ("waiting", 2, "fulfil")
        log.subscribe("orders", "fulfil", paused=True)
        assert found(log) == []

    @pytest.mark.parametrize(
        "fault",
        [
            ("DELETE FROM sequences WHERE number > 0",),
            ("UPDATE sequences SET number = 3",),
            ("UPDATE sequences SET number = 5",),
        ],
        ids=["row missing", "turn came", "turn passed"],
    )
    def test_held_events_whose_turn_has_come(self, log: Log, fault: tuple[str, ...]) -> None:
        """They are stored in order and counted no more; what comes next is not held up."""
        watch(log, "orders", "fulfil", key="k", sequence=Ordering(by="n", on_gap="hold"))
        events = [event(number, key="k") for number in (1, 3, 4)]
        log.append([Write(watcher="orders", events=events, numbers=[1, 3, 4])])
        break_it(log, *fault)
        assert found(log) == ["held"]
        assert log.mend("held", grace=GRACE) == 1
        assert found(log) == []
        assert log.health()[0].held == 0
        log.append([Write(watcher="orders", events=[event(5, key="k")], numbers=[5])])
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["1", "3", "4", "5"]

    @pytest.mark.parametrize("cap", [1, 10])
    def test_a_replay_for_a_dag_that_is_gone(self, log: Log, clock: VirtualClock, cap: int) -> None:
        """It is found once its time is over, and finished by the repair."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        log.plan_replay("again", seqs, cap=cap)
        log.unsubscribe("orders", "fulfil")
        clock.advance(GRACE)
        assert found(log) == ["replay"]
        log.mend("replay", grace=GRACE)
        assert found(log) == []
        assert log.replays()[0].finished_at is not None

    def test_what_was_purged_or_erased_is_no_gap(self, log: Log, clock: VirtualClock) -> None:
        """Retention and deletion on request take events away without leaving the log in disagreement."""
        watch(log, "orders", "fulfil", batch=Batching(within=60))
        put(log, "orders", "a1", "a2", "b1", keyed=True, flush=True)
        log.announced(log.due(["orders"])[0])
        log.claim(["orders"], "fulfil", "r1")
        log.dead_letter("fulfil", "r1", 1, "broken")
        log.settle("fulfil", "r1", ok=True)
        log.discard([letter.id for letter in log.dead_letters()])
        put(log, "orders", "a3", "b2", keyed=True)
        log.erase("a")
        assert found(log) == []
        clock.advance(2 * OLDER)
        log.close_batches()
        log.announced(log.due(["orders"])[0])
        log.claim(["orders"], "fulfil", "r2")
        log.settle("fulfil", "r2", ok=True)
        log.purge(before=clock())
        assert found(log) == []

    def test_the_sums_hold_whatever_is_forgotten(self, log: Log, clock: VirtualClock) -> None:
        """Purged, archived, restored, brought back and erased events are accounted for; a lost row is not."""
        archive = MemoryArchive()
        watch(log, "away", retention=Retention(age=100.0, archive="memory://x"))
        watch(log, "orders", "fulfil", max_attempts=1)

        def agrees(events: int, archived: int, purged: int, erased: int) -> None:
            assert found(log) == []
            totals = log.totals()
            sums = (totals["events"], totals["archived"], totals["purged"], totals["erased"])
            assert sums == (events, archived, purged, erased)

        put(log, "away", "k1", "k2", "x1", keyed=True)
        put(log, "orders", "k3", "x2", "x3", keyed=True)
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        clock.advance(1000)
        agrees(6, 0, 0, 0)
        log.purge(before=clock(), archive=archive)
        agrees(0, 3, 3, 0)
        [file] = log.archives()
        events = list(archive.unpack(archive.get(file.path), "away"))
        assert log.restore(file, events) == 3
        [letter] = log.dead_letters(event_id="k3")
        log.redrive([letter.id])
        agrees(4, 3, 3, 0)
        put(log, "away", "k4", "x4", keyed=True)
        log.erase("k")
        agrees(2, 3, 3, 1)
        log.rewrite_archives(archive, lambda one: one.event.key == "k")
        agrees(2, 1, 3, 3)
        clock.advance(3601)
        log.purge(before=clock(), archive=archive)
        agrees(0, 2, 3, 3)
        put(log, "away", "x5", keyed=True)
        break_it(log, "DELETE FROM events WHERE id = 'x5'")
        [gap] = log.gaps(grace=GRACE, older=OLDER)
        assert (gap.kind, gap.watcher, gap.count, gap.first) == ("missing", "away", 1, "6")
        log.mend("missing", grace=GRACE)
        agrees(0, 2, 3, 3)
        put(log, "away", "x6", keyed=True)
        break_it(log, "DELETE FROM events WHERE id = 'x6'")
        assert [(gap.kind, gap.count) for gap in log.gaps(grace=GRACE, older=OLDER)] == [("missing", 1)]

    def test_an_unknown_kind_is_refused(self, log: Log) -> None:
        """A kind that does not exist is an error, not a repair of nothing."""
        with pytest.raises(WindsockError, match="no gap of the kind"):
            log.mend("nothing", grace=GRACE)
