"""`windsock status` and `windsock dlq list`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from typer.testing import Result


def test_status_as_json(windsock_json: Callable[..., Any]) -> None:
    """Into a pipe goes one object with the log, every watcher's health and every subscription."""
    status = windsock_json("status")
    assert status["log"].startswith("sqlite:///")
    files, orders = status["watchers"]
    assert (files["watcher"], files["state"], files["error"]) == (
        "files",
        "backoff",
        "the directory is not there",
    )
    assert (orders["watcher"], orders["logged"], orders["dead"], orders["backlog"]) == ("orders", 3, 1, 1)
    assert orders["heartbeat_at"] == "2023-11-14T22:13:20+00:00"
    (place,) = status["subscriptions"]
    assert {name: place[name] for name in ("dag_id", "watcher", "active", "pending", "claimed", "dead")} == {
        "dag_id": "fulfil",
        "watcher": "orders",
        "active": True,
        "pending": 1,
        "claimed": 0,
        "dead": 1,
    }


def test_status_as_tables(windsock: Callable[..., Result]) -> None:
    """On a terminal there is a table of the watchers, with their errors, and one of the subscriptions."""
    result = windsock("status", "--table")
    assert result.exit_code == 0
    watchers, _, subscriptions = result.stdout.partition("Subscriptions")
    assert "backoff" in watchers
    assert "the directory is not there" in watchers
    assert "fulfil" in subscriptions
    assert "active" in subscriptions


def test_dead_letters_as_json(windsock_json: Callable[..., Any]) -> None:
    """Every dead letter has its reason, and its body as JSON or, if it is not even text, in base64."""
    broken, brick = windsock_json("dlq", "list")
    assert (brick["category"], brick["reason"], brick["dag_id"]) == (
        "rejected",
        "bricks do not fly",
        "fulfil",
    )
    assert brick["body"]["data"] == {"item": "brick"}
    assert (broken["category"], broken["stage"]) == ("invalid", "parse")
    assert base64.b64decode(broken["body_base64"]) == b"\xff\x00"
    assert "body" not in broken


def test_dead_letters_can_be_narrowed(windsock_json: Callable[..., Any]) -> None:
    """`--watcher` and `--limit` leave the newest ones of one watcher."""
    assert [letter["watcher"] for letter in windsock_json("dlq", "list", "--watcher", "orders")] == ["orders"]
    assert [letter["watcher"] for letter in windsock_json("dlq", "list", "--limit", "1")] == ["files"]


def test_dead_letters_as_a_table(windsock: Callable[..., Result]) -> None:
    """The table says why, in which Dag and run."""
    result = windsock("dlq", "list", "--table")
    line = next(line for line in result.stdout.splitlines() if "bricks do not fly" in line)
    assert "fulfil" in line
    assert "09:16:53…3SGe" in line
    nothing = windsock("dlq", "list", "--table", "--watcher", "nobody")
    assert nothing.stdout.startswith("No dead letters in sqlite:///")
