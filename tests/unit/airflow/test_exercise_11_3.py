"""The solution of exercise 11.3 in the reference library."""

from __future__ import annotations

import runpy
from pathlib import Path

from windsock.operators import HttpPollingOperator
from windsock.sensors import FilePatternSensor

EXERCISE = Path(__file__).parents[3] / "reference" / "exercises" / "exercise_11_3_custom_trigger.py"


def test_the_solution_is_short_and_uses_the_public_door() -> None:
    """It fits on a screen or two, parses without network, and waits with our operator and sensor."""
    text = EXERCISE.read_text()
    assert len(text.splitlines()) < 80
    assert "windsock.airflow" not in text
    dag = runpy.run_path(str(EXERCISE))["custom_trigger"]()
    assert dag.dag_id == EXERCISE.stem
    assert type(dag.get_task("wait_for_export")) is HttpPollingOperator
    assert type(dag.get_task("wait_for_parts")) is FilePatternSensor
    assert dag.get_task("wait_for_export").downstream_task_ids == {"wait_for_parts", "count"}
