"""What is forgotten, archived, restored and erased."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windsock.events import Verdict
from windsock.log.archive import ArchivedEvent, ArchiveError, Receipt
from windsock.log.base import Log
from windsock.log.records import Scan, State, Write
from windsock.log.transaction import LogError
from windsock.spec import Batching, Ordering, Retention
from windsock.testing.archive import MemoryArchive
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, put, states, watch

__all__ = ["RetentionContract"]

AWAY = Retention(age=100.0, archive="mem:///away")
LONG_AGO = 0.0
DAY = 86400.0


def names(log: Log, **query: object) -> list[str]:
    """The ids that are stored, oldest first."""
    return [stored.event.id for stored in log.scan(Scan(**query))]  # type: ignore[arg-type]


def run(log: Log, dag: str = "fulfil", run_id: str = "first", *, limit: int = 100_000) -> list[str]:
    """A successful run: what it claimed."""
    events = log.claim(["orders"], dag, run_id, limit=limit)
    log.settle(dag, run_id, ok=True)
    return [one.id for one in events]


def filed(log: Log, archive: MemoryArchive) -> list[ArchivedEvent]:
    """What the stored files hold."""
    return [one for file in log.archives() for one in archive.unpack(archive.get(file.path), file.watcher)]


class RetentionContract(LogScene):
    """Limits, archive, restore and erasure."""

    @pytest.fixture
    def archive(self) -> MemoryArchive:
        """Where the archived events are."""
        return MemoryArchive()

    # limits

    @pytest.mark.parametrize(
        ("retention", "kept"),
        [
            (None, "cde"),
            (Retention(age=25.0), "de"),
            (Retention(age=1000.0), "abcde"),
            (Retention(count=1), "e"),
            (Retention(count=0), ""),
            (Retention(age=1000.0, count=2), "de"),
            (Retention(age=25.0, count=4), "de"),
        ],
    )
    def test_each_watcher_keeps_what_it_says(
        self, log: Log, clock: VirtualClock, retention: Retention | None, kept: str
    ) -> None:
        """Age and count are limits, whichever is reached first; an age that is not named is given."""
        watch(log, "orders", "fulfil", retention=retention)
        for name in "abcde":
            put(log, "orders", name)
            clock.advance(10)
        run(log)
        gone = log.purge(before=clock() - 35)
        assert (names(log), gone) == (list(kept), 5 - len(kept))

    def test_bytes_limit_a_watcher(self, log: Log, clock: VirtualClock) -> None:
        """The newest events that fit are kept."""
        events = [event(n, data="x" * 100) for n in range(5)]
        size = len(events[0].encode())
        watch(log, "orders", "fulfil", retention=Retention(bytes=2 * size + 1))
        log.append([Write(watcher="orders", events=events)])
        run(log)
        assert log.purge(before=LONG_AGO) == 3
        assert names(log) == ["3", "4"]
        [held] = log.retained()
        assert (held.watcher, held.count, held.bytes, held.oldest_at) == ("orders", 2, 2 * size, clock())

    def test_no_limit_takes_what_is_needed(self, log: Log) -> None:
        """What a Dag has not settled stays, whatever the limit, and is delivered."""
        watch(log, "orders", "fulfil", "audit", retention=Retention(age=0.0, count=0, bytes=0))
        put(log, "orders", *"abc")
        run(log, limit=2)
        assert log.purge(before=LONG_AGO) == 0
        assert run(log, "audit") == ["a", "b", "c"]
        assert log.purge(before=LONG_AGO) == 2
        assert run(log, run_id="second") == ["c"]

    def test_a_planned_replay_is_needed(self, log: Log, clock: VirtualClock) -> None:
        """What a replay has still to deliver stays, also for a Dag that came after the event."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", *"abc")
        run(log)
        log.subscribe("orders", "late")
        log.plan_replay("past", seqs, dag_id="late", cap=1)
        clock.advance(10)
        assert log.purge(before=clock()) == 0
        for number in range(3):
            assert run(log, "late", f"run-{number}") == ["abc"[number]]
            log.advance_replays()
        assert log.purge(before=clock()) == 3

    def test_a_letter_of_a_forgotten_event_can_be_redriven(self, log: Log, clock: VirtualClock) -> None:
        """The letter brings the event back to its place, for its own Dag alone."""
        watch(log, "orders", "fulfil", "audit", max_attempts=1)
        [seq] = put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r")
        log.settle("fulfil", "r", ok=False)
        run(log, "audit")
        clock.advance(10)
        assert log.purge(before=clock()) == 1
        [letter] = log.dead_letters()
        assert log.redrive([letter.id]).delivered == 1
        [again] = log.claim(["orders"], "fulfil", "again")
        assert (again.id, again.seq, again.replay) == ("a", seq, f"redrive:{letter.id}")
        assert log.claim(["orders"], "audit", "again") == []

    # archive

    def test_events_are_archived_before_they_go(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """What leaves the log is in a file, with its bytes, its time and what each Dag made of it."""
        watch(log, "orders", "fulfil", "audit", retention=AWAY)
        seqs = put(log, "orders", "a", "b", keyed=True)
        at = clock()
        run(log)
        run(log, "audit", "other")
        clock.advance(101)
        put(log, "orders", "c")
        assert log.purge(before=LONG_AGO, archive=archive) == 2
        assert names(log) == ["c"]
        assert [(one.event.id, one.event.key, one.seq) for one in filed(log, archive)] == [
            ("a", "a", seqs[0]),
            ("b", "b", seqs[1]),
        ]
        first = filed(log, archive)[0]
        assert first.received_at == at
        assert {(dag.dag_id, dag.state, dag.run_id) for dag in first.dags} == {
            ("fulfil", "done", "first"),
            ("audit", "done", "other"),
        }
        [file] = log.archives()
        assert (file.watcher, file.count, file.first_seq, file.last_seq) == ("orders", 2, *seqs)
        assert file.path.startswith("mem:///away/watcher=orders/day=")
        assert file.bytes == len(archive.files[file.path])
        [held] = log.retained()
        assert (held.count, held.files, held.archived) == (1, 1, 2)

    def test_without_an_archive_at_hand_they_stay(self, log: Log, clock: VirtualClock) -> None:
        """A purge that cannot archive leaves alone what is to be archived."""
        watch(log, "orders", "fulfil", retention=AWAY)
        put(log, "orders", "a")
        run(log)
        clock.advance(1000)
        assert log.purge(before=clock()) == 0
        assert names(log) == ["a"]

    def test_a_file_has_one_day_of_one_watcher(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """Events of two days and two watchers make four files."""
        for name in ("orders", "parcels"):
            watch(log, name, retention=AWAY)
        for _ in range(2):
            for name in ("orders", "parcels", "orders"):
                put(log, name, "x")
            clock.advance(DAY)
        assert log.purge(before=LONG_AGO, archive=archive) == 6
        found = [(file.watcher, file.path.split("day=")[1][:10], file.count) for file in log.archives()]
        assert len(set(found)) == 4
        assert sorted(count for _, _, count in found) == [1, 1, 2, 2]
        assert [file.watcher for file in log.archives(watchers=["parcels"])] == ["parcels"] * 2
        assert len(log.archives(until=clock() - DAY)) == 2
        assert len(log.archives(since=clock() - DAY)) == 2

    def test_an_archive_that_fails_loses_nothing(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """Its events stay, the other watchers' go, and the next time it works."""
        watch(log, "orders", retention=AWAY)
        watch(log, "parcels", retention=AWAY)
        watch(log, "plain")
        for name in ("orders", "parcels", "plain"):
            put(log, name, name)
        clock.advance(1000)
        archive.broken = "orders"
        with pytest.raises(ArchiveError, match=r"watcher 'orders'.*disk is full"):
            log.purge(before=clock(), archive=archive)
        assert names(log) == ["orders"]
        archive.broken = ""
        assert log.purge(before=clock(), archive=archive) == 1
        assert sorted(one.event.id for one in filed(log, archive)) == ["orders", "parcels"]
        assert len(archive.files) == 2

    def test_a_cut_off_archiver_leaves_nothing_twice(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """A file that was written but never counted is removed, and its events are archived anew."""

        class Dying(MemoryArchive):
            def put(self, path: str, content: bytes) -> None:
                archive.put(path, content)
                raise KeyboardInterrupt

        watch(log, "orders", retention=AWAY)
        put(log, "orders", "a")
        clock.advance(1000)
        with pytest.raises(KeyboardInterrupt):
            log.purge(before=LONG_AGO, archive=Dying())
        [left] = archive.files
        assert (names(log), log.archives()) == (["a"], [])
        put(log, "orders", "b")
        clock.advance(1000)
        assert log.purge(before=LONG_AGO, archive=archive) == 2
        assert [one.event.id for one in filed(log, archive)] == ["a", "b"]
        assert left not in archive.files

    def test_one_archiver_at_a_time(self, log: Log, clock: VirtualClock, archive: MemoryArchive) -> None:
        """A second one waits for its turn; one that was overtaken moves nothing."""
        inner: list[int] = []

        class Slow(MemoryArchive):
            def put(self, path: str, content: bytes) -> None:
                with pytest.raises(ArchiveError, match="another process is archiving"):
                    log.purge(before=LONG_AGO, archive=archive)
                clock.advance(1000)
                inner.append(log.purge(before=LONG_AGO, archive=archive))
                super().put(path, content)

        watch(log, "orders", retention=AWAY)
        put(log, "orders", "a")
        clock.advance(1000)
        slow = Slow()
        with pytest.raises(ArchiveError, match="taken over"):
            log.purge(before=LONG_AGO, archive=slow)
        assert inner == [1]
        assert [one.event.id for one in filed(log, archive)] == ["a"]
        assert slow.files == {}

    def test_what_is_needed_again_meanwhile_stays(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """An event that is replayed while its file is written stays in the log, and the file goes."""

        class Slow(MemoryArchive):
            def put(self, path: str, content: bytes) -> None:
                archive.put(path, content)
                log.plan_replay("again", seqs)

        watch(log, "orders", "fulfil", retention=AWAY)
        seqs = put(log, "orders", "a")
        run(log)
        clock.advance(1000)
        assert log.purge(before=LONG_AGO, archive=Slow()) == 0
        assert log.archives() == []
        assert run(log, run_id="again") == ["a"]
        assert log.purge(before=LONG_AGO, archive=archive) == 1
        assert list(archive.files) == [file.path for file in log.archives()]

    def test_archived_and_left_is_what_there_was(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """More events than fit into a page, some of them needed: each is in the log or in one file."""
        watch(log, "orders", "fulfil", key="key", retention=AWAY)
        for part in range(5):
            put(log, "orders", *(f"{part}-{n}" for n in range(130)))
            clock.advance(50)
        run(log, limit=333)
        log.claim(["orders"], "fulfil", "held", limit=17)
        log.purge(before=LONG_AGO, archive=archive)
        log.settle("fulfil", "held", ok=True)
        moved = [one.event.id for one in filed(log, archive)]
        assert len(moved) == 333
        assert sorted([*moved, *names(log)]) == sorted(f"{part}-{n}" for part in range(5) for n in range(130))
        run(log, run_id="rest")
        clock.advance(1000)
        log.purge(before=LONG_AGO, archive=archive)
        assert (len(filed(log, archive)), names(log)) == (650, [])

    # restore

    def test_restored_events_are_replayed(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """An archived event comes back under its own seq, settled, is delivered once more, and goes again."""
        watch(log, "orders", "fulfil", "audit", retention=AWAY)
        seqs = put(log, "orders", *"abc")
        at = clock()
        run(log)
        run(log, "audit")
        clock.advance(1000)
        log.purge(before=LONG_AGO, archive=archive)
        [file] = log.archives()
        assert log.restore(file, filed(log, archive)[:2]) == 2
        assert log.restore(file, filed(log, archive)[:2]) == 0
        assert states(log, "fulfil") == states(log, "audit") == {"a": State.DONE, "b": State.DONE}
        assert [stored.received_at for stored in log.scan(Scan())] == [at, at]
        assert log.backlog(["orders"]) == 0
        log.plan_replay("again", seqs[:2], dag_id="fulfil")
        clock.advance(10_000)
        assert log.purge(before=LONG_AGO, archive=archive) == 0
        got = log.claim(["orders"], "fulfil", "again")
        assert [(one.id, one.seq, one.replay) for one in got] == [
            ("a", seqs[0], "again"),
            ("b", seqs[1], "again"),
        ]
        log.settle("fulfil", "again", ok=True)
        assert log.claim(["orders"], "audit", "again") == []
        log.purge(before=LONG_AGO, archive=archive)
        assert names(log) == []
        assert [one.event.id for one in filed(log, archive)] == ["a", "b", "c"]

    def test_a_restored_event_stays_for_an_hour(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """A purge between restore and replay does not take it away."""
        watch(log, "orders", retention=AWAY)
        put(log, "orders", "a")
        clock.advance(1000)
        log.purge(before=LONG_AGO, archive=archive)
        [file] = log.archives()
        log.restore(file, filed(log, archive))
        clock.advance(3599)
        log.purge(before=LONG_AGO, archive=archive)
        assert names(log) == ["a"]
        clock.advance(2)
        log.purge(before=LONG_AGO, archive=archive)
        assert (names(log), len(filed(log, archive))) == ([], 1)

    # erasure

    def test_erase_leaves_nothing_of_a_key(self, log: Log) -> None:
        """Events, waiting ones, letters, verdicts and numbers of a key go; everything else stays."""
        ordering = Ordering(by="data", wait=10**9)
        watch(log, "orders", "fulfil", key="key", max_attempts=1)
        watch(log, "numbered", "fulfil", key="key", sequence=ordering)
        watch(log, "other", "fulfil", key="key")
        put(log, "orders", "k1", "x1", keyed=True)
        log.claim(["orders"], "fulfil", "r", limit=1)
        log.settle("fulfil", "r", ok=False)
        put(log, "other", "k2", keyed=True)
        ahead = [event(name, key=name[0]) for name in ("k5", "x5")]
        early = [event(name, key=name[0]) for name in ("k1", "x1")]
        log.append([Write(watcher="numbered", events=early, numbers=[1, 1])])
        log.append([Write(watcher="numbered", events=ahead, numbers=[5, 5])])
        verdict = Verdict(stage="filter", verdict="filtered", event=event("k9", key="k"))
        log.append([Write(watcher="orders", events=[], verdicts=[verdict])])
        letters = [number for number, _, _ in log.stored_bodies("letters")]
        verdicts = [number for number, _, _ in log.stored_bodies("verdicts", watcher="orders")]
        assert letters == [letter.id for letter in log.dead_letters()]
        assert list(log.stored_bodies("verdicts", watcher="other")) == []
        chosen: dict[str, Any] = {"letters": letters, "verdicts": verdicts}
        would = log.erase("k", dry_run=True, **chosen)
        assert would == {"letters": 1, "verdicts": 1, "events": 3, "held": 1, "sequences": 1}
        assert len(names(log)) == 5
        assert log.erase("k", **chosen) == would
        assert log.erase("k", **chosen) == {}
        assert names(log) == ["x1", "x1"]
        assert [one.event.id for one in log.held()] == ["x5"]
        assert {health.watcher: health.held for health in log.health()}["numbered"] == 1
        assert (log.dead_letters(), log.verdicts()) == ([], [])

    def test_nobody_is_stuck_after_an_erasure(self, log: Log, clock: VirtualClock) -> None:
        """Claimed, waiting, fresh and open events of the key vanish, and the Dag goes on with the rest."""
        watch(log, "orders", "fulfil", key="key", retry_delay=10.0, batch=Batching(size=6, within=60.0))
        put(log, "orders", "k1", "x1", "k2", "x2", "k3", "x3", "k4", keyed=True)
        log.claim(["orders"], "fulfil", "failed", limit=1)
        log.settle("fulfil", "failed", ok=False)
        held = log.claim(["orders"], "fulfil", "held", limit=2)
        assert log.erase("k") == {"events": 4}
        log.settle("fulfil", "held", ok=True)
        clock.advance(1000)
        log.tick()
        rest = [one.id for one in log.claim(["orders"], "fulfil", "rest", limit=9)]
        log.settle("fulfil", "rest", ok=True)
        assert sorted([*(one.id for one in held), *rest]) == ["x1", "x2", "x3"]
        assert log.backlog(["orders"]) == 0
        assert log.due(["orders"]) == []
        put(log, "orders", "k5", *"yyyyy", keyed=True)
        assert log.due(["orders"])
        assert "k5" in run(log, run_id="next")

    def test_erase_of_one_watcher(self, log: Log) -> None:
        """The same key in another watcher stays."""
        watch(log, "orders", "fulfil", key="key")
        watch(log, "other", "fulfil", key="key")
        put(log, "orders", "k1", keyed=True)
        put(log, "other", "k2", keyed=True)
        assert log.erase("k", watcher="orders") == {"events": 1}
        assert names(log) == ["k2"]

    def test_archives_are_written_anew(self, log: Log, clock: VirtualClock, archive: MemoryArchive) -> None:
        """Files lose the unwanted events, empty ones go, others are not touched, and twice is once."""
        watch(log, "orders", retention=AWAY)
        for names_ in (("k1", "x1"), ("k2",), ("y1",)):
            put(log, "orders", *names_, keyed=True)
            clock.advance(DAY)
        log.purge(before=LONG_AGO, archive=archive)
        before = {file.path for file in log.archives()}

        def unwanted(one: ArchivedEvent) -> bool:
            return one.event.key == "k"

        would = log.rewrite_archives(archive, unwanted, dry_run=True)
        assert {file.path for file in log.archives()} == before == set(archive.files)
        assert log.rewrite_archives(archive, unwanted) == would
        assert sorted(would.values()) == [1, 1]
        assert log.rewrite_archives(archive, unwanted) == {}
        assert [one.event.id for one in filed(log, archive)] == ["x1", "y1"]
        assert {file.path for file in log.archives()} == set(archive.files)
        assert len(before & set(archive.files)) == 1

    def test_a_file_that_was_written_anew_cannot_be_restored_from(
        self, log: Log, clock: VirtualClock, archive: MemoryArchive
    ) -> None:
        """What was read before an erasure does not come back after it."""
        watch(log, "orders", retention=AWAY)
        put(log, "orders", "k1", "x1", keyed=True)
        clock.advance(1000)
        log.purge(before=LONG_AGO, archive=archive)
        [file], events = log.archives(), filed(log, archive)
        log.rewrite_archives(archive, lambda one: one.event.key == "k")
        with pytest.raises(LogError, match="has changed"):
            log.restore(file, events)
        assert names(log) == []

    def test_receipts_are_kept(self, log: Log) -> None:
        """A receipt can be brought up to date, and the newest comes first."""
        first = Receipt(id="1", key_hash="h", watcher=None, requested_by="me", begun_at=1.0)
        done = msgspec.structs.replace(first, deleted={"events": 2}, finished_at=3.0)
        second = Receipt(id="2", key_hash="h", watcher="orders", requested_by="me", begun_at=2.0)
        for receipt in (first, second):
            log.put_receipt(receipt)
        log.put_receipt(done)
        assert log.receipts() == [second, done]
