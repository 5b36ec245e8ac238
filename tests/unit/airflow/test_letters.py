"""What the keeper does for dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.airflow import letters
from windsock.airflow.letters import LetterCare, alert_on_letters
from windsock.events import Category, DeadLetter, Event
from windsock.log import Log
from windsock.log.records import Write
from windsock.spec import Retry, WatcherSpec

told: list[dict[str, Any]] = []


def hear(alert: dict[str, Any]) -> None:
    """The callback of these tests."""
    told.append(alert)


def refuse(alert: dict[str, Any]) -> None:
    """A callback that breaks."""
    raise RuntimeError("the pager is away")


@pytest.fixture
def letters_of(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log with three letters of one watcher, and an alert at more than two."""
    told.clear()
    monkeypatch.setenv("AIRFLOW__WINDSOCK__DEAD_LETTER_ALERT", "2/1h")
    monkeypatch.setenv("AIRFLOW__WINDSOCK__ALERT_CALLBACK", f"{__name__}:hear")
    log.register(WatcherSpec(name="w", kind="memory"), source="s")
    dead = [DeadLetter(stage="s", category=Category.INVALID, reason="r", body=b"{}")] * 3
    log.append([Write(watcher="w", events=[], dead=dead)])
    return log


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said at WARNING or above."""
    return [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_too_many_letters_are_told_once_in_the_window(
    letters_of: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning and one call, however many rounds and keepers look."""
    for _ in range(3):
        alert_on_letters(letters_of)
    (warning,) = warnings(caplog)
    assert warning.startswith("windsock.dead_letters.accumulating letters=3 in 3600 s, allowed=2: w=3")
    (alert,) = told
    assert alert == {
        "alert": "windsock.dead_letters.accumulating",
        "letters": 3,
        "allowed": 2,
        "seconds": 3600.0,
        "watchers": {"w": 3},
    }


@pytest.mark.parametrize("limit", ["", "3/1h"])
def test_what_is_allowed_is_not_told(
    letters_of: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Neither without the option nor at exactly its number."""
    monkeypatch.setenv("AIRFLOW__WINDSOCK__DEAD_LETTER_ALERT", limit)
    alert_on_letters(letters_of)
    assert (warnings(caplog), told) == ([], [])


@pytest.mark.parametrize("callback", [f"{__name__}:refuse", "nowhere:at_all", "no_colon"])
def test_a_callback_that_breaks_stops_nobody(
    letters_of: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, callback: str
) -> None:
    """The warning is given, and what the callback did is logged with its name."""
    monkeypatch.setenv("AIRFLOW__WINDSOCK__ALERT_CALLBACK", callback)
    alert_on_letters(letters_of)
    warning, failure = warnings(caplog)
    assert warning.startswith("windsock.dead_letters.accumulating")
    assert failure == f"windsock.alert.callback_failed callback={callback}"


def test_a_round_redrives_what_is_due(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """A letter whose watcher retries it without delay is with its Dag after one round."""
    caplog.set_level("INFO")
    retry = {"transient": Retry(attempts=1, delay=0.0)}
    log.register(WatcherSpec(name="w", kind="memory", max_attempts=1, retry=retry), source="s")
    log.subscribe("w", "d")
    log.append([Write(watcher="w", events=[Event.make(source="s", type="t", id="a")])])
    log.claim(["w"], "d", "r1")
    log.note_failure("d", "r1", "ship", error="busy", category=Category.TRANSIENT)
    log.settle("d", "r1", ok=False)
    care = LetterCare()
    care.round(log)
    care.round(log)
    assert [event.id for event in log.claim(["w"], "d", "r2")] == ["a"]
    retried = [r.message for r in caplog.records if r.name == letters.__name__]
    assert retried == ["windsock.dead_letters.retried delivered=1 appended=0 filtered=0 failed=0"]


def test_rounds_count_letters_now_and_then(letters_of: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round looks; the next ones wait a while."""
    looked: list[Log] = []
    monkeypatch.setattr(letters, "alert_on_letters", looked.append)
    care = LetterCare()
    for _ in range(3):
        care.round(letters_of)
    assert looked == [letters_of]
