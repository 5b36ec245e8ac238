"""Dead letters on a real Airflow: from the exception in a task to the letter, and the whole way back."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from live.field import Field
from windsock.gateway.auth import sign
from windsock.log.records import DeadRecord

pytestmark = pytest.mark.live

REFERENCE = Path(__file__).parents[2] / "reference" / "recovery" / "reprocess_dead_letters.py"
SECRET = "letters-secret-7d1f"
WANTED = ("letters_transient", "letters_invalid", "letters_alarmed", "reprocess_dead_letters_orders")


@pytest.fixture(scope="module")
def letters(field: Field) -> Field:
    """The field with the Dags of this test, parsed and subscribed."""
    shop = {"connection_id": "reference_shop", "conn_type": "windsock_webhook", "password": SECRET}
    field.stack.api.request("POST", "connections", json=shop)
    shutil.copy(Path(__file__).parent / "dags_dead_letters.py", field.dags / "dead_letters.py")
    shutil.copy(REFERENCE, field.dags / REFERENCE.name)
    for dag_id in WANTED:
        field.stack.wait_for(field.subscribed(dag_id), 120, f"the subscription of {dag_id}")
    return field


def closed(field: Field, watcher: str) -> list[DeadRecord]:
    """The redriven letters of a watcher."""
    return [one for one in field.log.dead_letters(watcher=watcher, state=None) if one.state == "redriven"]


def count_letters(field: Field, watcher: str, count: int) -> Callable[[], bool]:
    """A question for ``stack.wait_for``: are so many letters of the watcher open?"""
    return lambda: len(field.log.dead_letters(watcher=watcher)) == count


def test_transient_is_retried_and_succeeds(letters: Field) -> None:
    """A run that fails with it returns the event; the next run has it, and there never was a letter."""
    assert letters.post("letters_shaky", {"n": 1, "fail": 1}).status_code == 202
    letters.stack.wait_for(lambda: letters.times("letters_transient")[1] == 1, 120, "the second run")
    assert letters.log.dead_letters(watcher="letters_shaky", state=None) == []


def test_transient_letters_are_redriven_by_themselves(letters: Field) -> None:
    """After ``max_attempts`` it is buried as transient; the keeper redrives it, and then it succeeds."""
    assert letters.post("letters_shaky", {"n": 2, "fail": 2}).status_code == 202
    letters.stack.wait_for(lambda: letters.times("letters_transient")[2] == 1, 180, "the redriven event")
    [letter] = closed(letters, "letters_shaky")
    assert (letter.category, letter.attempts, letter.state) == ("transient", 2, "redriven")
    assert "Transient: the carrier is busy" in (letter.error or "")
    assert letters.log.dead_letters(watcher="letters_shaky") == []


def test_invalid_goes_to_the_letters_with_its_traceback(letters: Field) -> None:
    """The odd ones are set aside after one try, in spite of the task's retries; their neighbours arrive."""
    for n, odd in ((10, False), (11, True), (12, True), (13, False)):
        assert letters.post("letters_strict", {"n": n, "odd": odd}).status_code == 202
    letters.stack.wait_for(count_letters(letters, "letters_strict", 2), 120, "the letters")
    letters.stack.wait_for(letters.settled("letters_invalid"), 120, "the neighbours")
    for letter in letters.log.dead_letters(watcher="letters_strict"):
        assert (letter.category, letter.stage, letter.attempts) == ("invalid", "run", 1)
        assert "Traceback (most recent call last)" in (letter.error or "")
        assert (letter.error or "").strip().endswith("Invalid: an odd order")
        assert "/dags/letters_invalid/runs/" in letter.reason
    assert {n for _, n in letters.had("letters_invalid")} >= {10, 13}


def test_letters_that_accumulate_start_a_dag(letters: Field) -> None:
    """The watcher of letters tells a Dag, once in its window."""
    letters.stack.wait_for(lambda: letters.had("letters_alarmed"), 120, "the alert")
    assert letters.had("letters_alarmed") == [{"letters_strict": 2}]


def test_a_mended_dag_gets_the_redriven_events_under_their_ids(letters: Field) -> None:
    """`windsock dlq redrive` gives them back to the mended Dag, each once and as itself."""
    wanted = {letter.event_id for letter in letters.log.dead_letters(watcher="letters_strict")}
    (letters.folder / "letters_fixed").touch()
    code, redriven = letters.windsock("dlq", "redrive", "--watcher", "letters_strict")
    assert (code, redriven["delivered"]) == (0, 2)
    odd = [11, 12]

    def had() -> dict[str, int]:
        return {id: n for id, n in letters.had("letters_invalid") if n in odd}

    letters.stack.wait_for(lambda: len(had()) == 2, 120, "the redriven events")
    assert (set(had()), sorted(had().values())) == (wanted, odd)
    assert letters.log.dead_letters(watcher="letters_strict") == []


def test_the_reprocessing_dag_mends_what_it_can(letters: Field) -> None:
    """Of three orders one is good, one is mended and arrives under its id, one stays and is reported."""
    for data in ({"total": 1}, {"total": "2,50"}, {"note": "no total"}):
        body, now = json.dumps(data).encode(), str(int(time.time()))
        headers = {"X-Windsock-Timestamp": now, "X-Windsock-Signature": f"sha256={sign(SECRET, body, now)}"}
        url = f"{letters.stack.url}/windsock/hooks/reprocess_orders"
        answer = httpx.post(
            url, content=body, headers={"Content-Type": "application/json", **headers}, timeout=30
        )
        assert answer.is_success, answer.text
    letters.stack.wait_for(
        lambda: letters.log.dead_letters(watcher="reprocess_orders", state=None), 60, "the letters"
    )
    letters.stack.api.trigger("reprocess_dead_letters", run_id="by-hand")
    letters.stack.wait_for(
        lambda: letters.stack.api.run("reprocess_dead_letters", "by-hand").finished, 120, "the report"
    )
    [left] = letters.log.dead_letters(watcher="reprocess_orders")
    [mended] = closed(letters, "reprocess_orders")
    assert report(letters, "by-hand")["left"] == {str(left.id): "repair left it as it is"}
    # The Dag's own schedule may have come first.
    runs = [run.run_id for run in letters.stack.api.runs("reprocess_dead_letters") if run.finished]
    assert sum(report(letters, run_id)["redriven"] for run_id in runs) == 1
    letters.stack.wait_for(letters.settled("reprocess_dead_letters_orders"), 120, "the mended order")
    [trace] = letters.log.trace(mended.event_id or "")
    assert trace.event.data == {"total": 2.5}
    assert [place.state for place in trace.places] == ["done"]


def report(field: Field, run_id: str) -> Any:
    """What a run of the reprocessing Dag returned."""
    task = f"dags/reprocess_dead_letters/dagRuns/{quote(run_id, safe='')}/taskInstances/reprocess"
    answer = field.stack.api.request("GET", f"{task}/xcomEntries/return_value", params={"deserialize": True})
    return answer["value"]
