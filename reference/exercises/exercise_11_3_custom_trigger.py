"""Exercise 11.3 Custom Trigger

A partner exports a table for us. That takes hours; then the parts are dropped into a folder, one by one. Two
tasks wait for it, and hold no worker while they do.

- API polling trigger: ``HttpPollingOperator`` defers to ``HttpPollingTrigger``. ``response_check`` is a path
  into the JSON answer; the partner's address and token are in the Connection ``partner``.
- Deferrable operator: it asks at once; if the export is done already, no trigger is needed. Otherwise its
  ``execute_complete`` gets the trigger's event, and the task's result is the endpoint's answer.
- File pattern trigger: ``FilePatternSensor`` defers to ``FilePatternTrigger`` until both parts are there and
  have rested for 5 seconds.
- Errors: a timeout says what was last seen; 404 or 401 fails at once with a hint; a partner who is away for a
  while, or overloaded, is asked again.

The timeout is a deadline, fixed when the task begins: a restarted triggerer goes on with what is left of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import Param, dag, task

from windsock.operators import HttpPollingOperator
from windsock.sensors import FilePatternSensor

INBOX = os.environ.get("WINDSOCK_REFERENCE_INBOX", "/data/inbox")


@dag(
    dag_id="exercise_11_3_custom_trigger",
    schedule=None,
    params={
        "export": Param("daily", type="string", description="Which of the partner's exports to wait for")
    },
    tags=["reference", "exercise", "intermediate", "success"],
    doc_md=__doc__,
)
def custom_trigger() -> None:
    exported = HttpPollingOperator(
        task_id="wait_for_export",
        conn_id="partner",
        endpoint="exports/{{ params.export }}",
        response_check="export.steps[-1].state",
        expected_value="done",
        poll_interval="30s",
        timeout="6h",
    )

    parts = FilePatternSensor(
        task_id="wait_for_parts",
        pattern=f"{INBOX}/exports/{{{{ params.export }}}}/**/*.csv",
        min_files=2,
        settle="5s",
        poll_interval="10s",
        timeout="30min",
    )

    @task
    def count(answer: dict[str, Any], paths: list[str]) -> dict[str, int]:
        """The rows that came, beside those that were announced."""
        rows = sum(len(Path(path).read_text().splitlines()) for path in paths)
        return {"announced": answer["export"]["rows"], "came": rows}

    exported >> parts
    count(exported.output, parts.output)


custom_trigger()
