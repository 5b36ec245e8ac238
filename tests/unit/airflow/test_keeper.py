"""The keeper's own decisions; what it does with Airflow's database is in the live tests."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from windsock.airflow import keeper as keeper_module
from windsock.airflow.keeper import Keeper, run_link
from windsock.events import Event
from windsock.log import Log, LogUnavailable
from windsock.log.archive import ArchiveError
from windsock.log.records import Write
from windsock.spec import WatcherSpec


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


def test_it_purges_beside_its_rounds(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an hour what is old is forgotten, with an archive at hand; a round does not wait for it."""
    for name in ("sync_subscriptions", "claim_for_plain_dags", "settle_ended_runs"):
        monkeypatch.setattr(Keeper, name, lambda self, log: None)
    began, go, ended = threading.Event(), threading.Event(), threading.Event()
    given: list[Any] = []

    def purge(*, before: float, archive: Any) -> int:
        given.append(archive)
        began.set()
        assert go.wait(10)
        ended.set()
        return 0

    monkeypatch.setattr(log, "purge", purge)
    keeper = Keeper()
    keeper.round()
    assert not given
    keeper._purged_at -= 2 * keeper_module._PURGE_SECONDS
    keeper.round()
    assert began.wait(10)
    keeper.round()
    assert not ended.is_set()
    go.set()
    assert ended.wait(10)
    assert len(given) == 1


@pytest.mark.parametrize("trouble", [ArchiveError("no bucket"), ValueError("surprise")])
def test_a_purge_that_fails_is_told(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    """The keeper lives on, and the log says what was wrong."""

    def purge(**_: Any) -> int:
        raise trouble

    monkeypatch.setattr(log, "purge", purge)
    Keeper().purge(log)
    assert "windsock.log.purge_failed" in caplog.text
    assert str(trouble) in caplog.text


@pytest.mark.parametrize(
    ("tags", "start"),
    [
        (["shop"], {}),
        (["shop", "windsock:start=earliest"], {"fulfil": "earliest"}),
        (["windsock:start=2026-11-01T00:00:00Z"], {"fulfil": "2026-11-01T00:00:00Z"}),
        (["windsock:start=someday"], {}),
    ],
)
def test_a_tag_says_where_a_new_dag_begins(tags: list[str], start: dict[str, str]) -> None:
    """A Dag's own start is read from its tags; one that means nothing is left out."""
    assert keeper_module._start("fulfil", tags) == start


def test_a_new_dag_is_subscribed_at_its_start(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper hands the start on to the log when it makes the place."""
    spec = WatcherSpec(name="orders", kind="memory", options={"channel": "c"})
    log.register(spec, source="memory:c", asset="stock")
    log.subscribe("orders", "fulfil")
    log.append([Write(watcher="orders", events=[Event(id="a", source="s", type="t")])])
    keeper = Keeper()
    keeper._starts = {"audit": "earliest"}
    plan = [("stock", [spec])]
    dags = {"fulfil": (False, plan), "audit": (False, plan), "late": (False, plan)}
    monkeypatch.setattr(Keeper, "_scheduled_dags", lambda self: dags)
    keeper.sync_subscriptions(log)
    assert {place.dag_id: place.pending for place in log.subscriptions()} == {
        "fulfil": 1,
        "audit": 1,
        "late": 0,
    }
