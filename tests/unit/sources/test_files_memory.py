"""What the files source remembers, on a file system and a clock of the tests' own."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windsock.sources import _files_memory
from windsock.sources._files_changes import Changes
from windsock.sources._files_memory import Inventory, Memory, Watermark
from windsock.sources._files_tree import Directory, Entry, Scan, parent

SETTLE = 5.0
START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


@dataclass
class World:
    """Files in memory, a log that commits cursors, and the source's state between them."""

    memory: type[Memory] = Watermark
    settle_for: float = SETTLE
    events: tuple[str, ...] = ("created", "modified")
    now: int = START
    files: dict[str, Entry] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=lambda: {"": Directory(1, START)})
    committed: Any = None
    announced: list[tuple[str, str, tuple[int, int]]] = field(default_factory=list)
    inodes: int = 1

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.changes = Changes(self.memory(self.committed), settle=self.settle_for, events=self.events)

    def tick(self, seconds: float = 1) -> None:
        self.now += int(seconds * SECOND)

    def write(self, path: str, *, mtime: int | None = None, size: int = 1) -> None:
        self.files[path] = Entry(path, self.now if mtime is None else mtime, size, self.now)
        self.touch(parent(path))

    def touch(self, directory: str) -> None:
        if directory not in self.directories:
            self.inodes += 1
            self.directories[directory] = Directory(self.inodes, self.now)
        self.directories[directory] = self.directories[directory]._replace(ctime_ns=self.now)

    def move_directory_in(self, path: str, files: dict[str, int]) -> None:
        """A directory with files of the given change times comes from elsewhere; only its own moves."""
        self.touch(path)
        for name, ctime in files.items():
            self.files[f"{path}/{name}"] = Entry(f"{path}/{name}", ctime, 1, ctime)

    def scan(self, missed: frozenset[str] = frozenset()) -> None:
        files = {path: entry for path, entry in self.files.items() if path not in missed}
        at = self.now / SECOND
        self.changes.look(Scan(files, dict(self.directories)), began=at, ended=at)

    def take(self, limit: int, *, commit: bool = True) -> int:
        taken = self.changes.take(limit)
        if taken is None:
            return 0
        changes, cursor = taken
        if commit:
            self.announced += [(c.kind, c.entry.path, c.entry.version) for c in changes]
            self.committed = json.loads(json.dumps(cursor))
        return len(changes)

    def settle(self) -> None:
        for _ in range(4):
            self.scan()
            while self.take(1000):
                pass
            self.tick(SETTLE + 1)

    def news(self) -> list[tuple[str, str]]:
        """What was announced since this was asked last."""
        news = [(kind, path) for kind, path, _ in self.announced]
        self.announced.clear()
        return news


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock of the tests stands well after their files."""
    monkeypatch.setattr(time, "time_ns", lambda: START + 10**6 * SECOND)


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """No horizon: the watermark goes as far as it may, so that every other safeguard is needed."""
    monkeypatch.setattr(_files_memory, "HORIZON_NS", 0)
    monkeypatch.setattr(_files_memory, "HORIZON_FILES", 0)


def test_a_file_is_held_back_while_it_is_written() -> None:
    """Each change of size or mtime starts the wait again; the finished file is announced once."""
    world = World()
    for size in range(1, 6):
        world.write("a", size=size)
        world.scan()
        assert world.take(10) == 0
        world.tick(SETTLE - 1)
    world.scan()
    assert world.take(10) == 0
    world.tick(1)
    world.scan()
    world.take(10)
    assert [version[1] for _, _, version in world.announced] == [5]


def test_a_writer_that_pauses_is_announced_again_as_modified() -> None:
    """A file that settles and then grows is created first and modified later."""
    world = World()
    world.write("a", size=1)
    world.settle()
    world.write("a", size=2)
    world.settle()
    assert world.news() == [("created", "a"), ("modified", "a")]


def test_an_older_file_that_a_scan_missed_goes_first() -> None:
    """A file that one scan overlooked is still announced before the younger one which that scan saw."""
    world = World()
    world.write("b-older")
    world.tick()
    world.write("a-younger")
    world.scan(missed=frozenset({"b-older"}))
    world.tick(SETTLE - 1)
    world.scan()
    world.tick(1)
    world.scan()
    assert world.take(10) == 0
    world.tick(SETTLE)
    world.scan()
    world.take(10)
    assert world.news() == [("created", "b-older"), ("created", "a-younger")]


@pytest.mark.usefixtures("tight")
def test_the_watermark_does_not_pass_a_file_that_a_scan_missed() -> None:
    """Without any settling, a crash after the younger file was committed does not lose the older one."""
    world = World(settle_for=0)
    world.write("older")
    world.tick()
    world.write("younger")
    world.scan(missed=frozenset({"older"}))
    world.take(10)
    world.restart()
    world.settle()
    assert world.news() == [("created", "younger"), ("created", "older")]


def test_a_file_is_not_held_for_ever_by_wrong_clocks() -> None:
    """An endless stream of files that look older holds a younger one back for two settle times only."""
    world = World()
    world.write("younger")
    world.now -= 3600 * SECOND
    for turn in range(8):
        world.write(f"older-{turn}")
        at = turn * SETTLE / 2
        world.changes.look(Scan(dict(world.files), dict(world.directories)), began=at, ended=at)
        world.take(1000)
        world.tick()
    assert ("created", "younger") in world.news()


def test_chmod_is_no_news() -> None:
    """A new change time with the same size and mtime announces nothing."""
    world = World()
    world.write("a")
    world.settle()
    world.news()
    world.files["a"] = world.files["a"]._replace(ctime_ns=world.now)
    world.settle()
    assert world.news() == []


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("memory", [Watermark, Inventory])
def test_an_old_file_that_is_moved_in_while_down_is_announced(memory: type[Memory]) -> None:
    """An mtime from years ago hides nothing: what counts is when the file came here."""
    world = World(memory=memory)
    world.write("known")
    world.settle()
    world.news()
    world.write("old", mtime=1)
    world.restart()
    world.settle()
    assert world.news() == [("created", "old")]


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("memory", [Watermark, Inventory])
def test_a_directory_that_is_moved_in_while_down_is_announced(memory: type[Memory]) -> None:
    """Files that keep their old change time because their whole directory was moved are found."""
    world = World(memory=memory)
    world.write("known")
    world.write("sub/known")
    world.settle()
    world.news()
    world.move_directory_in("new", {"a": 5, "b": 6})
    world.directories["new/deep"] = Directory(99, 7)
    world.files["new/deep/c"] = Entry("new/deep/c", 7, 1, 7)
    world.write("sub/later")
    world.restart()
    world.scan()
    world.tick(SETTLE)
    world.scan()
    world.take(2)
    world.restart()
    world.settle()
    assert world.news() == [
        ("created", "new/a"),
        ("created", "new/b"),
        ("created", "new/deep/c"),
        ("created", "sub/later"),
    ]


@pytest.mark.usefixtures("tight")
def test_many_files_in_one_clock_tick() -> None:
    """Files of one and the same change time are told apart across a crash in their middle."""
    world = World()
    for n in range(2500):
        world.write(f"{n:04}")
    world.scan()
    world.tick(SETTLE)
    world.scan()
    world.take(1000)
    world.take(1000, commit=False)
    world.restart()
    world.settle()
    assert Counter(path for _, path in world.news()) == {f"{n:04}": 1 for n in range(2500)}


def test_the_cursor_stays_small() -> None:
    """After thousands of files the watermark lists only its horizon."""
    world = World()
    for n in range(3000):
        world.tick(0.001)
        world.write(f"{n % 7}/{n}")
    world.settle()
    assert len(json.dumps(world.committed)) < 8000
    world.tick(3600)
    world.write("last")
    world.settle()
    assert len(json.dumps(world.committed)) < 200


@pytest.mark.usefixtures("tight")
def test_more_directories_than_are_listed_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit of listed directories a restart may announce again, but misses no file."""
    monkeypatch.setattr(_files_memory, "MAX_DIRECTORIES", 3)
    world = World()
    for n in range(8):
        world.tick()
        world.write(f"{n}/known")
    world.settle()
    world.news()
    world.move_directory_in("new", {"a": 5})
    world.write("0/later")
    world.restart()
    world.settle()
    assert {("created", "new/a"), ("created", "0/later")} <= set(world.news())


def test_a_watermark_from_the_future_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the clock was set back, files are announced again rather than missed."""
    world = World()
    world.write("a")
    world.settle()
    world.tick(600)
    world.write("b")
    world.settle()
    world.news()
    monkeypatch.setattr(time, "time_ns", lambda: START - 3600 * SECOND)
    world.now = START - 3600 * SECOND
    world.write("after")
    world.restart()
    world.settle()
    assert ("created", "after") in world.news()


def test_deletions_while_down_are_found_when_asked_for() -> None:
    """The inventory knows what was there: a file that is gone after a restart is announced as deleted."""
    world = World(memory=Inventory, events=("created", "modified", "deleted"))
    world.write("caf\udce9\n")
    world.write("stays")
    world.settle()
    world.news()
    del world.files["caf\udce9\n"]
    world.write("stays", size=2)
    world.restart()
    world.settle()
    assert world.news() == [("deleted", "caf\udce9\n"), ("modified", "stays")]


def test_a_file_that_is_replaced_quickly_is_not_deleted() -> None:
    """Gone in one scan and back in the next is a modification."""
    world = World(memory=Inventory, events=("created", "modified", "deleted"))
    world.write("a")
    world.settle()
    world.news()
    world.scan(missed=frozenset({"a"}))
    world.tick()
    world.write("a", size=2)
    world.settle()
    assert world.news() == [("modified", "a")]


def test_only_what_was_asked_for_is_announced() -> None:
    """With created alone, modifications and deletions pass unsaid, also after a restart."""
    world = World(memory=Inventory, events=("created",))
    world.write("a")
    world.settle()
    world.write("a", size=2)
    world.restart()
    world.settle()
    del world.files["a"]
    world.write("b")
    world.settle()
    assert world.news() == [("created", "a"), ("created", "b")]


_paths = st.sampled_from(["a", "b", "c", "x/a", "x/b", "y/a", "x/z/a"])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _paths, st.sampled_from([0.0, 0.001, 1.0, 90.0])),
        st.tuples(st.just("old"), _paths, st.integers(0, 5)),
        st.tuples(st.just("move"), st.sampled_from(["m", "n", "x/o"]), st.integers(-200, 0)),
        st.tuples(st.just("scan"), st.frozensets(_paths, max_size=2), st.sampled_from([0.5, 3.0, 6.0])),
        st.tuples(st.just("take"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("crash"), st.none(), st.none()),
    ),
    max_size=40,
)


@pytest.mark.usefixtures("tight")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps, memory=st.sampled_from([Watermark, Inventory]))
def test_nothing_is_lost_and_nothing_comes_twice(steps: list[Any], memory: type[Memory]) -> None:
    """Whatever happens between scans, takes and crashes, each file that stays is announced exactly once."""
    world = World(memory=memory)
    fresh: set[str] = set()
    for step, first, second in steps:
        match step:
            case "write":
                world.tick(second)
                world.write(first, size=world.files[first].size + 1 if first in world.files else 1)
                fresh.add(first)
            case "old":
                world.tick()
                world.write(
                    first, mtime=second, size=world.files[first].size + 1 if first in world.files else 1
                )
                fresh.add(first)
            case "move":
                if first not in world.directories:
                    world.tick()
                    world.move_directory_in(first, {"f": world.now + second * SECOND - 1})
            case "scan":
                # A scan can miss only what is written while it runs.
                world.scan(missed=first & fresh)
                fresh.clear()
                world.tick(second)
            case "take":
                if world.take(first, commit=second) and not second:
                    world.restart()
            case "crash":
                world.restart()
    world.settle()
    counts = Counter((path, version) for _, path, version in world.announced)
    assert {(path, entry.version) for path, entry in world.files.items()} <= counts.keys()
    assert set(counts.values()) <= {1}
