"""Archived events read again, in order, and replayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.archive import archived
from windsock.events import Event
from windsock.log.archive import ArchiveError
from windsock.log.records import Scan, Write
from windsock.log.sqlite import SqliteLog
from windsock.recovery import choose, preview, replay
from windsock.spec import Retention, WatcherSpec
from windsock.testing.archive import MemoryArchive
from windsock.testing.clock import VirtualClock

AWAY = Retention(age=100.0, archive="mem:///away")


@pytest.fixture
def clock() -> VirtualClock:
    """The time that the log sees."""
    return VirtualClock()


@pytest.fixture
def archive() -> MemoryArchive:
    """Where archived events are."""
    return MemoryArchive()


@pytest.fixture
def log(clock: VirtualClock, archive: MemoryArchive) -> Iterator[SqliteLog]:
    """Events a to f, of which a, b, d and e are archived in two files that overlap; c and f are redriven."""
    log = SqliteLog(":memory:", clock=clock)
    for name, asset in (("orders", "stock"), ("parcels", "post")):
        log.register(
            WatcherSpec(name=name, kind="memory", key="key", retention=AWAY), source="m", asset=asset
        )
        log.subscribe(name, "fulfil")
    for name in "abcdef":
        send(log, "parcels" if name == "d" else "orders", name)
        clock.advance(1)
    for event in log.claim(["orders", "parcels"], "fulfil", "one", limit=100):
        if event.id in "cf":
            log.dead_letter("fulfil", "one", event.seq or 0, "later")
    log.settle("fulfil", "one", ok=True)
    log.redrive([letter.id for letter in log.dead_letters()])
    clock.advance(200)
    log.purge(before=0.0, archive=archive)
    assert stored(log) == ["c", "f"]
    yield log
    log.close()


def send(log: SqliteLog, watcher: str, name: str) -> None:
    """One event."""
    log.append([Write(watcher=watcher, events=[Event(id=name, source="s", type=f"t.{name}", key=name)])])


def stored(log: SqliteLog) -> list[str]:
    """What is in the log."""
    return [one.event.id for one in log.scan(Scan())]


def read(log: SqliteLog, archive: MemoryArchive, *, newest: bool = False, **query: object) -> list[str]:
    """What is found in the archive."""
    wanted = Scan(**query)  # type: ignore[arg-type]
    return [one.event.id for _, one in archived(log, archive, wanted, newest_first=newest)]


def test_in_order(log: SqliteLog, archive: MemoryArchive) -> None:
    """The events of several files come by seq, forwards and backwards."""
    assert len(log.archives()) == 2
    assert read(log, archive) == ["a", "b", "d", "e"]
    assert read(log, archive, newest=True) == ["e", "d", "b", "a"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"watchers": ["parcels"]}, ["d"]),
        ({"asset": "stock"}, ["a", "b", "e"]),
        ({"asset": "stock", "watchers": ["parcels"]}, []),
        ({"key": "b"}, ["b"]),
        ({"type": "t.e"}, ["e"]),
        ({"ids": ["a", "c"]}, ["a"]),
        ({"seqs": [1, 4]}, ["a", "d"]),
        ({"after": 2}, ["d", "e"]),
        ({"up_to": 4}, ["a", "b", "d"]),
        ({"since": 1_700_000_003.0}, ["d", "e"]),
        ({"until": 1_700_000_003.0}, ["a", "b"]),
        ({"limit": 3}, ["a", "b", "d"]),
    ],
)
def test_narrowed(
    log: SqliteLog, archive: MemoryArchive, query: dict[str, object], wanted: list[str]
) -> None:
    """Each field of the query leaves out what it does not name."""
    assert read(log, archive, **query) == wanted


def test_a_file_that_was_changed_is_refused(log: SqliteLog, archive: MemoryArchive) -> None:
    """What somebody wrote over an archive file is not taken for events."""
    for path in archive.files:
        archive.files[path] += b" "
    with pytest.raises(ArchiveError, match="SHA-256"):
        read(log, archive)


def test_log_and_archive_together(log: SqliteLog, archive: MemoryArchive) -> None:
    """Choosing with an archive gives every event once, in order; without it, what is in the log."""
    assert [one.event.id for one in choose(log, Scan(), archive=archive)] == list("abcdef")
    assert [one.event.id for one in choose(log, Scan())] == ["c", "f"]
    assert [one.event.id for one in choose(log, Scan(limit=3), archive=archive)] == ["a", "b", "c"]
    assert preview(log, Scan(), 'key != "a"', archive=archive).events == 5
    for file in log.archives():
        log.restore(file, list(archive.unpack(archive.get(file.path), file.watcher)))
    assert [one.event.id for one in choose(log, Scan(), archive=archive)] == list("abcdef")


def test_archived_events_are_replayed(log: SqliteLog, archive: MemoryArchive) -> None:
    """A replay that looks into the archive delivers archived events, marked, and the same one only once."""
    log.claim(["orders"], "fulfil", "rest", limit=100)
    log.settle("fulfil", "rest", ok=True)
    for attempt in ("first", "second"):
        made = replay(log, "again", Scan(watchers=["orders"]), 'key != "b"', archive=archive)
        assert made.planned == 4
        got = [(one.id, one.replay) for one in log.claim(["orders"], "fulfil", attempt, limit=100)]
        log.settle("fulfil", attempt, ok=True)
        assert got == ([(name, "again") for name in "acef"] if attempt == "first" else [])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_archived_and_left_is_what_there_was(data: st.DataObject) -> None:
    """Whatever is appended, settled, forgotten, restored in any order: each event is here or there, once."""
    clock, archive = VirtualClock(), MemoryArchive()
    log = SqliteLog(":memory:", clock=clock)
    limits = data.draw(
        st.sampled_from([{"age": 50.0}, {"count": 5}, {"bytes": 400}, {"age": 80.0, "count": 8}])
    )
    spec = WatcherSpec(name="orders", kind="memory", retention=Retention(archive="mem:///a", **limits))
    log.register(spec, source="m")
    log.subscribe("orders", "fulfil")
    sent: list[str] = []
    for step in range(data.draw(st.integers(5, 25))):
        action = data.draw(st.sampled_from(["send", "send", "run", "fail", "purge", "restore", "wait"]))
        if action == "send":
            new = [f"{step}-{n}" for n in range(data.draw(st.integers(1, 7)))]
            sent += new
            log.append([Write(watcher="orders", events=[Event(id=n, source="s", type="t") for n in new])])
        elif action in ("run", "fail"):
            log.claim(["orders"], "fulfil", f"r{step}", limit=data.draw(st.integers(1, 9)))
            log.settle("fulfil", f"r{step}", ok=action == "run")
        elif action == "purge":
            log.purge(before=0.0, archive=archive)
        elif action == "restore":
            for file in log.archives()[:1]:
                log.restore(file, list(archive.unpack(archive.get(file.path), "orders")))
        else:
            clock.advance(data.draw(st.sampled_from([1.0, 40.0, 4000.0, 90_000.0])))
        away = read(log, archive)
        assert len(away) == len(set(away))
        assert sorted({*away, *stored(log)}) == sorted(sent)
        assert [one.event.id for one in choose(log, Scan(), archive=archive)] == sent
        assert set(archive.files) == {file.path for file in log.archives()}
    log.close()
