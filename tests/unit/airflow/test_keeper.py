"""The keeper's own decisions; what it does with Airflow's database is in the live tests."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from windsock.airflow import keeper as keeper_module
from windsock.airflow.keeper import Keeper, run_link
from windsock.log import Log, LogUnavailable


def test_it_outlives_a_log_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that fail are repeated until one succeeds, whatever they failed with."""
    troubles: list[Exception] = [LogUnavailable("no route"), ValueError("surprise"), LogUnavailable("again")]
    done = threading.Event()

    def one_round(self: Keeper) -> None:
        if troubles:
            raise troubles.pop()
        done.set()

    monkeypatch.setattr(Keeper, "round", one_round)
    monkeypatch.setattr(keeper_module, "_FIRST_ROUND", 0.0)
    keeper = Keeper(interval=0.001)
    keeper.start()
    assert done.wait(10)
    keeper.stop()
    keeper.join(10)
    assert not keeper.is_alive()


def test_one_keeper_works_at_a_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second keeper leaves everything to the one that holds the lease."""
    worked: list[str] = []
    monkeypatch.setattr(Keeper, "sync_subscriptions", lambda self, log: worked.append(self._owner))
    monkeypatch.setattr(Keeper, "claim_for_plain_dags", lambda self, log: None)
    monkeypatch.setattr(Keeper, "settle_ended_runs", lambda self, log: None)
    first, second = Keeper(), Keeper()
    first._owner, second._owner = "first", "second"
    for keeper in (first, second, first, second):
        keeper.round()
    assert worked == ["first", "first"]


def test_what_an_asset_event_announced() -> None:
    """Of several announcements the furthest counts; other asset events are passed over."""

    def asset_event(payload: Any) -> Any:
        return SimpleNamespace(extra={"payload": payload})

    events = [
        asset_event({"windsock": {"watcher": "a", "up_to": 5}}),
        asset_event({"windsock": {"watcher": "a", "up_to": 9}}),
        asset_event({"windsock": {"watcher": "b", "up_to": 2}}),
        asset_event({"n": 1}),
        asset_event("text"),
        SimpleNamespace(extra=None),
    ]
    assert keeper_module._announced(events) == {"a": 9, "b": 2}


def test_the_link_of_a_run_is_a_link() -> None:
    """A run's id has colons and plus signs; its address has none."""
    assert run_link("my dag", "manual__2026-01-01T00:00:00+00:00").endswith(
        "/dags/my%20dag/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    )
