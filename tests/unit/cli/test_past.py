"""`windsock diff`, `forecast`, `reconcile` and `subscription`, as a person types them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unit.cli.conftest import Windsock
from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog

Json = Callable[..., Any]


@pytest.fixture
def recent(log_file: Path) -> None:
    """Three orders that came just now."""
    with closing(SqliteLog(log_file)) as log:
        events = [
            Event.make({"item": f"kite {n}", "n": n}, source="s", type="order", id=f"n{n}") for n in (1, 2, 3)
        ]
        log.append([Write(watcher="orders", events=events)])


@pytest.fixture
def new_yaml(tmp_path: Path) -> Path:
    """The orders declared anew, with a filter."""
    path = tmp_path / "watchers.yaml"
    path.write_text("watchers:\n  orders:\n    kind: webhook\n    auth: none\n    where: data.n > 1\n")
    return path


@pytest.mark.usefixtures("recent")
def test_diff(windsock: Windsock, new_yaml: Path) -> None:
    """JSON, text and Markdown; the exit code only on demand; other watchers of the log are left out."""
    result = windsock("diff", "registered", str(new_yaml), "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["changed"]
    assert (found["diff"]["removed"], found["diff"]["watchers"][0]["changes"]) == ([], {"newly filtered": 1})
    assert windsock("diff", "registered", str(new_yaml), "--exit-code").exit_code == 1
    assert windsock("diff", str(new_yaml), str(new_yaml), "--exit-code").exit_code == 0
    assert "first: n1 at" in windsock("diff", "registered", str(new_yaml), "--table").stdout
    assert windsock("diff", "registered", str(new_yaml), "--markdown").stdout.startswith("### Windsock")
    wrong = windsock("diff", "registered", str(new_yaml), "--watcher", "nobody")
    assert (wrong.exit_code, "has a watcher 'nobody'" in wrong.stderr) == (2, True)
    assert windsock("diff", "registered", "missing.yaml").exit_code == 2


@pytest.mark.usefixtures("recent")
def test_forecast(windsock: Windsock, windsock_json: Json, new_yaml: Path) -> None:
    """Of what the log knows, or of a file; a watcher that is not there is an error."""
    found = {one["watcher"]: one for one in windsock_json("forecast")}
    assert found["orders"]["events_per_day"] == 3
    [other] = windsock_json("forecast", str(new_yaml), "--days", "1")
    assert other["events_per_day"] == 2
    assert "a day" in windsock("forecast", "--watcher", "orders", "--table").stdout
    assert windsock("forecast", "--watcher", "nobody").exit_code == 2


def test_reconcile(windsock: Windsock, log_file: Path) -> None:
    """Exit code 1 while something does not agree, 0 after the repair; a named log asks no Airflow."""
    with closing(SqliteLog(log_file)) as log:
        log.heartbeat("webhook:orders", "host:1", "running")
        log.move("orders", "fulfil", "latest")
        for announcement in log.due(["orders"]):
            log.announced(announcement)
    clean = windsock("reconcile", "--json")
    assert clean.exit_code == 0, clean.output
    assert json.loads(clean.stdout)["report"]["notes"] == [
        "runs were not compared: the log was named by hand (see --airflow)"
    ]
    with closing(sqlite3.connect(log_file)) as file, file:
        file.execute("UPDATE watchers SET dead = 0")
    broken = windsock("reconcile", "--table")
    assert (broken.exit_code, "counts the letters" in broken.stdout) == (1, True)
    assert "repaired: orders" in windsock("reconcile", "--repair", "--table").stdout
    assert windsock("reconcile").exit_code == 0
    assert windsock("reconcile", "--grace", "soon").exit_code == 2


def test_subscription(windsock: Windsock, windsock_json: Json) -> None:
    """A dry run moves nothing; then the place is moved; a stranger is an error."""
    assert [place["pending"] for place in windsock_json("subscription", "list", "--dag", "fulfil")] == [1]
    move = ("subscription", "move", "fulfil", "--watcher", "orders", "--to")
    dry = windsock_json(*move, "latest", "--dry-run")
    assert (dry["skipped"], dry["dry_run"]) == (1, True)
    assert windsock_json("subscription", "list")[0]["pending"] == 1
    assert windsock_json(*move, "latest")["skipped"] == 1
    assert windsock_json("subscription", "list")[0]["pending"] == 0
    assert "windsock replay" in windsock(*move, "earliest", "--table").stdout
    assert windsock(*move, "2h", "--table").exit_code == 0
    assert windsock(*move, "someday").exit_code == 2
    stranger = windsock("subscription", "move", "nobody", "--watcher", "orders", "--to", "latest")
    assert (stranger.exit_code, "has no place" in stranger.stderr) == (2, True)
    assert "fulfil" in windsock("subscription", "list", "--table").stdout


def test_a_moved_event_is_explained(windsock: Windsock, windsock_json: Json) -> None:
    """An event that was passed over is not said to have succeeded."""
    windsock_json("subscription", "move", "fulfil", "--watcher", "orders", "--to", "latest")
    explained = windsock_json("explain", "o3")
    assert explained["ways"][0]["next"] == "fulfil: nothing, the Dag's place was moved past it"
