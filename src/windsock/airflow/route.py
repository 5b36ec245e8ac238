"""Routes inside a Dag: which tasks, or which other Dag, an event goes to.

::

    @task.branch
    def choose(event):
        return route(event, {"refund": "data.total < 0", "review": "data.total > 10000"}, default="ship")

    RouteToDagOperator(task_id="hand_over", events=claim(orders), to="'fulfil_' + data.country")

Conditions are CEL or ``package.module:function``, as in a watcher's ``where``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from windsock.airflow import settings
from windsock.events import Event, WindsockError
from windsock.pipeline.expressions import Evaluate, Failure, compile_condition, compile_text
from windsock.spec import SpecError

__all__ = ["RouteToDagOperator", "route", "run_id_of"]

_PLAIN = re.compile(r"[^A-Za-z0-9_.~:+-]+")
_NOT_FOUND = 404


def route(
    event: Event | Mapping[str, Any],
    routes: Mapping[str, str],
    *,
    default: str | None = None,
    first: bool = True,
) -> list[str]:
    """The task ids whose condition is true for the event, for ``@task.branch`` to return.

    :param event: an event as ``claim`` gave it
    :param routes: task id → condition; one that cannot be evaluated on the event does not match
    :param default: where an event goes that nothing matches; without it, nowhere
    :param first: only the first that matches; False for all
    """
    seen = _event(event)
    matching: list[str] = []
    for task_id, condition in routes.items():
        if _compiled(compile_condition, "route()", condition, task_id)(seen) is True:
            matching.append(task_id)
            if first:
                break
    return matching or ([] if default is None else [default])


class RouteToDagOperator(BaseOperator):
    """Triggers, for each event, the Dag that an expression names, with the event as the run's ``conf``.

    The id of the triggered run is made of the event, so a retry or a cleared task triggers nothing twice; a
    replayed event does trigger anew. An event for which the expression gives no Dag, or one that does not
    exist, is set aside as a dead letter; the others go on.

    :param events: what ``claim`` returned: events, lists of them per key, or one event of a mapped task
    :param to: CEL expression, or ``package.module:function``, of the Dag's id
    :param default: the Dag for events to which the expression gives none
    """

    template_fields: Sequence[str] = ("events",)
    ui_color: ClassVar[str] = "#d7ecff"

    def __init__(self, *, events: Any, to: str, default: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _compiled(compile_text, type(self).__name__, to, "to")
        self.events = events
        self.to = to
        self.default = default

    def execute(self, context: Context) -> list[dict[str, str]]:
        """The dag_id and run_id of every run that the events have."""
        dag_of = _compiled(compile_text, type(self).__name__, self.to, "to")
        runs, failed = [], []
        for event in _flat(self.events):
            dag_id = dag_of(event)
            if isinstance(dag_id, Failure):
                if self.default is None:
                    self._set_aside(context, event, f"{self.to!r} names no Dag: {dag_id.reason}")
                    continue
                dag_id = self.default
            run_id = run_id_of(event)
            try:
                _trigger(dag_id, run_id, event)
            except AirflowRuntimeError as error:
                if (error.error.detail or {}).get("status_code") == _NOT_FOUND:
                    self._set_aside(context, event, f"there is no Dag {dag_id!r}")
                else:
                    failed.append(f"{dag_id} {run_id}: {error}")
                continue
            runs.append({"dag_id": dag_id, "run_id": run_id})
        self.log.info("windsock.routed runs=%d failed=%d", len(runs), len(failed))
        if failed:
            raise WindsockError(
                f"{len(failed)} of {len(runs) + len(failed)} runs could not be triggered; a retry triggers "
                f"only these. The first: {failed[0]}"
            )
        return runs

    def _set_aside(self, context: Context, event: Event, reason: str) -> None:
        if event.seq is None:
            raise WindsockError(f"event {event.id!r} can go nowhere and did not come from claim(): {reason}")
        dag_run = context["dag_run"]
        settings.get_log().dead_letter(dag_run.dag_id, dag_run.run_id, event.seq, reason)


def run_id_of(event: Event) -> str:
    """The id of the run that an event triggers: the same whenever the same delivery is routed."""
    identity = "\0".join((event.source, event.id, str(event.seq), event.replay or ""))
    digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"windsock__{_PLAIN.sub('_', event.id)[:100]}__{digest}"


def _trigger(dag_id: str, run_id: str, event: Event) -> None:
    """Ask Airflow for the run, as ``TriggerDagRunOperator`` does, which can do so once in a task only."""
    from airflow.sdk.api.client import ServerResponseError
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    wanted = TriggerDagRun(dag_id=dag_id, run_id=run_id, conf=event.as_dict(), logical_date=None)
    try:
        answer = SUPERVISOR_COMMS.send(wanted)
    except ServerResponseError as error:  # in ``dag.test()`` there is no supervisor that would translate it
        detail = {"status_code": error.response.status_code, "message": str(error)}
        answer = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail)
    if isinstance(answer, ErrorResponse) and answer.error != ErrorType.DAGRUN_ALREADY_EXISTS:
        raise AirflowRuntimeError(answer)


@lru_cache(maxsize=1024)
def _compiled(compile_: Callable[..., Evaluate], where: str, expression: str, option: str) -> Evaluate:
    try:
        return compile_(expression, watcher=where, option=option)
    except SpecError as error:
        raise SpecError(str(error).replace(f"watcher {where!r}: ", f"{where}: ", 1)) from None


def _flat(given: Any) -> list[Event]:
    """The events of a claim, whatever their grouping."""
    if isinstance(given, Event | Mapping):
        return [_event(given)]
    return [event for part in given for event in _flat(part)]


def _event(given: Event | Mapping[str, Any]) -> Event:
    return given if isinstance(given, Event) else Event.from_dict(given)
