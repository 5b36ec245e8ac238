"""Dags that wait: for an endpoint that becomes ready, for one that never does, for files."""

from __future__ import annotations

from typing import Any

from airflow.sdk import dag, task
from ledger import record

from windsock.operators import HttpPollingOperator
from windsock.sensors import FilePatternSensor


@task
def note(found: Any) -> None:
    """Write down what the wait brought."""
    record([found])


def waits_for_endpoint(dag_id: str, timeout: float) -> None:
    """A Dag that asks the endpoint of its run's conf, with the secrets of a Connection."""

    @dag(dag_id=dag_id, schedule=None)
    def polls() -> None:
        wait = HttpPollingOperator(
            task_id="wait",
            endpoint="{{ dag_run.conf['endpoint'] }}",
            conn_id="polled",
            response_check="jobs[0].state",
            expected_value="done",
            poll_interval=0.5,
            timeout=timeout,
        )
        note(wait.output)

    polls()


@dag(schedule=None)
def waits_for_files() -> None:
    """Wants two files."""
    wait = FilePatternSensor(
        task_id="wait",
        pattern="{{ dag_run.conf['folder'] }}/**/*.part",
        min_files=2,
        settle=0.5,
        poll_interval=0.5,
        timeout=300,
    )
    note(wait.output)


waits_for_endpoint("polls_until_done", timeout=600)
waits_for_endpoint("polls_in_vain", timeout=45)
waits_for_files()
