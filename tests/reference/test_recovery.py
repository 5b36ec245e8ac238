"""The recovery Dags of the reference library, not run; `tests/live/test_dead_letters.py` plays them."""

from __future__ import annotations

import ast
import importlib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windsock import Event

DAGS = sorted((Path(__file__).parents[2] / "reference" / "recovery").glob("*.py"))
REPROCESS = DAGS[0]
MOST_LINES = 90


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without network saw when it parsed every file, by name."""
    home = tmp_path_factory.mktemp("airflow")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "WINDSOCK"))}
    env = {**keep, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    command = [sys.executable, str(Path(__file__).with_name("probe.py")), *map(str, DAGS)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    reports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reports


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.stem)
def test_it_parses_and_does_nothing_else(path: Path, parsed: dict[str, Any]) -> None:
    """Airflow imports the file without error, warning, file, thread or network; its Dags have its name."""
    report = parsed[path.stem]
    assert (report["errors"], report["warnings"], report["seen"]) == ([], [], [])
    assert path.stem in report["dags"]
    assert all(dag_id.startswith(path.stem) and dag["tasks"] for dag_id, dag in report["dags"].items())


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.stem)
def test_it_is_short_and_uses_only_public_doors(path: Path) -> None:
    """It fits on two screens and imports from Windsock what everybody may."""
    source = path.read_text("utf-8")
    assert len(source.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("windsock"):
            assert node.module in ("windsock", "windsock.watchers")
            assert {alias.name for alias in node.names} <= set(importlib.import_module(node.module).__all__)


@pytest.mark.parametrize(("total", "mended"), [("12,50", 12.5), ("3", 3.0), (None, None), ([1], None)])
def test_what_it_mends(total: Any, mended: float | None) -> None:
    """A total that is text becomes a number under the same id; anything else is left alone."""
    repair = runpy.run_path(str(REPROCESS))["repair"]
    event = Event.make({"total": total, "note": "kept"}, source="s", type="t", id="a")
    result = repair(SimpleNamespace(body=event.encode()))
    if mended is None:
        assert result is None
    else:
        assert (result.id, result.data) == ("a", {"total": mended, "note": "kept"})
