"""The test kit's own Airflow: it runs Dags, its components can be killed and come back, none stays behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from windsock.testing.airflow_api import DagRun
from windsock.testing.postgres import PostgresServer
from windsock.testing.processes import wait_gone
from windsock.testing.stack import COMPONENTS, TASKS, WORKERS, AirflowStack, StackTimeout

pytestmark = pytest.mark.live

DAGS = """
from airflow.sdk import dag, task


@dag(schedule=None)
def hello():
    @task
    def greet(params):
        print("hello", params.get("name"))

    greet()


@dag(schedule=None)
def endless():
    @task
    def sleep():
        import time

        time.sleep(600)

    sleep()


hello()
endless()
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[AirflowStack]:
    """Airflow on PostgreSQL with two Dags."""
    home = tmp_path_factory.mktemp("stack")
    (home / "dags").mkdir()
    (home / "dags" / "two.py").write_text(DAGS)
    with AirflowStack(home, home / "dags", database=postgres.url("stack")) as stack:
        stack.wait_for(
            lambda: {"hello", "endless"} <= {dag.dag_id for dag in stack.api.dags()}, 60, "the Dags"
        )
        assert stack.api.import_errors() == []
        yield stack


def run_to_the_end(stack: AirflowStack, dag_id: str) -> DagRun:
    """Trigger a run and wait for its end."""
    run_id = stack.api.trigger(dag_id, {"name": "world"}).run_id
    stack.wait_for(lambda: stack.api.run(dag_id, run_id).finished, 90, f"the run of {dag_id} to end")
    return stack.api.run(dag_id, run_id)


def test_a_dag_runs_to_success(stack: AirflowStack) -> None:
    """A triggered run succeeds, is listed, and can be cleared to run once more under its id."""
    run = run_to_the_end(stack, "hello")
    assert (run.state, run.run_type, run.conf) == ("success", "manual", {"name": "world"})
    assert [found.run_id for found in stack.api.runs("hello")] == [run.run_id]
    (task,) = stack.api.task_instances("hello", run.run_id)
    assert (task.task_id, task.state, task.try_number) == ("greet", "success", 1)
    stack.api.clear_run("hello", run.run_id)
    stack.wait_for(
        lambda: (
            [(task.state, task.try_number) for task in stack.api.task_instances("hello", run.run_id)]
            == [("success", 2)]
        ),
        60,
        "the cleared run to succeed again",
    )


def test_a_dag_can_be_paused(stack: AirflowStack) -> None:
    """Pause and unpause show in the list of Dags."""
    stack.api.pause("hello")
    assert {dag.dag_id: dag.is_paused for dag in stack.api.dags()} == {"hello": True, "endless": False}
    stack.api.unpause("hello")
    assert {dag.dag_id: dag.is_paused for dag in stack.api.dags()} == {"hello": False, "endless": False}


def test_a_killed_task_fails_its_run(stack: AirflowStack) -> None:
    """The process of a running task can be told apart and killed; Airflow fails the run."""
    run_id = stack.api.trigger("endless").run_id
    stack.wait_for(
        lambda: [task.state for task in stack.api.task_instances("endless", run_id)] == ["running"],
        60,
        "the task to run",
    )
    (task,) = stack.api.task_instances("endless", run_id)
    stack.wait_for(lambda: stack.children("scheduler", TASKS), 30, "the task's process to begin")
    assert stack.kill_children("scheduler", TASKS) == [task.pid]
    assert len(stack.children("scheduler", WORKERS)) == 4
    stack.wait_for(lambda: stack.api.run("endless", run_id).state == "failed", 60, "the run to fail")


def test_the_triggerer_follows_its_trigger_runner(stack: AirflowStack) -> None:
    """Killing the trigger runner ends the triggerer, which is noticed, and a new one is healthy."""
    assert len(stack.kill_children("triggerer")) == 1
    stack.wait_for(lambda: not stack.alive("triggerer"), 30, "the triggerer to end")
    stack.restart("triggerer")
    assert stack.alive("triggerer")


def test_every_component_can_be_killed(stack: AirflowStack) -> None:
    """After `kill -9` of each component and a restart, another run succeeds."""
    for component in COMPONENTS:
        pid = stack.pid(component)
        stack.kill(component)
        assert not stack.alive(component)
        stack.restart(component, wait=False)
        assert stack.alive(component)
        assert stack.pid(component) != pid
    stack.wait_healthy()
    assert run_to_the_end(stack, "hello").state == "success"


def test_a_wait_in_vain_shows_the_logs(stack: AirflowStack) -> None:
    """The error names what was awaited and quotes every component's log."""
    with pytest.raises(StackTimeout, match="in vain for rain") as failure:
        stack.wait_for(lambda: False, 0.0, "rain")
    for component in COMPONENTS:
        assert re.search(rf"--- {component} \(running\), .*{component}\.log\n.+", str(failure.value))


def test_stop_leaves_no_process(stack: AirflowStack, tmp_path: Path) -> None:
    """After `stop`, with a task still running, no process of any component is left."""
    run_id = stack.api.trigger("endless").run_id
    stack.wait_for(
        lambda: [task.state for task in stack.api.task_instances("endless", run_id)] == ["running"],
        60,
        "the task to run",
    )
    stack.wait_for(lambda: stack.children("scheduler", TASKS), 30, "the task's process to begin")
    everybody = [process for component in COMPONENTS for process in stack.processes(component)]
    assert len(everybody) >= 4 + 1 + 4 + 1, "components, trigger runner, workers, task"
    stack.stop(timeout=3.0)
    assert wait_gone(everybody, timeout=0.0) == []
    assert not any(stack.alive(component) for component in COMPONENTS)
