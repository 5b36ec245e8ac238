"""The log under several real processes, and under processes that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from windsock.archive import ParquetArchive, archived
from windsock.events import Event
from windsock.log import Log, open_log
from windsock.log.records import EventQuery, Scan, State, Write
from windsock.spec import Retention, WatcherSpec

PROGRAM = Path(__file__).with_name("log_process.py")
SOURCE = "memory://processes"
PATIENCE = 60.0


class Process:
    """A process on the log; what it printed is read line by line."""

    def __init__(self, *arguments: object) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-W", "error", str(PROGRAM), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.kill()
        self._popen.communicate()

    def ready(self) -> None:
        """Wait until the process waits."""
        assert next(self.lines()) == {"ready": True}

    def go(self) -> None:
        """Let it start."""
        assert self._popen.stdin is not None
        self._popen.stdin.write("go\n")
        self._popen.stdin.flush()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it prints, until it ends; a line cut off by a kill does not count."""
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            if line.endswith("\n"):
                yield json.loads(line)

    def kill(self) -> list[dict[str, Any]]:
        """End it without a chance to do anything; what it had still printed."""
        self._popen.kill()
        rest = list(self.lines())
        self._popen.wait(PATIENCE)
        return rest

    def finish(self) -> list[dict[str, Any]]:
        """What it prints until it ends well."""
        rest = list(self.lines())
        assert self._popen.wait(PATIENCE) == 0
        return rest


@pytest.fixture(params=["sqlite", "postgres"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the URL of a log that does not exist yet, each time another."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path / uuid.uuid4().hex}.db"
    server = request.getfixturevalue("postgres")
    return lambda: str(server.url(f"p{uuid.uuid4().hex}"))


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    """The URL of the log that the processes share."""
    return new_url()


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    """The test's own handle on that log, with the watcher ``shared`` and the Dag ``fulfil`` in it."""
    log = open_log(url)
    log.register(WatcherSpec(name="shared", kind="memory", max_attempts=2, retry_delay=0.0), source=SOURCE)
    log.subscribe("shared", "fulfil")
    yield log
    log.close()


def logged(log: Log) -> list[str]:
    """The ids in the shared watcher, oldest first."""
    return [record.event.id for record in reversed(log.events(EventQuery(watcher="shared", limit=100_000)))]


def test_processes_that_start_together_make_one_log(new_url: Callable[[], str]) -> None:
    """Processes that open an empty log at the same moment all find it ready, whoever makes it."""
    urls = [new_url() for _ in range(4)]
    with ExitStack() as stack:
        processes = [stack.enter_context(Process("migrate", *urls)) for _ in range(4)]
        for _ in urls:
            for process in processes:
                process.ready()
            for process in processes:
                process.go()
            for process in processes:
                assert next(process.lines()) == {"watchers": 0}
        for process in processes:
            assert process.finish() == []


def test_processes_append_side_by_side(url: str, log: Log) -> None:
    """Appends from several processes are all there once and in each one's order; readers miss none."""
    appends, names = 25, ["x", "y", "z"]
    for name in names:
        log.register(WatcherSpec(name=f"own-{name}", kind="memory"), source=SOURCE)
    with ExitStack() as stack:
        processes = [stack.enter_context(Process("append", url, name, appends)) for name in names]
        for process in processes:
            process.ready()
        for process in processes:
            process.go()
        claimed: list[str] = []
        expected = appends * (len(names) + 1)
        deadline = time.monotonic() + PATIENCE
        for run in range(1_000_000):
            claimed += [event.id for event in log.claim(["shared"], "fulfil", f"r{run}", limit=7)]
            if len(claimed) >= expected:
                break
            assert time.monotonic() < deadline, f"{len(claimed)} of {expected} events after {PATIENCE} s"
        printed = {name: process.finish() for name, process in zip(names, processes, strict=True)}
    assert Counter(claimed) == Counter([f"{name}-{n}" for name in [*names, "common"] for n in range(appends)])
    assert claimed == logged(log)
    for name in names:
        assert [id for id in claimed if id.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(appends)]
    new = [id for lines in printed.values() for line in lines for id in line["shared"]]
    assert Counter(new) == Counter(claimed)
    own = [seq for lines in printed.values() for line in lines for seq in line["own"]]
    assert len(own) == len(set(own)) == appends * len(names)


@pytest.mark.parametrize("after", [1, 12, 60])
def test_killed_reader_loses_and_repeats_nothing(url: str, log: Log, after: int) -> None:
    """Whatever was committed when a reader is killed is there whole, and its successor completes the rest."""
    appends = 5000
    with Process("read", url, appends) as reader:
        reader.ready()
        reader.go()
        lines = reader.lines()
        printed = [next(lines) for _ in range(after)] + reader.kill()
    assert len(printed) < appends, "the reader was done before it was killed"
    # Waits for a commit that the database still had in hand when its client died.
    assert log.acquire(SOURCE, "reader", 3600) is not None
    cursor = log.cursor(SOURCE)
    assert cursor is not None
    assert cursor["n"] >= printed[-1]["n"]
    assert logged(log) == [f"{n}-{part}" for n in range(cursor["n"] + 1) for part in "abc"]
    [health] = log.health()
    assert (health.logged, health.backlog) == (3 * (cursor["n"] + 1),) * 2
    end = cursor["n"] + 20
    with Process("read", url, end) as successor:
        successor.ready()
        successor.go()
        successor.finish()
    assert logged(log) == [f"{n}-{part}" for n in range(end) for part in "abc"]


def test_killed_worker_leaves_nothing_between(url: str, log: Log) -> None:
    """Events of a killed worker are with its last run or settled; two workers never have the same event."""
    with Process("read", url, 150) as reader:
        reader.ready()
        reader.go()
        reader.finish()
    with Process("work", url, "x") as victim, Process("work", url, "y") as other:
        for process in (victim, other):
            process.ready()
        victim.go()
        theirs = victim.lines()
        printed = [next(theirs) for _ in range(30)]
        other.go()
        printed += victim.kill()
        survived = other.finish()
    done = [line["settled"] for line in printed + survived if line.get("ok")]
    once = Counter(seq for seqs in done for seq in seqs)
    assert max(once.values()) == 1
    state_of = {record.event.seq: record.state for record in log.events(EventQuery(limit=100_000))}
    assert all(state_of[seq] is State.DONE for seq in once)
    for dag_id, run_id in log.active_runs():
        log.release_run(dag_id, run_id)
    with Process("work", url, "z") as heir:
        heir.ready()
        heir.go()
        heir.finish()
    ended = Counter(record.state for record in log.events(EventQuery(limit=100_000)))
    assert set(ended) == {State.DONE, State.DEAD}
    assert ended.total() == 450
    assert len(log.dead_letters(limit=10_000)) == ended[State.DEAD]
    assert log.backlog(["shared"]) == 0


@pytest.mark.parametrize("after", [1, 2, 3, 8])
def test_killed_archiver_loses_and_repeats_nothing(
    url: str, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed around a file: every event is in the log or in one stored file, and the next one goes on."""
    folder = tmp_path / "archive"
    spec = WatcherSpec(name="away", kind="memory", retention=Retention(age=0.0, archive=str(folder)))
    log.register(spec, source=SOURCE)
    names = [str(n) for n in range(4000)]
    events = [Event(id=name, source="process", type="tested") for name in names]
    log.append([Write(watcher="away", events=events)])
    with Process("archive", url) as archiver:
        archiver.ready()
        archiver.go()
        lines = archiver.lines()
        printed = [next(lines) for _ in range(after)] + archiver.kill()
    assert not any("moved" in line for line in printed), "the archiver was done before it was killed"

    archive = ParquetArchive()

    def everything() -> list[str]:
        here = [stored.event.id for stored in log.scan(Scan(watchers=["away"]))]
        return sorted([*here, *(stored.event.id for _, stored in archived(log, archive, Scan()))])

    assert everything() == sorted(names)
    later = time.time() + 1000.0
    monkeypatch.setattr(log, "_clock", lambda: later)
    log.purge(before=0.0, archive=archive)
    assert list(log.scan(Scan(watchers=["away"]))) == []
    assert everything() == sorted(names)
    on_disk = {str(path) for path in folder.rglob("*") if path.is_file()}
    assert on_disk == {file.path for file in log.archives()}
