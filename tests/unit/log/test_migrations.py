"""Logs of earlier versions are brought up to date with what they hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import Retention, WatcherSpec
from windsock.testing.archive import MemoryArchive
from windsock.testing.clock import VirtualClock


def test_what_was_purged_before_it_was_counted(tmp_path: Path) -> None:
    """A log from before the sums agrees with itself: what is not there any more was purged or archived."""
    path, clock = tmp_path / "windsock.db", VirtualClock()
    events = [Event.make({}, source="s", type="t", id=str(number)) for number in range(5)]
    filed = Retention(count=2, archive="memory://x")
    with closing(SqliteLog(path, clock=clock)) as log:
        for name, retention in (("filed", filed), ("gone", Retention(count=1)), ("kept", None)):
            log.register(WatcherSpec(name=name, kind="memory", retention=retention), source=name)
            log.append([Write(watcher=name, events=events)])
        log.purge(before=0.0, archive=MemoryArchive())
        counted = log.totals()
    with closing(sqlite3.connect(path)) as old:
        old.executescript("DROP VIEW sums; DROP TABLE forgotten; PRAGMA user_version = 10")
    with closing(SqliteLog(path, clock=clock)) as log:
        assert log.totals() == counted
        assert (counted["events"], counted["archived"], counted["purged"]) == (8, 3, 4)
        assert log.gaps(grace=300.0, older=86400.0) == []
