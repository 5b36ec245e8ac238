"""Which log a command reads, and what it says when there is none."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windsock.cli import app
from windsock.cli.reading import masked


def refused(*arguments: str) -> str:
    """The one line with which the command refuses."""
    result = CliRunner().invoke(app, list(arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("windsock: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_the_log_is_found_by_a_path(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is as good as a URL."""
    monkeypatch.chdir(log_file.parent)
    result = CliRunner().invoke(app, ["events", "--log", "windsock.db"])
    assert len(json.loads(result.stdout)) == 4


def test_the_log_is_found_by_the_environment(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WINDSOCK_LOG names the log when --log does not."""
    monkeypatch.setenv("WINDSOCK_LOG", str(log_file))
    assert json.loads(CliRunner().invoke(app, ["status"]).stdout)["log"] == f"sqlite:///{log_file}"


def test_the_log_is_found_in_airflows_configuration(log_file: Path) -> None:
    """Without --log it is the log of the Airflow at hand, and only JSON is on standard output."""
    command = [sys.executable, "-m", "windsock.cli", "events", "--limit", "1"]
    env = {"AIRFLOW_HOME": str(log_file.parent), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert [record["event"]["id"] for record in json.loads(result.stdout)] == ["f1"]


def test_a_missing_log_is_not_created(tmp_path: Path) -> None:
    """A command that only looks says that there is nothing, and leaves nothing behind."""
    missing = tmp_path / "there" / "windsock.db"
    assert f"there is no event log at {missing}" in refused("status", "--log", str(missing))
    assert list(tmp_path.iterdir()) == []


def test_a_strangers_database_is_not_touched(tmp_path: Path) -> None:
    """A SQLite file that is no log, such as Airflow's own, is refused and stays as it was."""
    path = tmp_path / "airflow.db"
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("CREATE TABLE dag_run (id INTEGER)")
    before = path.read_bytes()
    assert "not an event log" in refused("events", "--log", str(path))
    assert path.read_bytes() == before


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """Any other file is refused in one line, too."""
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be looked at" * 10)
    assert "cannot be read as an event log" in refused("dlq", "list", "--log", str(tmp_path / "notes.txt"))


@pytest.mark.parametrize("url", ["mysql://somewhere/else", "postgresql://nobody@127.0.0.1:1/nothing"])
def test_a_log_that_cannot_be_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown kind of log and a server that is not there are one line each, without a traceback."""
    monkeypatch.setattr("windsock.log.postgres._CONNECT_SECONDS", 0.2)
    assert "log" in refused("status", "--log", url)


def test_passwords_are_not_shown() -> None:
    """A log's URL is shown without its password."""
    assert masked("postgresql://me:s3cret@host/db") == "postgresql://me:***@host/db"
    assert masked("sqlite:////a:b/c@d.db") == "sqlite:////a:b/c@d.db"
