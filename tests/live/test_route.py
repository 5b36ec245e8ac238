"""Routing to Dags by name, against Airflow's own database and execution API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

DAGS = """
from airflow.sdk import dag, task
from windsock.events import Event
from windsock.operators import RouteToDagOperator

COUNTRIES = ("de", "fr", "de", "xx")
EVENTS = [Event.make({"c": c}, source="s", type="t", id=n).as_dict() for n, c in enumerate(COUNTRIES)]


def target(name):
    @dag(dag_id=name, schedule=None)
    def made():
        @task
        def work(): ...

        work()

    return made()


fulfil_de, fulfil_fr, rest = target("fulfil_de"), target("fulfil_fr"), target("rest")


@dag(schedule=None)
def router():
    @task
    def give(events):
        return events

    to = "data.c in ['de', 'fr'] ? 'fulfil_' + data.c : ''"
    RouteToDagOperator(task_id="hand_over", events=give(EVENTS), to=to, default="rest")


@dag(schedule=None)
def lost():
    RouteToDagOperator(task_id="hand_over", events=EVENTS[:1], to="'nowhere'")


router()
lost()
"""

SCRIPT = """
import json, sys
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import select

initdb()
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
with create_session() as session:
    session.add(DagBundleModel(name="dags-folder"))
sync_bag_to_db(bag, "dags-folder", None)
states = [str(bag.dags[name].test().state) for name in ("router", "router", "lost")]
with create_session() as session:
    found = session.scalars(select(DagRun).where(DagRun.dag_id.not_in(["router", "lost"]))).all()
    runs = [[run.dag_id, run.run_id, run.conf["data"]["c"]] for run in found]
Path(sys.argv[2]).write_text(json.dumps({"states": states, "runs": runs}))
"""


def _played(folder: Path) -> dict[str, Any]:
    """What an Airflow of its own makes of the Dags."""
    (folder / "dags").mkdir()
    (folder / "dags" / "routes.py").write_text(DAGS)
    (folder / "play.py").write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    env.pop("PYTHONWARNINGS", None)
    env |= {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    command = [sys.executable, str(folder / "play.py"), str(folder / "dags"), str(folder / "answer.json")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def test_each_event_has_one_run_of_its_dag(tmp_path: Path) -> None:
    """Two runs of the router trigger each event's Dag once; an event that can go nowhere fails the task."""
    answer = _played(tmp_path)
    assert answer["states"] == ["success", "success", "failed"]
    went = sorted((dag_id, country) for dag_id, _, country in answer["runs"])
    assert went == [("fulfil_de", "de"), ("fulfil_de", "de"), ("fulfil_fr", "fr"), ("rest", "xx")]
    assert all(run_id.startswith("windsock__") for _, run_id, _ in answer["runs"])
