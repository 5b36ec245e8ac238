"""Exercise 11.3 on a real Airflow: the custom triggers in the triggerer process, killed in mid-wait."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from endpoint import Endpoint, Reply
from live.field import POLLED_SECRETS, Field

pytestmark = pytest.mark.live

EXERCISE = Path(__file__).parents[2] / "reference" / "exercises" / "exercise_11_3_custom_trigger.py"
RUNNING, DONE = Reply({"jobs": [{"state": "running"}]}), Reply({"jobs": [{"state": "done"}], "rows": 3})


def start(field: Field, dag_id: str, conf: dict[str, Any]) -> str:
    """Start a run once Airflow knows the Dag; the run's id."""
    field.stack.wait_for(
        lambda: dag_id in {dag.dag_id for dag in field.stack.api.dags()}, 120, f"the Dag {dag_id}"
    )
    return field.stack.api.trigger(dag_id, conf).run_id


def state(field: Field, dag_id: str, run_id: str) -> str | None:
    """The state of the waiting task."""
    tasks = field.stack.api.task_instances(dag_id, run_id)
    return next((task.state for task in tasks if task.task_id == "wait"), None)


def ended(field: Field, dag_id: str, run_id: str) -> Callable[[], bool]:
    """A question for ``stack.wait_for``: has the run ended?"""
    return lambda: field.stack.api.run(dag_id, run_id).finished


def logged(field: Field, run_id: str) -> str:
    """What the run's tasks and their triggers logged, in the order of time."""
    folders = (field.stack.airflow_home / "logs").rglob(f"run_id={run_id}")
    files = [path for folder in folders for path in folder.rglob("*.log*") if path.is_file()]
    lines = [line for path in files for line in path.read_text().splitlines()]
    return "\n".join(sorted(lines, key=lambda line: str(json.loads(line)["timestamp"])))


def test_the_trigger_works_with_the_triggerer_process(field: Field) -> None:
    """Criterion: Trigger works with triggerer process. It outlives `kill -9` of the triggerer in mid-wait.

    The timeout does not start over: one run ends with its own explanation in spite of the restart, the other
    counts the time before it. The Connection's secrets reach the endpoint and no log.
    """
    stack = field.stack
    with Endpoint(RUNNING) as endpoint, Endpoint(RUNNING) as never:
        run_id = start(field, "polls_until_done", {"endpoint": f"{endpoint.url}/job?run=1"})
        stack.wait_for(lambda: len(endpoint.requests) > 2, 120, "the trigger to ask")
        vain_id = start(field, "polls_in_vain", {"endpoint": f"{never.url}/job"})
        stack.wait_for(lambda: len(never.requests) > 1, 120, "the other trigger to ask")
        assert state(field, "polls_until_done", run_id) == "deferred"
        began = time.time()

        stack.kill("triggerer", group=True)
        so_far = len(endpoint.requests)
        stack.restart("triggerer")
        stack.wait_for(lambda: len(endpoint.requests) > so_far, 120, "the trigger to ask again")
        waited = time.time() - began
        endpoint.reply(DONE)
        stack.wait_for(ended(field, "polls_until_done", run_id), 120, "the run to succeed")
        assert stack.api.run("polls_until_done", run_id).state == "success"
        assert field.had("polls_until_done") == [DONE.body]
        (elapsed,) = re.findall(r"windsock\.http_polling\.ready \S+ elapsed=([\d.]+)s", logged(field, run_id))
        assert float(elapsed) > waited, "the time before the restart counts"

        stack.wait_for(ended(field, "polls_in_vain", vain_id), 180, "the other run to give up")
        assert stack.api.run("polls_in_vain", vain_id).state == "failed"
        story = logged(field, vain_id)
        left = [float(text) for text in re.findall(r"http_polling\.waiting \S+ left=(-?[\d.]+)s", story)]
        assert len(left) == 2
        assert left[1] < left[0], "the second triggerer goes on with what is left"
        assert "HttpPollingTimeout" in story
        assert "did not have jobs[0].state = 'done' within 45 s; it was last seen as 'running'" in story

        for asked in endpoint.requests:
            assert asked.headers["Authorization"] == f"Bearer {POLLED_SECRETS[0]}"
            assert asked.headers["X-Api-Key"] == POLLED_SECRETS[1]
    assert leaks(stack.home, POLLED_SECRETS) == []


def test_the_file_trigger_works_with_the_triggerer_process(field: Field) -> None:
    """Criterion: Trigger works with triggerer process. The sensor defers, and resumes with the files."""
    folder = field.folder / "parts"
    (folder / "deep").mkdir(parents=True)
    (folder / "1.part").touch()
    run_id = start(field, "waits_for_files", {"folder": str(folder)})
    field.stack.wait_for(
        lambda: state(field, "waits_for_files", run_id) == "deferred", 120, "the sensor to defer"
    )
    (folder / "deep" / "2.part").touch()
    field.stack.wait_for(ended(field, "waits_for_files", run_id), 120, "the run to end")
    assert field.had("waits_for_files") == [[str(folder / "1.part"), str(folder / "deep" / "2.part")]]


def test_the_exercise_runs_as_it_is_written(field: Field) -> None:
    """The solution's Dag waits for its export, then its parts, with a Connection in Airflow's database."""
    shutil.copy(EXERCISE, field.folder / "dags")
    parts, token = field.folder / "reference" / "exports" / "weekly", "partner-token-c2b8"
    parts.mkdir(parents=True)
    answers = [Reply({"export": {"steps": [{"state": state}], "rows": 3}}) for state in ("running", "done")]
    with Endpoint(*answers) as partner:
        connection = {"connection_id": "partner", "conn_type": "http", "host": partner.url, "password": token}
        field.stack.api.request("POST", "connections", json=connection)
        run_id = start(field, EXERCISE.stem, {"export": "weekly"})
        field.stack.wait_for(
            lambda: len(partner.requests) == 2, 120, "the operator, then the trigger, to ask"
        )
        (parts / "1.csv").write_text("a\nb\n")
        (parts / "2.csv").write_text("c\n")
        field.stack.wait_for(ended(field, EXERCISE.stem, run_id), 180, "the run to end")
        path = f"dags/{EXERCISE.stem}/dagRuns/{run_id}/taskInstances/count/xcomEntries/return_value"
        counted = field.stack.api.request("GET", path, params={"deserialize": True})
    assert counted["value"] == {"announced": 3, "came": 3}
    assert {asked.path for asked in partner.requests} == {"/exports/weekly"}
    assert {asked.headers["Authorization"] for asked in partner.requests} == {f"Bearer {token}"}
    assert leaks(field.stack.home, [token]) == []


def leaks(home: Path, secrets: Iterable[str]) -> list[str]:
    """Files that hold one of the secrets."""
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any("attempt=" in path.name for path in files), "there are logs to look at"
    return [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]
