"""Airflow calls these: a run's outcome settles its events, the triggerer's start starts the keeper, a task's
error is noted.

Airflow calls a Dag-run listener *before* it commits the run's state. The events are settled after that
commit, so a rolled back transaction settles nothing. When the log cannot be reached the scheduler is not
held up: the keeper settles the run later.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from airflow.listeners import hookimpl
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.orm import object_session

from windsock.airflow import settings
from windsock.airflow.keeper import Keeper, failure
from windsock.airflow.outcome import note_error
from windsock.events import WindsockError

logger = logging.getLogger(__name__)

_PENDING = "windsock_outcomes"
_QUIET_SECONDS = 60.0
_not_before = 0.0
_keeper: Keeper | None = None


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """The run's events are done."""
    _after_commit(dag_run, ok=True)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """The run's events come back, or go to the dead letters."""
    _after_commit(dag_run, ok=False)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """What a task failed with goes into the dead letters of its run.

    Airflow calls this in the task's own process, before the run can end; a process that was killed says
    nothing. The scheduler calls it for tasks that it gives up, with a sentence instead of an exception.
    """
    global _not_before
    if time.monotonic() < _not_before:
        return
    try:
        note_error(task_instance, error)
    except WindsockError as failed:
        _not_before = time.monotonic() + _QUIET_SECONDS
        logger.warning("windsock.failure.not_noted task=%s: %s", task_instance.task_id, failed)
    except Exception:
        # Airflow must not fail on our account; the dead letters lack the error.
        logger.exception("windsock.failure.not_noted task=%s", task_instance.task_id)


@hookimpl
def on_starting(component: Any) -> None:
    """The keeper lives beside the triggerer's supervisor."""
    if type(component).__name__ == "Job":
        threading.Thread(target=_start_keeper, args=(component,), name="windsock-start", daemon=True).start()


@hookimpl
def before_stopping(component: Any) -> None:
    """A keeper that stops in good order lets the next one begin at once."""
    if _keeper is not None:
        _keeper.stop()


def _start_keeper(job: Any) -> None:
    """Start the keeper if the job turns out to be a triggerer: Airflow names it after this call."""
    global _keeper
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # Read past SQLAlchemy: the job belongs to another thread's session.
        job_type = vars(job).get("job_type")
        if job_type is not None:
            break
        time.sleep(0.05)
    else:
        return
    if job_type == "TriggererJob":
        _keeper = Keeper()
        _keeper.start()


def _after_commit(dag_run: Any, *, ok: bool) -> None:
    session = object_session(dag_run)
    if session is None:
        return
    outcomes = session.info.setdefault(_PENDING, {})
    outcomes[dag_run.dag_id, dag_run.run_id] = ok
    if not sqlalchemy_event.contains(session, "after_commit", _settle):
        sqlalchemy_event.listen(session, "after_commit", _settle)
        sqlalchemy_event.listen(session, "after_rollback", _drop)


def _settle(session: Any) -> None:
    global _not_before
    outcomes = session.info.pop(_PENDING, {})
    for (dag_id, run_id), ok in outcomes.items():
        if time.monotonic() < _not_before:
            return
        try:
            settings.get_log().settle(dag_id, run_id, ok=ok, reason=failure(dag_id, run_id))
        except WindsockError as error:
            _not_before = time.monotonic() + _QUIET_SECONDS
            logger.warning("windsock.settle.left_to_keeper dag=%s run=%s: %s", dag_id, run_id, error)
        except Exception:
            # The scheduler must not fail on our account; the keeper settles the run.
            logger.exception("windsock.settle.failed dag=%s run=%s", dag_id, run_id)


def _drop(session: Any) -> None:
    session.info.pop(_PENDING, None)
