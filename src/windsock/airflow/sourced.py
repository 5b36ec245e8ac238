"""Event sourcing inside Airflow: on the log of this Airflow, and with a run's own way to refuse an event."""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow.sdk import get_current_context

from windsock import sourcing
from windsock.airflow import settings
from windsock.airflow.claim import dead_letter
from windsock.events import Event
from windsock.log import Log
from windsock.log.subjects import Move
from windsock.sourcing.fold import SNAPSHOT_EVERY, Reducer

__all__ = ["Projection", "Saga", "StateMachine", "state"]


def state(
    subject: str,
    reducer: Reducer,
    *,
    log: Log | None = None,
    initial: Any = None,
    at: int | dt.datetime | None = None,
    rebuild: bool = False,
    snapshot_every: int = SNAPSHOT_EVERY,
    name: str | None = None,
    version: str | int | None = None,
) -> Any:
    """Fold a subject's events into its state: see :func:`windsock.sourcing.state`."""
    return sourcing.state(
        subject,
        reducer,
        log=log or settings.get_log(),
        initial=initial,
        at=at,
        rebuild=rebuild,
        snapshot_every=snapshot_every,
        name=name,
        version=version,
    )


class _OnThisLog(sourcing.base.OnLog):
    @property
    def log(self) -> Log:
        """The log that was given, else the one of this Airflow."""
        return self.bound or settings.get_log()


class Projection(_OnThisLog, sourcing.Projection):
    """See :class:`windsock.sourcing.Projection`."""


class Saga(_OnThisLog, sourcing.Saga):
    """See :class:`windsock.sourcing.Saga`."""


class StateMachine(_OnThisLog, sourcing.StateMachine):
    """See :class:`windsock.sourcing.StateMachine`; inside a run a refused event becomes a dead letter."""

    def refused(self, event: Event, move: Move) -> None:
        """Set the event aside with the reason; outside a run it is an error."""
        try:
            get_current_context()
        except RuntimeError:
            super().refused(event, move)
            return
        dead_letter(event, move.reason)
