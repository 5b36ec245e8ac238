"""`windsock retention`, `archive` and `erase`, and what other commands do with the archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from unit.cli.conftest import Windsock
from windsock.log.sqlite import SqliteLog
from windsock.spec import Retention, WatcherSpec

Answer = Callable[..., Any]


@pytest.fixture
def away(log_file: Path, tmp_path: Path) -> Path:
    """The orders are archived once they are an hour old; the folder that they go to."""
    folder = tmp_path / "archive"
    spec = WatcherSpec(
        name="orders",
        kind="webhook",
        options={"auth": "none"},
        key="data.item",
        retention=Retention(age=3600.0, count=50, archive=str(folder)),
    )
    with closing(SqliteLog(log_file)) as log:
        log.register(spec, source="webhook:orders")
    return folder


def test_retention(windsock: Windsock, windsock_json: Answer, away: Path) -> None:
    """Each watcher with its limits and what it holds."""
    files, orders = windsock_json("retention")
    assert (files["watcher"], files["retention"], files["count"]) == ("files", None, 1)
    assert orders["retention"] == {"age": 3600.0, "count": 50, "archive": str(away)}
    assert (orders["count"], orders["archived"], orders["oldest_at"][:10]) == (3, 0, "2023-11-14")
    table = windsock("retention", "--table").output
    assert "age 3600, count 50" in table
    assert "the default age" in table


def test_archive_now(windsock: Windsock, windsock_json: Answer, away: Path) -> None:
    """What is past its limit is archived or deleted; what a Dag has not settled stays; files are listed."""
    assert windsock_json("archive") == []
    done = windsock_json("archive", "--now", "--older-than", "36500d")
    assert (done["left_the_log"], done["archived"], len(done["files"])) == (2, 2, 1)
    [file] = windsock_json("archive", "--watcher", "orders")
    assert file["path"] == done["files"][0]
    assert Path(file["path"]).is_relative_to(away)
    assert [record["event"]["id"] for record in windsock_json("events", "--watcher", "orders")] == ["o3"]
    assert windsock_json("archive", "--now")["left_the_log"] == 1
    assert windsock_json("events", "--watcher", "files") == []
    assert "o1" not in windsock("archive", "--table").output
    assert "left_the_log: 0" in windsock("archive", "--now", "--table").output


def test_archived_events_are_found(windsock: Windsock, windsock_json: Answer, away: Path) -> None:
    """Newest first, narrowed by what is given, with what each Dag made of them."""
    windsock_json("archive", "--now")
    brick, kite = windsock_json("events", "--archived")
    assert (brick["event"]["id"], kite["event"]["id"]) == ("o2", "o1")
    assert [(dag["dag_id"], dag["state"]) for dag in brick["dags"]] == [("fulfil", "dead")]
    [found] = windsock_json("events", "--archived", "--text", "KITE")
    assert found == kite
    assert windsock_json("events", "--archived", "--key", "brick", "--type", "order") == [brick]
    assert windsock_json("events", "--archived", "--limit", "1") == [brick]
    assert "fulfil: done" in windsock("events", "--archived", "--table").output
    refused = windsock("events", "--archived", "--dag", "fulfil")
    assert refused.exit_code == 2


def test_archived_events_are_replayed(windsock: Windsock, windsock_json: Answer, away: Path) -> None:
    """With --archived they are counted and delivered; without it they are not there."""
    windsock_json("archive", "--now")
    assert windsock_json("replay", "--key", "kite")["events"] == 0
    assert windsock_json("replay", "--key", "kite", "--archived")["events"] == 1
    made = windsock_json("replay", "again", "--key", "kite", "--archived", "--go")
    assert (made["planned"], made["under_way"]) == (1, 1)
    [record] = windsock_json("events", "--id", "o1")
    assert record["state"] == "pending"


def test_erase(windsock: Windsock, windsock_json: Answer, away: Path) -> None:
    """A dry run says what would go; then it goes, from log and archive, and the receipt is kept."""
    windsock_json("archive", "--now")
    would = windsock_json("erase", "--key", "kite", "--dry-run")
    assert would["dry_run"] is True
    assert len(windsock_json("events", "--archived")) == 2
    receipt = windsock_json("erase", "--key", "kite", "--by", "privacy@example.com")
    assert receipt["requested_by"] == "privacy@example.com"
    assert list(receipt["files"].values()) == [1]
    assert [one["event"]["id"] for one in windsock_json("events", "--archived")] == ["o2"]
    assert windsock_json("erase", "--receipts") == [receipt]
    assert "kite" not in json.dumps(receipt)


def test_erase_needs_a_key(windsock: Windsock) -> None:
    """Nothing is deleted by mistake."""
    result = windsock("erase")
    assert result.exit_code == 2
    assert "--key" in result.stderr
