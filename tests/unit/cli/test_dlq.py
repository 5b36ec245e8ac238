"""`windsock dlq`, `windsock replay`, `windsock explain` and `windsock postgres`, as a person types them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unit.cli.conftest import Windsock
from windsock.cli import app
from windsock.log.sqlite import SqliteLog


def answer(windsock: Windsock, *arguments: str) -> Any:
    """The JSON that a command prints."""
    result = windsock(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def letters(windsock: Windsock, *arguments: str) -> list[Any]:
    """The letters that are listed."""
    found: list[Any] = answer(windsock, "dlq", "list", *arguments)
    return found


def test_list_narrows(windsock: Windsock) -> None:
    """Options leave out what they do not name."""
    assert len(letters(windsock)) == 2
    [rejected] = letters(windsock, "--category", "rejected")
    assert rejected["reason"] == "bricks do not fly"
    assert letters(windsock, "--text", "nothing like it") == []


def test_an_error_is_one_line_in_the_list(windsock: Windsock, log_file: Path) -> None:
    """The table shows what a traceback ends with; `dlq show` has all of it."""
    traceback = "Traceback (most recent call last):\n  File \"ship.py\", line 3\nKeyError: 'address'\n"
    with closing(SqliteLog(log_file)) as log:
        log.claim(["orders"], "fulfil", "second")
        log.note_failure("fulfil", "second", "ship", error=traceback)
        log.settle("fulfil", "second", ok=False, reason="see the run")
    listed = windsock("dlq", "list", "--category", "poison", "--table").stdout
    assert ("KeyError: 'address'" in listed, "ship.py" in listed) == (True, False)
    [letter] = letters(windsock, "--category", "poison")
    assert answer(windsock, "dlq", "show", str(letter["id"]))["error"] == traceback


def test_show(windsock: Windsock) -> None:
    """One letter whole; a stranger is an error."""
    [letter] = letters(windsock, "--watcher", "orders")
    shown = answer(windsock, "dlq", "show", str(letter["id"]))
    assert shown["event_id"] == "o2"
    assert shown["first_at"] == shown["at"]
    result = windsock("dlq", "show", "999")
    assert (result.exit_code, "no dead letter 999" in result.stderr) == (2, True)


def test_redrive_and_discard(windsock: Windsock) -> None:
    """A dry run changes nothing; a redriven letter is closed; what cannot be read stays and is an error."""
    [order] = letters(windsock, "--watcher", "orders")
    chosen = ("--watcher", "orders")
    assert answer(windsock, "dlq", "redrive", *chosen, "--dry-run") == {"would_redrive": [order["id"]]}
    assert len(letters(windsock)) == 2
    assert answer(windsock, "dlq", "redrive", str(order["id"]))["delivered"] == 1
    [broken] = letters(windsock)
    result = windsock("dlq", "redrive", str(broken["id"]), "--json")
    assert result.exit_code == 1
    assert "not JSON" in json.loads(result.stdout)["failed"][str(broken["id"])]
    assert answer(windsock, "dlq", "discard", str(broken["id"])) == {"discarded": 1}
    assert letters(windsock) == []
    assert {letter["state"] for letter in letters(windsock, "--closed")} == {"redriven", "discarded"}


@pytest.mark.parametrize("command", ["redrive", "discard", "export"])
def test_a_letter_that_is_not_open(windsock: Windsock, command: str) -> None:
    """One that is unknown or closed is named; if there is no other, that is an error and nothing is done."""
    order, other = (letter["id"] for letter in letters(windsock))
    windsock("dlq", "discard", str(other))
    for ids in (["999"], ["999", str(other)]):
        result = windsock("dlq", command, *ids)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"no open dead letter {', '.join(sorted(ids, key=int))}: unknown" in result.stderr
    result = windsock("dlq", command, "999", str(order), *(["--dry-run"] if command != "export" else []))
    assert (result.exit_code, "no open dead letter 999: unknown" in result.stderr) == (0, True)
    assert str(order) in result.stdout


@pytest.mark.parametrize("command", ["redrive", "discard"])
def test_nothing_is_chosen_by_mistake(windsock: Windsock, command: str) -> None:
    """Without ids and without a filter, nothing happens."""
    result = windsock("dlq", command)
    assert (result.exit_code, "name letters by their ids" in result.stderr) == (2, True)
    assert len(letters(windsock)) == 2


def test_export(windsock: Windsock) -> None:
    """One JSON object a line, bodies that are no text in base64."""
    lines = [json.loads(line) for line in windsock("dlq", "export").stdout.splitlines()]
    assert {line["watcher"] for line in lines} == {"orders", "files"}
    assert {line.get("body_base64") for line in lines} == {None, "/wA="}


def test_replay(windsock: Windsock) -> None:
    """A preview by default; with --go the deliveries are made, and the list shows them."""
    seen = answer(windsock, "replay", "again", "--event", "o1")
    assert (seen["events"], seen["runs"]) == (1, {"fulfil": 1})
    assert answer(windsock, "replay") == []
    assert answer(windsock, "replay", "again", "--event", "o1", "--go")["made"] == 1
    [made] = answer(windsock, "replay")
    assert (made["id"], made["under_way"]) == ("again", 1)
    for wrong, message in ((("again",), "choose events"), (("--event", "o1", "--go"), "needs a name")):
        result = windsock("replay", *wrong)
        assert (result.exit_code, message in result.stderr) == (2, True)


def test_explain(windsock: Windsock) -> None:
    """An event's way as text and as JSON, a Dag's reasons, and one of the two has to be named."""
    assert answer(windsock, "explain", "o1")["ways"][0]["next"] == "fulfil: nothing, its run succeeded"
    assert "bricks do not fly" in windsock("explain", "o2", "--table").stdout
    assert answer(windsock, "explain", "--dag", "fulfil")["dag_id"] == "fulfil"
    assert windsock("explain").exit_code == 2


def test_postgres_trigger_needs_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer is an error in one line, without the password."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgres://me:s3cr3t@127.0.0.1:1/shop")
    result = CliRunner().invoke(app, ["postgres", "install-trigger", "orders", "--conn-id", "shop"])
    assert result.exit_code == 2
    assert "s3cr3t" not in result.output
    assert "127.0.0.1" in result.stderr
