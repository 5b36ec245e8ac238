"""Whole journeys on a real Airflow: from the door to the settled run."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from live.field import Field

pytestmark = pytest.mark.live


def test_dags_are_parsed_and_subscribed(field: Field) -> None:
    """Every Dag is imported without an error and has its place in the log."""
    for dag_id in (
        "waits",
        "fails",
        "knows_nothing",
        "survives",
        "in_order",
        "reads_files",
        "windsock_burst",
    ):
        field.stack.wait_for(field.subscribed(dag_id), 90, f"the subscription of {dag_id}")
    assert field.stack.api.import_errors() == []


def test_a_burst_reaches_runs_without_any_further_event(field: Field) -> None:
    """5 events in 2 s, then 1,000 at once, one run at a time: all arrive. Stock Airflow strands some."""
    field.stack.wait_for(field.subscribed("windsock_burst"), 90, "the subscription")
    field.signal.touch()
    with httpx.Client(base_url=field.stack.url, timeout=60) as client:
        for n in range(1005):
            answer = client.post("/windsock/hooks/burst", json={"n": n}, headers={"Idempotency-Key": str(n)})
            assert answer.status_code == 202, answer.text
    field.stack.wait_for(field.settled("windsock_burst"), 120, "the burst to be settled")
    assert sorted(field.had("windsock_burst")) == list(range(1005))

    def stock_is_quiet() -> bool:
        with psycopg.connect(field.airflow_url) as airflow:
            stored = airflow.execute(
                "SELECT count(*) FROM asset_event JOIN asset ON asset.id = asset_event.asset_id"
                " WHERE asset.name = 'stock-burst'"
            ).fetchone()
            queued = airflow.execute(
                "SELECT count(*) FROM asset_dag_run_queue WHERE target_dag_id = 'stock_burst'"
            ).fetchone()
        runs = field.stack.api.runs("stock_burst")
        return stored == (1005,) and queued == (0,) and all(run.finished for run in runs)

    field.stack.wait_for(stock_is_quiet, 180, "stock Airflow to become quiet", every=1.0)
    assert 0 < len(set(field.had("stock_burst"))) < 1005, "stock Airflow used to strand events of a burst"


def test_a_paused_dag_gets_its_events_after_unpause(field: Field) -> None:
    """50 events while the Dag is paused; after unpause all are processed, once."""
    field.stack.wait_for(field.subscribed("waits"), 90, "the subscription")
    field.stack.api.pause("waits")
    field.stack.wait_for(
        lambda: field.log.subscriptions(dag_id="waits")[0].paused, 30, "the pause to be seen"
    )
    for n in range(50):
        assert field.post("paused", {"n": n}).status_code == 202
    assert field.had("waits") == []
    field.stack.api.unpause("waits")
    field.stack.wait_for(field.settled("waits"), 120, "the paused events to be settled")
    assert sorted(field.had("waits")) == list(range(50))


def test_a_failed_run_returns_exactly_its_events(field: Field) -> None:
    """A failing run's events come back once, count attempts, and end done, or dead with the run's link."""
    field.stack.wait_for(field.subscribed("fails"), 90, "the subscription")
    field.post("failing", {"n": 1, "fail": 1})
    field.stack.wait_for(lambda: field.times("fails")[1] == 1, 90, "the second attempt to succeed")
    field.post("failing", {"n": 2, "fail": 99})
    field.stack.wait_for(lambda: field.log.dead_letters(watcher="failing"), 90, "the dead letter")
    (letter,) = field.log.dead_letters(watcher="failing")
    assert (letter.category, letter.attempts) == ("poison", 2)
    assert f"/dags/fails/runs/{letter.run_id}".replace(":", "%3A").replace("+", "%2B") in letter.reason
    field.post("failing", {"n": 3, "reject": True})
    field.stack.wait_for(field.settled("fails"), 90, "the rejected event to be set aside")
    assert field.log.dead_letters(watcher="failing")[0].category == "rejected"
    assert {"success", "failed"} <= {run.state for run in field.stack.api.runs("fails")}


def test_a_cleared_run_sees_the_same_events(field: Field) -> None:
    """Clearing a run runs it again on exactly its events."""
    field.stack.wait_for(field.subscribed("fails"), 90, "the subscription")
    field.post("failing", {"n": 10})
    field.stack.wait_for(lambda: field.times("fails")[10] == 1, 90, "the first run")
    notes = {note["run_id"] for note in field.notes("fails", 10)}
    field.post("failing", {"n": 11})
    field.stack.wait_for(lambda: field.times("fails")[11] == 1, 90, "the second run")
    (run_id,) = notes
    field.stack.api.clear_run("fails", run_id)
    field.stack.wait_for(lambda: field.times("fails")[10] == 2, 90, "the cleared run")
    assert all(10 in note["values"] and 11 not in note["values"] for note in field.notes("fails", 10))


def test_a_plain_consumer_finds_small_batches_inline(field: Field) -> None:
    """A Dag that knows nothing of Windsock gets the events in its asset events, and its run settles them."""
    field.stack.wait_for(field.subscribed("knows_nothing"), 90, "the subscription")
    for n in range(3):
        field.post("plain", {"n": n})
    field.stack.wait_for(field.settled("knows_nothing"), 120, "the plain run to settle its events")
    assert set(field.had("knows_nothing")) == {0, 1, 2}


def test_order_within_a_key(field: Field) -> None:
    """Mapped over keys, each key's events come in order."""
    field.stack.wait_for(field.subscribed("in_order"), 90, "the subscription")
    for n in range(120):
        field.post("keyed", {"user": f"u{n % 3}", "n": n})
    field.stack.wait_for(field.settled("in_order"), 120, "the keyed events to be settled")
    had: dict[str, list[int]] = {}
    for note in sorted(field.notes("in_order"), key=lambda note: note["values"][0][1]):
        for key, n in note["values"]:
            had.setdefault(key, []).append(n)
    assert had == {f"u{u}": list(range(u, 120, 3)) for u in range(3)}


POISON: list[tuple[Any, dict[str, str]]] = [
    (b"\xff\xfe not text", {"content-type": "application/octet-stream"}),
    (b"plain text", {"content-type": "text/plain"}),
    (b'{"n": NaN}', {"content-type": "application/json"}),
    (b'{"n": 1e999}', {"content-type": "application/json"}),
    (b'{"big": ' + b"9" * 400 + b"}", {"content-type": "application/json"}),
    (b'{"s": "\\ud800"}', {"content-type": "application/json"}),
    (b'{"zero": "\\u0000"}', {"content-type": "application/json"}),
    (b"[" * 5000 + b"]" * 5000, {"content-type": "application/json"}),
    (b'{"too": "' + b"x" * 5000 + b'"}', {"content-type": "application/json"}),
    (b"not json", {"content-type": "application/json"}),
    (b"", {"content-type": "application/json"}),
    (b'{"specversion": "0.3"}', {"content-type": "application/cloudevents+json"}),
]


def test_poison_stops_nobody(field: Field) -> None:
    """Bad payloads between good ones: good ones arrive, bad ones are answered, the triggerer lives."""
    field.stack.wait_for(field.subscribed("survives"), 90, "the subscription")
    pid = field.stack.pid("triggerer")
    url = f"{field.stack.url}/windsock/hooks/poison"
    for n, (body, headers) in enumerate(POISON):
        answer = httpx.post(url, content=body, headers=headers | {"Idempotency-Key": f"bad-{n}"}, timeout=30)
        assert answer.status_code < 500, (n, answer.text)
        assert field.post("poison", {"n": n}, **{"Idempotency-Key": f"good-{n}"}).status_code == 202
    field.stack.wait_for(field.settled("survives"), 120, "the good ones to be settled")
    had = field.times("survives")
    assert {f"good-{n}" for n in range(len(POISON))} <= set(had)
    assert set(had.values()) == {1}
    assert field.stack.alive("triggerer")
    assert field.stack.pid("triggerer") == pid


def test_dropped_files_reach_a_run(field: Field) -> None:
    """Files in a directory: complete ones are delivered once, other names are not."""
    field.stack.wait_for(field.subscribed("reads_files"), 90, "the subscription")
    for n in range(30):
        draft = field.inbox / f".{n}.tmp"
        draft.write_text(f"row,{n}\n")
        draft.rename(field.inbox / f"{n}.csv")
    (field.inbox / "notes.txt").write_text("not a csv")
    field.stack.wait_for(lambda: len(field.had("reads_files")) >= 30, 120, "the files to arrive")
    field.stack.wait_for(field.settled("reads_files"), 60, "the files to be settled")
    assert field.times("reads_files") == {f"{n}.csv": 1 for n in range(30)}


REMOVABLE = """
from airflow.sdk import Asset, dag, task
from windsock.watchers import FilesAssetWatcher

drops = Asset("removable", watchers=[FilesAssetWatcher(name="removable", path={path!r}, settle=0.2)])

@dag(schedule={schedule})
def removable():
    @task
    def nothing(): ...
    nothing()

removable()
"""


def test_a_dag_that_is_gone_leaves_no_reader(field: Field) -> None:
    """When the Dag no longer has the asset, its source is no longer read, whatever Airflow's trigger does."""
    inbox = field.inbox / "removable"
    inbox.mkdir()
    dag_file = field.dags / "removable.py"
    dag_file.write_text(REMOVABLE.format(path=str(inbox), schedule="[drops]"))
    field.stack.wait_for(field.subscribed("removable"), 120, "the new Dag")
    (inbox / "1.txt").write_text("read")
    field.stack.wait_for(lambda: logged(field, "removable") == 1, 60, "the first file")
    dag_file.write_text(REMOVABLE.format(path=str(inbox), schedule="None"))
    field.stack.wait_for(
        lambda: not field.log.subscriptions(dag_id="removable")[0].active, 60, "the end of the subscription"
    )
    source = next(h.source for h in field.log.health() if h.watcher == "removable")
    field.stack.wait_for(lambda: field.log.acquire(source, "the test", 300.0), 30, "the reader to let go")
    (inbox / "2.txt").write_text("not read")
    assert logged(field, "removable") == 1


def logged(field: Field, watcher: str) -> int:
    """How many events of a watcher are in the log."""
    return next(health.logged for health in field.log.health() if health.watcher == watcher)
