"""On a real Airflow: what the log knows over HTTP, a new Dag's beginning, and that everything agrees."""

from __future__ import annotations

import httpx
import pytest

from live.field import Field

pytestmark = pytest.mark.live

LATER = """
from airflow.sdk import Asset, dag, task
from windsock import claim
from windsock.watchers import WebhookAssetWatcher

asked = Asset("asked", watchers=[WebhookAssetWatcher(name="asked", auth="none")])

@dag(schedule=[asked]{tags})
def {name}():
    @task
    def nothing(event): ...
    nothing.expand(event=claim(asked))

{name}()
"""


def test_it_is_told_over_http_and_everything_agrees(field: Field) -> None:
    """An event is explained to who may read; a late Dag begins where its tag says; no gap is left."""
    (field.dags / "asks.py").write_text(LATER.format(name="asks", tags=""))
    field.stack.wait_for(field.subscribed("asks"), 120, "the first Dag")
    answer = field.post("asked", {"n": 1}, **{"Idempotency-Key": "asked-1"})
    assert answer.status_code == 202, answer.text
    field.stack.wait_for(field.settled("asks"), 120, "the event to be settled")

    url, token = f"{field.stack.url}/windsock/api/explain/asked-1", field.stack.api.token()
    bearer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    assert bearer.status_code == 200, bearer.text
    assert bearer.json()["ways"][0]["next"] == "asks: nothing, its run succeeded"
    assert httpx.get(url, headers={"Authorization": "Bearer x.y.z"}, timeout=30).status_code == 401

    (field.dags / "late.py").write_text(LATER.format(name="late", tags=', tags=["windsock:start=earliest"]'))
    field.stack.wait_for(field.subscribed("late"), 120, "the second Dag")
    field.stack.wait_for(field.settled("late"), 120, "the old event to reach it")
    assert [run.state for run in field.stack.api.runs("late")] == ["success"]

    code, found = field.windsock("reconcile", "--grace", "2min")
    assert (code, found["report"]["findings"]) == (0, []), found
    assert "unsettled runs" in found["report"]["compared"]
