"""`windsock schema check`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest
from typer.testing import CliRunner, Result

from windsock.cli import app


class OrderV1(pydantic.BaseModel):
    id: str


class OrderV2(OrderV1):
    total: float


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command where ``old.json`` and ``new.json`` are."""
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(json.dumps({"type": "object", "properties": {"a": {"type": "number"}}}))
    Path("new.json").write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    return lambda *arguments: CliRunner().invoke(app, ["schema", "check", *arguments])


def test_files(check: Any) -> None:
    """What breaks is JSON in a pipe, with exit code 1; nothing breaks the other way."""
    result: Result = check("old.json", "new.json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["compatible"] is False
    assert [(one["direction"], one["path"]) for one in answer["breaks"]] == [("backward", "data.a")]
    result = check("old.json", "new.json", "--mode", "forward")
    assert (result.exit_code, json.loads(result.stdout)["breaks"]) == (0, [])


def test_table(check: Any) -> None:
    """On a terminal it is a table, or one sentence."""
    assert "it no longer allows number" in check("old.json", "new.json", "--table").stdout
    assert "Nothing breaks (forward)." in check("old.json", "new.json", "--mode", "forward", "--table").stdout


def test_models(check: Any) -> None:
    """Pydantic models are named by their path."""
    result = check(f"{__name__}:OrderV1", f"{__name__}:OrderV2", "--declared")
    assert [one["path"] for one in json.loads(result.stdout)["breaks"]] == ["data.total"]


@pytest.mark.parametrize("place", ["missing.json", "no.such.module:Model", "json:dumps"])
def test_what_is_no_schema(check: Any, place: str) -> None:
    """A place without a schema ends the command with one line and exit code 2."""
    result = check(place, "new.json")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("windsock: schema")
