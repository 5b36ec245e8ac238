"""Every reference Dag, without running it: what it imports, what parsing it does, what it promises."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from windsock.testing.library import Item, Library
from windsock.testing.scenarios import load_scenarios

ROOT = Path(__file__).parents[2]
LIBRARY = Library(ROOT / "reference")
WRITTEN = LIBRARY.written()
PUBLIC = ("windsock", "windsock.watchers", "windsock.operators", "windsock.sensors", "windsock.triggers")
"""Windsock's doors for a Dag."""
MOST_LINES = 90


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without network saw when it parsed every file, by name."""
    home = tmp_path_factory.mktemp("airflow")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "WINDSOCK"))}
    env = {**keep, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    probe = Path(__file__).with_name("probe.py")
    files = [str(path) for _, path in WRITTEN.values()]
    done = subprocess.run(
        [sys.executable, str(probe), *files], env=env, capture_output=True, text=True, check=False, cwd=home
    )
    assert done.returncode == 0, done.stderr
    reports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reports


@pytest.fixture(params=sorted(WRITTEN))
def name(request: pytest.FixtureRequest) -> str:
    """Each written Dag file in turn."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def item(name: str) -> Item:
    """What the checklist says of it."""
    return WRITTEN[name][0]


@pytest.fixture
def source(name: str) -> str:
    """Its text."""
    return WRITTEN[name][1].read_text("utf-8")


def test_it_parses_without_error_warning_or_network(name: str, parsed: dict[str, Any]) -> None:
    """Airflow imports the file with sockets blocked, and nothing deprecated is used."""
    assert parsed[name]["errors"] == []
    assert parsed[name]["warnings"] == []
    assert parsed[name]["dags"]


def test_parsing_it_changes_nothing(name: str, parsed: dict[str, Any]) -> None:
    """Parsing writes no file, starts no thread or process, opens no socket, changes no variable."""
    assert parsed[name]["seen"] == []
    assert parsed[name]["environment"]


def test_its_dags_have_its_name_and_tags(name: str, item: Item, parsed: dict[str, Any]) -> None:
    """The first Dag is named as the file, the others begin so, and all have the checklist's tags."""
    dags = parsed[name]["dags"]
    assert name in dags
    for dag_id, dag in dags.items():
        assert dag_id == name or dag_id.startswith(f"{name}_")
        assert dag["tags"] == sorted(item.tags)
        assert dag["tasks"]


def test_its_tags_are_written_in_the_checklists_order(item: Item, source: str) -> None:
    """The list in the file is the checklist's, the outcome last."""
    lists = [
        [element.value for element in node.elts if isinstance(element, ast.Constant)]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.List)
    ]
    assert item.tags in lists


def test_its_docstring_maps_each_point_to_code(name: str, item: Item, source: str, parsed: Any) -> None:
    """Title, then each of the four points with names that are really in the code below; shown in Airflow."""
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree) or ""
    assert docstring.startswith(f"{item.id} {item.title}\n\n")
    code = source.split('"""', 2)[2]
    bullets = re.split(r"^- ", docstring, flags=re.MULTILINE)[1:]
    assert [bullet.split(": ")[0] for bullet in bullets] == item.points
    for bullet in bullets:
        words = re.findall(r"[A-Za-z_]\w+", " ".join(re.findall(r"``(.+?)``", bullet, flags=re.DOTALL)))
        assert any(re.search(rf"\b{word}\b", code) for word in words), f"no code is named: {bullet}"
    assert all(dag["doc"].strip().startswith(item.id) for dag in parsed[name]["dags"].values())


def test_it_is_short(source: str) -> None:
    """It fits on two screens."""
    assert len(source.splitlines()) <= MOST_LINES


def test_it_uses_only_public_doors(source: str) -> None:
    """Imports come from Airflow's SDK or providers and from Windsock's public names."""
    for node in ast.walk(ast.parse(source)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a Dag file imports nothing relative"
            modules = [node.module or ""]
        for module in modules:
            top = module.split(".")[0]
            if top == "airflow":
                assert re.match(r"airflow\.(sdk|providers)(\.|$)", module), module
            if top == "windsock":
                assert module in PUBLIC, module
        if isinstance(node, ast.ImportFrom) and node.module in PUBLIC:
            public = importlib.import_module(node.module).__all__
            assert {alias.name for alias in node.names} <= set(public)


def test_every_dag_has_a_scenario_and_every_scenario_a_dag() -> None:
    """What is written is proved, and what is proved is written."""
    scenarios, _ = load_scenarios(LIBRARY.directory / "scenarios")
    assert sorted(scenarios) == sorted(WRITTEN)


def test_scenarios_name_every_dag_of_their_file(name: str, parsed: dict[str, Any]) -> None:
    """No Dag of a file goes unwatched."""
    scenarios, _ = load_scenarios(LIBRARY.directory / "scenarios")
    assert sorted(scenarios[name].expected) == sorted(parsed[name]["dags"])


def test_the_scenario_expects_what_the_last_tag_says(name: str, item: Item) -> None:
    """A `success` has Dags that end well; any other has one that fails, and a remedy that ends well."""
    scenarios, _ = load_scenarios(LIBRARY.directory / "scenarios")
    expected = scenarios[name].expected.values()
    assert any(runs.least for runs in expected)
    if item.tags[-1] == "success":
        assert all(runs.least for runs in expected)
    else:
        assert any(runs.failed for runs in expected)


def test_no_dag_file_is_outside_the_checklists() -> None:
    """Dag folders hold what the checklists name, and nothing else."""
    assert LIBRARY.strays() == []
