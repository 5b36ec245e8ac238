"""`windsock demo` as a user starts it: a process of its own, twice in the same place, stopped by a signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from windsock.log.records import EventQuery
from windsock.log.sqlite import SqliteLog
from windsock.testing.processes import free_port

pytestmark = pytest.mark.live

PATIENCE = 600.0


@dataclass
class Visit:
    """One finished `windsock demo --once --json`."""

    code: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        (line,) = self.stdout.splitlines()
        return dict(json.loads(line))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One place for all demos of this module."""
    return tmp_path_factory.mktemp("demo") / "home"


@pytest.fixture(scope="module")
def first(home: Path) -> Visit:
    """The first start."""
    return visit(home, free_port())


def command(home: Path, port: int, *options: str) -> list[str]:
    """The command line of a demo."""
    return [sys.executable, "-m", "windsock.cli", "demo", "--home", str(home), "--port", str(port), *options]


def visit(home: Path, port: int) -> Visit:
    """Run the demo once, to its end."""
    done = subprocess.run(
        command(home, port, "--once", "--json"), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return Visit(done.returncode, done.stdout, done.stderr)


def left_behind(home: Path) -> list[psutil.Process]:
    """Live processes that work in the demo's place, as all of Airflow does (some rename themselves)."""
    mine = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(home):
                mine.append(process)
        except psutil.Error:
            continue  # it has ended, or belongs to somebody else
    return mine


def announcements(home: Path) -> list[dict[str, Any]]:
    """What Windsock told Airflow, oldest first."""
    with closing(sqlite3.connect(home / "airflow" / "airflow.db")) as database:
        rows = database.execute("SELECT extra FROM asset_event ORDER BY id").fetchall()
    return [json.loads(extra)["payload"]["windsock"] for (extra,) in rows]


def logged(home: Path) -> list[int]:
    """The seqs of all events in the log."""
    with closing(SqliteLog(home / "airflow" / "windsock.db")) as log:
        return [record.event.seq or 0 for record in log.events(EventQuery(limit=1000))]


@contextmanager
def busy_port() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_once_counts_every_event_and_leaves_no_process(home: Path, first: Visit) -> None:
    """24 events through two doors end once each, one of them set aside; the exit code says so."""
    assert first.code == 0, first.stderr
    summary = first.summary
    assert list(summary) == [
        *("sent", "logged", "announced", "runs", "done", "dead", "lost", "duplicated", "seconds")
    ]
    assert (summary["sent"], summary["logged"], summary["announced"]) == (24, 24, 24)
    assert (summary["done"], summary["dead"]) == (23, 1)
    assert (summary["lost"], summary["duplicated"]) == (0, 0)
    assert summary["runs"] >= 3
    assert len(logged(home)) == 24
    assert left_behind(home) == []


def test_a_second_start_goes_on_with_what_is_there(home: Path, first: Visit) -> None:
    """No second migration, no old event announced again, new events processed; a busy port is avoided."""
    migrated = (home / "logs" / "migrate.log").stat()
    last, told = max(logged(home)), len(announcements(home))
    with busy_port() as port:
        second = visit(home, port)
    assert second.code == 0, second.stderr
    assert f"Port {port} is busy: taking " in second.stderr
    assert (second.summary["sent"], second.summary["done"], second.summary["dead"]) == (24, 23, 1)
    assert len(logged(home)) == 48
    assert (home / "logs" / "migrate.log").stat().st_mtime_ns == migrated.st_mtime_ns
    everything = announcements(home)
    assert all(note["first"] > last for note in everything[told:])
    assert len({note["announcement"] for note in everything}) == len(everything)
    assert left_behind(home) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything(home: Path, first: Visit, number: signal.Signals) -> None:
    """Ctrl-C while it runs, or SIGTERM while it starts: exit code 0 and no process is left."""
    demo = subprocess.Popen(
        command(home, free_port()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    mark = "Your turn" if number == signal.SIGINT else "database is ready"
    watchdog = threading.Timer(PATIENCE, demo.kill)
    watchdog.start()
    try:
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if mark in line:
                assert left_behind(home)
                demo.send_signal(number)
        assert demo.wait() == 0, "".join(lines)
    finally:
        watchdog.cancel()
        demo.kill()
        demo.stdout.close()
    assert any("Stopped." in line for line in lines)
    assert left_behind(home) == []
