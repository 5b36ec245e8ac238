"""Routes inside a Dag: to tasks by conditions, to Dags by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, task
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, OKResponse, TriggerDagRun

import windsock
from windsock.airflow.claim import claim
from windsock.airflow.route import RouteToDagOperator, route, run_id_of
from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.records import Write
from windsock.spec import SpecError, WatcherSpec

ORDER = Event.make({"total": 150, "country": "de"}, source="s", type="order", id="o 1")
ROUTES = {"refund": "data.total < 0", "review": "data.total > 100", "ship": "data.total > 10"}


def test_the_first_that_matches_or_all() -> None:
    """One task by default, in the order of the routes; every matching one if asked for."""
    assert route(ORDER, ROUTES) == ["review"]
    assert route(ORDER, ROUTES, first=False) == ["review", "ship"]
    assert windsock.route is route


def test_events_as_mapped_tasks_get_them() -> None:
    """A plain dict, as a mapped task has it, is routed like the event."""
    assert route(ORDER.as_dict(), ROUTES) == ["review"]


def test_what_nothing_matches() -> None:
    """It goes to the default, or nowhere; a condition that fails on the event does not match."""
    routes = {"a": "data.missing > 1", "b": "type == 'other'"}
    assert route(ORDER, routes, default="rest") == ["rest"]
    assert route(ORDER, routes) == []


def is_dear(event: Event) -> bool:
    return bool(event.data["total"] > 100)


def test_functions_and_mistakes() -> None:
    """A route may be a Python function; a mistake is shown with its place."""
    assert route(ORDER, {"dear": f"{__name__}:is_dear"}) == ["dear"]
    with pytest.raises(SpecError, match=r"^route\(\): ship, line 1, column 13"):
        route(ORDER, {"ship": "data.total >"})


def test_a_dag_with_both_parses() -> None:
    """A branch on route() and a hand-over to other Dags stand in one Dag, fed by claim()."""
    orders = Asset("shop/routed")
    with DAG("routed", schedule=None) as dag:

        @task.branch
        def choose(event: Any) -> list[str]:
            return route(event, ROUTES)

        events = claim(orders)
        choose.expand(event=events)
        RouteToDagOperator(task_id="hand_over", events=events, to="'fulfil_' + data.country")
    assert dag.get_task("hand_over").upstream_task_ids == {"claim_shop_routed"}
    dag.check_cycle()


def test_a_wrong_expression_is_refused_when_the_dag_is_parsed() -> None:
    """The operator compiles its expression in the Dag's body."""
    with DAG("routed", schedule=None), pytest.raises(SpecError, match=r"^RouteToDagOperator: to, line 1"):
        RouteToDagOperator(task_id="hand_over", events=[], to="data.")


class Supervisor:
    """Airflow's side: runs by Dag, once each."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], Any] = {}
        self.broken: set[str] = set()

    def send(self, message: TriggerDagRun) -> Any:
        place = (message.dag_id, message.run_id)
        if message.dag_id in self.broken:
            raise AirflowRuntimeError(
                ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})
            )
        if not message.dag_id.startswith("fulfil"):
            raise AirflowRuntimeError(
                ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404})
            )
        if place in self.runs:
            return ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
        self.runs[place] = message.conf
        return OKResponse(ok=True)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    made = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    return made


@pytest.fixture
def run(log: Log) -> Callable[..., Any]:
    """Claims four events and routes them in a task of the run ``r1``."""
    log.register(WatcherSpec(name="orders", kind="memory"), source="s", asset="shop/orders")
    log.subscribe("orders", "router")
    countries = ("de", "fr", None, "xx")
    events = [Event.make({"country": one}, source="s", type="t", id=n) for n, one in enumerate(countries)]
    log.append([Write(watcher="orders", events=events)])
    claimed = [event.as_dict() for event in log.claim(["orders"], "router", "r1")]
    context = {"dag_run": SimpleNamespace(dag_id="router", run_id="r1")}

    def run(to: str, default: str | None = None) -> Any:
        operator = RouteToDagOperator(task_id="t", events=claimed, to=to, default=default)
        return operator.execute(context)

    return run


def test_each_event_triggers_the_dag_it_names_once(run: Callable[..., Any], supervisor: Supervisor) -> None:
    """A retry of the task triggers nothing anew, and the run has the event as its conf."""
    first = run("data.country == 'de' ? 'fulfil_de' : 'fulfil_rest'")
    assert first == run("data.country == 'de' ? 'fulfil_de' : 'fulfil_rest'")
    assert [one["dag_id"] for one in first] == ["fulfil_de", "fulfil_rest", "fulfil_rest", "fulfil_rest"]
    assert len(supervisor.runs) == 4
    assert supervisor.runs["fulfil_de", first[0]["run_id"]]["data"] == {"country": "de"}


def test_what_has_no_dag_is_set_aside(run: Callable[..., Any], supervisor: Supervisor, log: Log) -> None:
    """No name, or the name of no Dag, costs that event alone: it is a dead letter with the reason."""
    runs = run("data.country in ['de', 'fr'] ? 'fulfil_' + data.country : data.country")
    assert [one["dag_id"] for one in runs] == ["fulfil_de", "fulfil_fr"]
    reasons = sorted(letter.reason for letter in log.dead_letters())
    assert len(supervisor.runs) == len(reasons) == 2
    assert "names no Dag: gave null" in reasons[0]
    assert reasons[1] == "there is no Dag 'xx'"


def test_the_default_dag(run: Callable[..., Any], supervisor: Supervisor) -> None:
    """With a default nothing is set aside for want of a name."""
    runs = run("data.country == null ? '' : 'fulfil_x'", default="fulfil_rest")
    assert [one["dag_id"] for one in runs] == ["fulfil_x", "fulfil_x", "fulfil_rest", "fulfil_x"]
    assert len(supervisor.runs) == 4


def test_a_failure_of_airflow_fails_the_task_after_the_others(
    run: Callable[..., Any], supervisor: Supervisor
) -> None:
    """What could not be triggered fails the task; the retry triggers only that."""
    supervisor.broken = {"fulfil_de"}
    to = "data.country == 'de' ? 'fulfil_de' : 'fulfil_rest'"
    with pytest.raises(WindsockError, match="1 of 4 runs"):
        run(to)
    assert len(supervisor.runs) == 3
    supervisor.broken = set()
    assert len(run(to)) == len(supervisor.runs) == 4


def test_run_ids() -> None:
    """They are made of the event and nothing else, are what Airflow allows, and differ for a replay."""
    assert run_id_of(ORDER) == run_id_of(Event.from_dict(ORDER.as_dict()))
    assert re.fullmatch(r"windsock__o_1__[0-9a-f]{16}", run_id_of(ORDER))
    replayed = Event.decode(ORDER.encode(), replay="again")
    assert run_id_of(replayed) != run_id_of(ORDER)
    assert len(run_id_of(Event.make(source="s", type="t", id="x" * 2000))) < 250
