"""The probe sees what a Dag file does while it is parsed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).parents[2] / "reference"
DAG = """
from airflow.sdk import dag, task

@dag(dag_id="naughty")
def naughty():
    @task
    def nothing():
        pass
    nothing()

naughty()
"""
NAUGHTY = {
    "writes": "from pathlib import Path\nPath('here.txt').write_text('me')",
    "connects": "import socket\nsocket.socket()",
    "starts_a_process": "import subprocess\nsubprocess.run(['true'])",
    "starts_a_thread": "import threading\nthreading.Thread(target=print).start()",
    "sets_a_variable": "import os\nos.environ['NAUGHTY'] = '1'",
    "is_deprecated": "from airflow.decorators import dag",
    "fails": "1 / 0",
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the probe tells of a good file and of each naughty one."""
    folder = tmp_path_factory.mktemp("naughty")
    files = [REFERENCE / "watchers_117" / "117_01_01_watcher_basics.py"]
    for name, line in NAUGHTY.items():
        files.append(folder / f"{name}.py")
        files[-1].write_text(f"{line}\n{DAG}")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "WINDSOCK"))}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("probe.py")), *(str(file) for file in files)],
        env={**keep, "AIRFLOW_HOME": str(folder / "airflow")},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    reports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reports


def test_a_good_file_is_seen_to_do_nothing(seen: dict[str, Any]) -> None:
    """What Airflow does by itself is not held against the file."""
    report = seen["117_01_01_watcher_basics"]
    found = [report[part] for part in ("errors", "warnings", "seen", "environment")]
    assert found == [[], [], [], True]


@pytest.mark.parametrize(
    ("name", "what"), [("writes", "here.txt"), ("connects", "socket."), ("starts_a_process", "subprocess.")]
)
def test_a_side_effect_is_seen(name: str, what: str, seen: dict[str, Any]) -> None:
    """Files, sockets and processes are noticed; the last two are prevented as well."""
    assert any(what in each for each in seen[name]["seen"])
    assert bool(seen[name]["errors"]) is (name != "writes")


def test_a_thread_and_a_variable_are_seen(seen: dict[str, Any]) -> None:
    """A thread counts even when it has ended; a variable counts when it is different afterwards."""
    assert any("start thread" in each for each in seen["starts_a_thread"]["seen"])
    assert not seen["sets_a_variable"]["environment"]


def test_a_deprecated_import_is_seen(seen: dict[str, Any]) -> None:
    """Airflow's own warning about it comes through."""
    assert any("deprecated" in each.lower() for each in seen["is_deprecated"]["warnings"])


def test_a_file_that_cannot_be_imported_is_seen(seen: dict[str, Any]) -> None:
    """Its error is told, and it has no Dags."""
    assert "ZeroDivisionError" in seen["fails"]["errors"][0]
    assert seen["fails"]["dags"] == {}
