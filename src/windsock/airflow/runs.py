"""What Airflow's database says of runs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["run_states"]

_PART = 500
"""Runs that are asked for at once: databases bound the number of parameters."""


def run_states(runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(dag_id, run_id) → state of those runs that Airflow knows."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select, tuple_

    states: dict[tuple[str, str], str] = {}
    with create_session() as session:
        for start in range(0, len(runs), _PART):
            part = list(runs[start : start + _PART])
            rows = session.execute(
                select(DagRun.dag_id, DagRun.run_id, DagRun.state).where(
                    tuple_(DagRun.dag_id, DagRun.run_id).in_(part)
                )
            )
            states |= {
                (dag_id, run_id): str(getattr(state, "value", state)) for dag_id, run_id, state in rows
            }
    return states
