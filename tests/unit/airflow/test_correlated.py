"""Correlations and expectations as a user declares them, and who is subscribed to what."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset

from windsock.airflow import claim as claim_module
from windsock.airflow.claim import claim
from windsock.airflow.declare import load_assets
from windsock.airflow.keeper import Keeper
from windsock.events import Event
from windsock.log import Log
from windsock.log.records import Write
from windsock.rules import all_of
from windsock.spec import SpecError, WatcherSpec
from windsock.watchers import CorrelatedAssetWatcher, EventWatcher, ExpectationAssetWatcher

RULE = {"all_of": ["orders", "payments"], "within": "1h", "by": "data.id"}


def spec(watcher: EventWatcher) -> WatcherSpec:
    """What the watcher's trigger carries."""
    found: WatcherSpec = watcher.trigger.spec
    return found


def test_a_rule_becomes_the_watchers_options() -> None:
    """The rule travels as plain values, with the watcher's name, which is the source's identity."""
    made = spec(CorrelatedAssetWatcher("paid", rule=all_of("orders", "payments", within="1h"), batch=5))
    assert made.kind == "correlate"
    assert made.options == {
        "watcher": "paid",
        "rule": {"rule": "all_of", "legs": ["orders", "payments"], "within": 3600.0},
    }
    assert WatcherSpec.from_dict(made.as_dict()) == made
    assert spec(ExpectationAssetWatcher("late", of="orders")).options == {"watcher": "late", "of": "orders"}


def test_a_mistake_is_refused_when_the_dag_is_parsed() -> None:
    """A wrong rule does not come as far as the triggerer."""
    with pytest.raises(SpecError, match=r"rule\.by, line 1, column"):
        CorrelatedAssetWatcher("paid", rule={**RULE, "by": "data.id +"})


def test_a_rule_can_be_declared_in_yaml(tmp_path: Path) -> None:
    """The same rule as a mapping."""
    (tmp_path / "watchers.yaml").write_text(
        "watchers:\n"
        "  paid:\n"
        "    kind: correlate\n"
        "    rule: {all_of: [orders, payments], within: 1h, by: data.id}\n"
    )
    (tmp_path / "assets.yaml").write_text("assets:\n  paid:\n    watchers: [paid]\n")
    watcher = load_assets(tmp_path)["paid"].watchers[0]
    assert watcher.trigger.spec.options == {"watcher": "paid", "rule": RULE}


@pytest.fixture
def specs() -> list[WatcherSpec]:
    """A correlation, its leg, and another watcher, all of one asset."""
    return [
        WatcherSpec(name="paid", kind="correlate", options={"watcher": "paid", "rule": RULE}),
        WatcherSpec(name="orders", kind="memory", options={"channel": "o"}),
        WatcherSpec(name="returns", kind="memory", options={"channel": "r"}),
    ]


def test_legs_of_the_same_asset_have_no_subscription(
    log: Log, specs: list[WatcherSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Dag is subscribed to results and to what is no leg; the leg is registered all the same."""
    plan = [("shop", specs)]
    monkeypatch.setattr(Keeper, "_scheduled_dags", lambda self: {"fulfil": (False, plan)})
    Keeper().sync_subscriptions(log)
    assert {place.watcher for place in log.subscriptions()} == {"paid", "returns"}
    assert log.watcher("orders") is not None


def test_claim_leaves_the_legs_alone(
    log: Log, specs: list[WatcherSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run gets results and not the events that they are made of."""
    for one in specs:
        log.register(one, source=one.name, asset="shop")
        log.append([Write(watcher=one.name, events=[Event(id=one.name, source="s", type="t")])])
    context: dict[str, Any] = {"dag_run": SimpleNamespace(dag_id="fulfil", run_id="r1")}
    monkeypatch.setattr(claim_module, "get_current_context", lambda: context)
    assert [event.id for event in claim(Asset("shop"))] == ["paid", "returns"]


def test_an_expectation_that_nobody_watches_is_told_once(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Declared expectations without a watcher for breaches are a line in the triggerer's log."""
    lonely = WatcherSpec.from_dict({"name": "orders", "kind": "memory", "expect": {"every": 60}})
    monkeypatch.setattr(Keeper, "_scheduled_dags", lambda self: {"fulfil": (False, [("shop", [lonely])])})
    monkeypatch.setattr("windsock.airflow.keeper.source_key", lambda kind, options: kind)
    keeper = Keeper()
    keeper.sync_subscriptions(log)
    keeper.sync_subscriptions(log)
    assert caplog.text.count("windsock.expectation.unheard watcher=orders") == 1
