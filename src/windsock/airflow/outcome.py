"""What a task may raise to say what is wrong, and what the log is told of any error.

::

    @task
    def ship(event):
        if "address" not in event["data"]:
            raise Invalid("no address", event)      # set aside at once, with this traceback
        try:
            carrier.book(event["data"])
        except carrier.Busy as error:
            raise Transient("the carrier is busy", event) from error
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from windsock.airflow import settings
from windsock.events import Category, Event, WindsockError

__all__ = ["Invalid", "Transient", "note_error"]

MAX_ERROR = 8_000
"""Characters of an error that are kept: its end, where the traceback says what happened."""


class _Blame(WindsockError):
    """A failure with a category, of the run's events or of those that it names."""

    category: ClassVar[Category]

    def __init__(self, message: str = "", *events: Event | Mapping[str, Any]) -> None:
        super().__init__(message)
        self.seqs = [_seq(event) for event in events]


class Transient(_Blame):
    """Something else failed, which may work again later.

    The run's events, or those that are named, return with backoff; after ``max_attempts`` they become dead
    letters of the category ``transient``, which the watcher's ``retry`` may redrive by itself.
    """

    category = Category.TRANSIENT


class Invalid(_Blame, AirflowFailException):
    """The run's events, or those that are named, will never work: they become dead letters at once.

    The task is not retried. Events that are not named return without an attempt counted.
    """

    category = Category.INVALID


def note_error(task_instance: Any, error: BaseException | str | None) -> None:
    """Tell the log why a task failed for good, so that its run's dead letters have it."""
    if error is None or task_instance.state == "up_for_retry":
        return
    blame = error if isinstance(error, _Blame) else None
    index = task_instance.map_index
    settings.get_log().note_failure(
        task_instance.dag_id,
        task_instance.run_id,
        task_instance.task_id if index is None or index < 0 else f"{task_instance.task_id}[{index}]",
        error=_text(error),
        category=blame.category if blame else None,
        seqs=blame.seqs if blame else (),
    )


def _seq(event: Event | Mapping[str, Any]) -> int:
    seq = event.seq if isinstance(event, Event) else event.get("seq")
    if seq is None:
        raise WindsockError("name an event that claim() returned: this one has no seq")
    return int(seq)


def _text(error: BaseException | str) -> str:
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    return text if len(text) <= MAX_ERROR else f"…{text[-MAX_ERROR:]}"
