"""`windsock audit` and `windsock project`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from windsock.cli import app
from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock

MODELS = """
from windsock.sourcing import Projection

def count(row, event):
    return (row or 0) + 1

numbers = Projection("numbers", count, key="data.who", watchers=["orders"])
nothing = 5
"""

Run = Callable[..., Result]


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """A log in which two subjects have a history, and a Dag has taken it."""
    path = tmp_path / "windsock.db"
    with closing(SqliteLog(path, clock=VirtualClock(1_700_000_000.0))) as log:
        log.register(WatcherSpec(name="orders", kind="webhook", history=True), source="s", asset="shop")
        log.subscribe("orders", "fulfil")
        told = [("o1", "ada"), ("o2", "bob"), ("o1", "ada")]
        events = [
            Event.make({"who": who}, source="shop", type="paid", id=f"e{n}", subject=subject)
            for n, (subject, who) in enumerate(told)
        ]
        log.append([Write(watcher="orders", events=events)])
        first, *_ = log.claim(["orders"], "fulfil", "r1")
        log.dead_letter("fulfil", "r1", first.seq or 0, "not today")
        log.settle("fulfil", "r1", ok=True)
    return path


@pytest.fixture
def run(log_file: Path) -> Run:
    """Runs a command on that log."""
    return lambda *given: CliRunner().invoke(app, [*given, "--log", str(log_file)])


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that declares a projection."""
    (tmp_path / "sourcing_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "sourcing_models"


def told(result: Result) -> Any:
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_audit_tells_the_story_of_a_subject(run: Run) -> None:
    """Into a pipe goes JSON: each event with what each Dag made of it; a page at a time."""
    first, second = told(run("audit", "o1"))
    assert (first["event_id"], first["source"], first["data"]) == ("e0", "shop", {"who": "ada"})
    assert first["received_at"] == "2023-11-14T22:13:20+00:00"
    [dag] = first["dags"]
    assert (dag["dag_id"], dag["state"], dag["run_id"], dag["reason"]) == (
        "fulfil",
        "dead",
        "r1",
        "not today",
    )
    assert second["dags"][0]["state"] == "done"
    assert [entry["event_id"] for entry in told(run("audit", "o1", "--after", "1"))] == ["e2"]
    assert [entry["event_id"] for entry in told(run("audit", "o1", "--limit", "1"))] == ["e0"]


def test_audit_as_a_table(run: Run) -> None:
    """On a terminal it is a table, and a subject without events is a sentence."""
    shown = run("audit", "o1", "--table").stdout
    assert all(word in shown for word in ("e0", "paid", "fulfil", "dead", "done", "orders"))
    assert "No event of 'o9'" in run("audit", "o9", "--table").stdout


def test_audit_of_a_log_without_a_history(tmp_path: Path) -> None:
    """It says what is missing."""
    path = tmp_path / "bare.db"
    SqliteLog(path).close()
    result = CliRunner().invoke(app, ["audit", "o1", "--log", str(path)])
    assert result.exit_code == 2
    assert "history=True" in result.stderr


def test_a_projection_is_planned_updated_and_shown(run: Run, models: str) -> None:
    """A dry run changes nothing; afterwards rows are found by its name alone."""
    target = f"{models}:numbers"
    plan = {"name": "numbers", "rebuild": True, "after": 0, "events": 3}
    assert told(run("project", target, "--update", "--dry-run")) == plan
    assert told(run("project")) == []
    assert told(run("project", target, "--update")) == {"ada": 2, "bob": 1}
    assert told(run("project", target, "--update", "--dry-run")) == plan | {
        "rebuild": False,
        "after": 3,
        "events": 0,
    }
    assert told(run("project", "numbers", "--prefix", "b")) == {"bob": 1}
    assert told(run("project", "numbers", "--key", "ada")) == {"ada": 2}
    assert told(run("project", target, "--rebuild", "--after", "ada")) == {"bob": 1}
    [view] = told(run("project"))
    assert (view["name"], view["position"], view["events"]) == ("numbers", 3, 3)
    assert "numbers" in run("project", "--table").stdout
    assert "ada" in run("project", "numbers", "--table").stdout
    assert "would count 0 events" in run("project", target, "--update", "--dry-run", "--table").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["unknown"], 2, "there is no read model 'unknown'"),
        (["numbers", "--update"], 2, "name where it is declared"),
        (["sourcing_models:nothing", "--update"], 2, "is not a Projection"),
        (["sourcing_models:missing", "--update"], 2, "cannot import sourcing_models:missing: AttributeError"),
        (["no_such_module:x"], 2, "cannot import no_such_module:x"),
    ],
)
@pytest.mark.usefixtures("models")
def test_mistakes_are_told_in_one_line(run: Run, arguments: list[str], code: int, message: str) -> None:
    """What is not there, or is something else."""
    result = run("project", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_a_row_that_is_not_there(run: Run, models: str) -> None:
    """Is told, with an exit code of its own."""
    run("project", f"{models}:numbers", "--update")
    result = run("project", "numbers", "--key", "nobody")
    assert result.exit_code == 1
    assert "no row 'nobody'" in result.stderr
