"""claim() and dead_letter() outside and inside a task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.definitions.xcom_arg import XComArg

from windsock.airflow import claim as claim_module
from windsock.airflow.claim import ClaimOperator, claim, dead_letter, group_by_key
from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.records import Write
from windsock.spec import Batching, WatcherSpec

orders = Asset("shop/orders")


@pytest.fixture
def shop(log: Log) -> Log:
    """A log with five events of one watcher, which batches by three."""
    spec = WatcherSpec(name="orders", kind="memory", batch=Batching(size=3))
    log.register(spec, source="s", asset="shop/orders")
    log.subscribe("orders", "fulfil")
    events = [Event.make({"n": n}, source="s", type="t", id=n, key=f"k{n % 2}") for n in range(5)]
    log.append([Write(watcher="orders", events=events)])
    return log


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As if inside a task of the run ``r1``."""
    context = {"dag_run": SimpleNamespace(dag_id="fulfil", run_id="r1")}
    monkeypatch.setattr(claim_module, "get_current_context", lambda: context)
    return context


def test_in_a_dag_it_is_a_task() -> None:
    """In the body of a Dag claim() gives something to map over, with a task of a telling name."""
    with DAG("fulfil", schedule=None) as dag:
        output = claim(orders, retries=5)
    assert isinstance(output, XComArg)
    task = dag.get_task("claim_shop_orders")
    assert isinstance(task, ClaimOperator)
    assert task.retries == 5


@pytest.mark.usefixtures("shop", "in_task")
def test_in_a_task_it_returns_events_and_the_same_ones_again() -> None:
    """Inside a task: events, at most the watcher's batch, and the same ones on a second call."""
    first = claim(orders)
    assert [event.data["n"] for event in first] == [0, 1, 2]
    assert claim(orders) == first


@pytest.mark.usefixtures("shop", "in_task")
def test_by_key_and_limit() -> None:
    """Grouped by key, ordered inside; the limit is the caller's."""
    groups = claim(orders, by="key", limit=5)
    assert [[event.data["n"] for event in group] for group in groups] == [[0, 2, 4], [1, 3]]


@pytest.mark.usefixtures("shop")
def test_the_operator_returns_plain_values(in_task: dict[str, Any]) -> None:
    """What is mapped over are dicts, which lead back to equal events."""
    values = ClaimOperator(task_id="claim", asset=orders).execute(in_task)
    assert [value["data"]["n"] for value in values] == [0, 1, 2]
    assert [Event.from_dict(value) for value in values] == claim(orders)
    groups = ClaimOperator(task_id="groups", asset=orders, by="key").execute(in_task)
    assert [[value["key"] for value in group] for group in groups] == [["k0", "k0"], ["k1"]]


@pytest.mark.usefixtures("shop")
def test_the_operator_never_returns_more_than_airflow_maps_over(
    in_task: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[core] max_map_length`` bounds a claim that is mapped over."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    assert len(ClaimOperator(task_id="claim", asset=orders, limit=5).execute(in_task)) == 2


@pytest.mark.usefixtures("in_task")
def test_dead_letter_sets_one_event_aside(shop: Log) -> None:
    """One event goes to the dead letters with the reason, as an event or as a dict; the rest stay."""
    events = claim(orders)
    dead_letter(events[0], "no such customer")
    dead_letter(events[1].as_dict(), "no such product")
    assert [letter.reason for letter in shop.dead_letters()] == ["no such product", "no such customer"]
    assert shop.settle("fulfil", "r1", ok=True) == 1


@pytest.mark.usefixtures("shop", "in_task")
def test_mistakes_are_named() -> None:
    """An unknown asset, an event from nowhere and a wrong grouping say what to do."""
    with pytest.raises(WindsockError, match="no watcher of asset 'elsewhere'"):
        claim(Asset("elsewhere"))
    with pytest.raises(WindsockError, match="has no seq"):
        dead_letter(Event.make(source="s", type="t"), "because")
    with pytest.raises(WindsockError, match="by='key'"):
        claim(orders, by="user")  # type: ignore[arg-type]


def test_events_without_a_key_stand_alone() -> None:
    """Grouping puts only equal keys together."""
    events = [
        Event(id=str(n), source="s", type="t", key=key, seq=n) for n, key in enumerate(["a", None, "a", None])
    ]
    assert [[event.seq for event in group] for group in group_by_key(events)] == [[0, 2], [1], [3]]
