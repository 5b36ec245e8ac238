"""What a task raises, and what the log is told of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

import windsock
from windsock.airflow import listener
from windsock.airflow.outcome import MAX_ERROR, Invalid, Transient
from windsock.events import Event, WindsockError
from windsock.log import Log, LogUnavailable
from windsock.log.records import DeadRecord, Write
from windsock.spec import WatcherSpec


@pytest.fixture
def claimed(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Two events that the run r1 has; one attempt is all they get."""
    monkeypatch.setattr(listener, "_not_before", 0.0)
    log.register(WatcherSpec(name="w", kind="memory", max_attempts=1), source="s")
    log.subscribe("w", "d")
    log.append([Write(watcher="w", events=[Event.make(source="s", type="t", id=n) for n in "ab"])])
    return log.claim(["w"], "d", "r1")


def fails(error: Any, *, state: str = "failed", map_index: int = -1) -> None:
    """A task of the run fails, as Airflow tells its listeners."""
    task = SimpleNamespace(dag_id="d", run_id="r1", task_id="ship", map_index=map_index, state=state)
    listener.on_task_instance_failed(None, task, error)


def raised(error: Exception) -> Exception:
    """The error with a traceback."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def buried(log: Log) -> dict[str | None, DeadRecord]:
    """The letters of the failed run, by event."""
    log.settle("d", "r1", ok=False, reason="see the run")
    return {letter.event_id: letter for letter in log.dead_letters()}


def test_the_public_door_has_them() -> None:
    """A Dag imports both from ``windsock``."""
    assert (windsock.Invalid, windsock.Transient) == (Invalid, Transient)


def test_invalid_is_not_retried_by_airflow() -> None:
    """Airflow fails the task at once, whatever its ``retries``; a transient error is retried."""
    assert issubclass(Invalid, AirflowFailException)
    assert not issubclass(Transient, AirflowFailException)


def test_the_letter_has_the_traceback(log: Log, claimed: list[Event]) -> None:
    """Any error of a task is in the letters of its run, with the line that raised it."""
    fails(raised(KeyError("address")))
    letters = buried(log)
    assert {letter.category for letter in letters.values()} == {"poison"}
    for letter in letters.values():
        assert letter.error is not None
        assert "Traceback (most recent call last)" in letter.error
        assert letter.error.strip().endswith("KeyError: 'address'")


def test_an_event_is_named_as_claim_gave_it(log: Log, claimed: list[Event]) -> None:
    """As an event or as a mapped task's dict; the other one comes back."""
    fails(raised(Invalid("no address", claimed[0].as_dict())), map_index=0)
    fails(raised(Transient("busy", claimed[1])), map_index=1)
    assert {name: letter.category for name, letter in buried(log).items()} == {
        "a": "invalid",
        "b": "transient",
    }


def test_only_events_of_a_claim_can_be_named() -> None:
    """Something without a place in the log is refused where it is raised."""
    with pytest.raises(WindsockError, match="claim"):
        Invalid("no address", {"id": "a"})


def test_a_task_that_airflow_retries_has_not_failed_yet(log: Log, claimed: list[Event]) -> None:
    """Its error is not the run's."""
    fails(raised(Transient("busy")), state="up_for_retry")
    assert {letter.error for letter in buried(log).values()} == {None}


@pytest.mark.parametrize(("error", "stored"), [("heartbeat timed out", "heartbeat timed out"), (None, None)])
def test_what_the_scheduler_says_is_kept(
    log: Log, claimed: list[Event], error: str | None, stored: str | None
) -> None:
    """A sentence is stored as it is; nothing said is nothing stored."""
    fails(error)
    assert {letter.error for letter in buried(log).values()} == {stored}


def test_a_long_error_keeps_its_end(log: Log, claimed: list[Event]) -> None:
    """The end of a traceback says what happened."""
    fails("x" * MAX_ERROR + "the cause")
    (error,) = {letter.error for letter in buried(log).values()}
    assert error is not None
    assert error.endswith("the cause")
    assert len(error) == MAX_ERROR + 1


def test_a_log_that_is_away_fails_no_task(
    log: Log, claimed: list[Event], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and then not asked for a while; the letters lack the error."""

    def away(*args: object, **kwargs: object) -> None:
        raise LogUnavailable("no route to host")

    monkeypatch.setattr(log, "note_failure", away)
    fails("first")
    fails("second")
    assert [r.message for r in caplog.records] == ["windsock.failure.not_noted task=ship: no route to host"]


def test_a_surprise_fails_no_task(
    log: Log, claimed: list[Event], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong here is logged and goes no further."""

    def breaks(*args: object, **kwargs: object) -> None:
        raise ValueError("surprise")

    monkeypatch.setattr(log, "note_failure", breaks)
    fails("first")
    assert "windsock.failure.not_noted task=ship" in caplog.text
