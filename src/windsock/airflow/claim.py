"""claim() and dead_letter(): what a Dag says to the log.

``claim(asset)`` in a Dag's body is a task whose output can be mapped over; inside a task it returns the
events at once. Either way the same run always gets the same events, on a retry and when it is cleared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow.configuration import conf
from airflow.sdk import Asset, BaseOperator, Context, get_current_context

from windsock.airflow import settings
from windsock.events import Event, WindsockError
from windsock.rules import feeders

__all__ = ["ClaimOperator", "claim", "dead_letter"]


class ClaimOperator(BaseOperator):
    """Takes the run's events of an asset and returns them as plain values, for mapping.

    :param asset: the asset whose watchers' events to take
    :param by: ``"key"`` returns one list per key, ordered inside, instead of one flat list
    :param limit: the most events to take; by default the watcher's batch size
    """

    ui_color = "#d7ecff"

    def __init__(
        self, *, asset: Asset, by: Literal["key"] | None = None, limit: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.asset_uri = asset.uri
        self.by = _checked_by(by)
        self.limit = limit

    def execute(self, context: Context) -> list[Any]:
        """The run's events; Airflow maps over at most ``[core] max_map_length`` of them."""
        most = conf.getint("core", "max_map_length", fallback=1024)
        events = _take(context, self.asset_uri, self.limit, most)
        self.log.info("windsock.claimed asset=%s events=%d", self.asset_uri, len(events))
        if self.by == "key":
            return [[event.as_dict() for event in group] for group in group_by_key(events)]
        return [event.as_dict() for event in events]


def claim(asset: Asset, *, by: Literal["key"] | None = None, limit: int | None = None, **task: Any) -> Any:
    """The run's events of ``asset``.

    In the body of a Dag: a task, to pass to ``.expand(event=claim(asset))``; each mapped task gets one
    event as a plain dict, or with ``by="key"`` one list of them per key. Extra arguments (``task_id``,
    ``retries``, …) go to that task. Inside a task: a list of :class:`~windsock.Event`, or of lists.
    """
    try:
        context = get_current_context()
    except RuntimeError:
        task.setdefault("task_id", "claim_" + re.sub(r"[^A-Za-z0-9_.-]+", "_", asset.name).strip("_"))
        return ClaimOperator(asset=asset, by=by, limit=limit, **task).output
    _checked_by(by)
    events = _take(context, asset.uri, limit, None)
    return group_by_key(events) if by == "key" else events


def dead_letter(event: Event | Mapping[str, Any], reason: str) -> None:
    """Set one of the run's events aside, with the reason; the run and its other events go on."""
    seq = event.seq if isinstance(event, Event) else event.get("seq")
    if seq is None:
        raise WindsockError("dead_letter() takes an event that claim() returned: this one has no seq")
    dag_run = get_current_context()["dag_run"]
    settings.get_log().dead_letter(dag_run.dag_id, dag_run.run_id, int(seq), reason)


def group_by_key(events: Sequence[Event]) -> list[list[Event]]:
    """Events with one key together, in order; each event without a key by itself."""
    groups: dict[Any, list[Event]] = {}
    for event in events:
        groups.setdefault(event.key if event.key is not None else event.seq, []).append(event)
    return list(groups.values())


def _take(context: Context, asset: str, limit: int | None, most: int | None) -> list[Event]:
    log = settings.get_log()
    attached = log.watchers(asset=asset)
    feeding = feeders(attached)
    specs = [spec for spec in attached if spec.name not in feeding]
    if not specs:
        raise WindsockError(
            f"no watcher of asset {asset!r} is known to the log: attach one with Asset(…, watchers=[…]) to an"
            " asset of the same URI that a Dag is scheduled on, and check that the triggerer is running"
        )
    if limit is None:
        limit = max(spec.batch.size for spec in specs)
    if most is not None:
        limit = min(limit, most)
    dag_run = context["dag_run"]
    return log.claim([spec.name for spec in specs], dag_run.dag_id, dag_run.run_id, limit=limit)


def _checked_by(by: str | None) -> str | None:
    if by not in (None, "key"):
        raise WindsockError(f"claim(by={by!r}): use by='key', or leave it out")
    return by
