"""Why runs failed, and which of their events are to blame."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import Category
from windsock.log.base import Log
from windsock.log.records import State
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, ids, put, states, watch

__all__ = ["FailuresContract"]


def fail(log: Log, run_id: str, *notes: dict[str, Any]) -> None:
    """A run claims what it can, its tasks fail with these notes, and it is settled."""
    log.claim(["orders"], "fulfil", run_id)
    for number, note in enumerate(notes):
        log.note_failure("fulfil", run_id, f"ship[{number}]", error=f"Traceback {number}", **note)
    log.settle("fulfil", run_id, ok=False, reason="see the run")


INVALID: dict[str, Any] = {"category": Category.INVALID}
TRANSIENT: dict[str, Any] = {"category": Category.TRANSIENT}
OTHER: dict[str, Any] = {}


class FailuresContract(LogScene):
    """Errors of tasks in the settlement of their run."""

    def test_invalid_is_buried_at_once(self, log: Log) -> None:
        """No further attempt is made, and the letter has category, reason and traceback."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        fail(log, "one", INVALID)
        [letter] = log.dead_letters()
        assert (letter.category, letter.stage, letter.attempts) == ("invalid", "run", 1)
        assert (letter.reason, letter.error) == ("see the run", "Traceback 0")
        assert states(log, "fulfil") == {"a": State.DEAD}

    def test_transient_is_tried_again_and_then_buried_as_such(self, log: Log, clock: VirtualClock) -> None:
        """It returns with backoff like any failure; after the last attempt its letter is transient."""
        watch(log, "orders", "fulfil", max_attempts=2, retry_delay=10.0)
        put(log, "orders", "a")
        fail(log, "one", TRANSIENT)
        assert log.dead_letters() == []
        assert log.claim(["orders"], "fulfil", "early") == []
        clock.advance(10)
        fail(log, "two", TRANSIENT)
        [letter] = log.dead_letters()
        assert (letter.category, letter.attempts, letter.error) == ("transient", 2, "Traceback 0")

    @pytest.mark.parametrize(
        ("notes", "category"),
        [
            ([], "poison"),
            ([OTHER], "poison"),
            ([TRANSIENT, OTHER], "poison"),
            ([TRANSIENT, TRANSIENT], "transient"),
            ([TRANSIENT, OTHER, INVALID], "invalid"),
        ],
    )
    def test_several_errors_of_one_run(self, log: Log, notes: list[dict[str, Any]], category: str) -> None:
        """A run is transient if all its errors are, invalid if one is, else nobody knows: poison."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        fail(log, "one", *notes)
        [letter] = log.dead_letters()
        assert letter.category == category
        assert (letter.error is None) == (not notes)

    def test_only_the_named_events_are_to_blame(self, log: Log) -> None:
        """The invalid one is buried, the transient one waits, the others come back at once and uncounted."""
        watch(log, "orders", "fulfil")
        first, _, third, _ = put(log, "orders", "a", "b", "c", "d")
        fail(log, "one", {**INVALID, "seqs": [third]}, {**TRANSIENT, "seqs": [first]})
        assert [(letter.event_id, letter.category) for letter in log.dead_letters()] == [("c", "invalid")]
        again = log.claim(["orders"], "fulfil", "two")
        assert [(event.id, event.attempt) for event in again] == [("b", 0), ("d", 0)]

    def test_an_unnamed_error_counts_for_the_others(self, log: Log, clock: VirtualClock) -> None:
        """Beside an event that is named, whatever else failed costs the rest an attempt."""
        watch(log, "orders", "fulfil", retry_delay=10.0)
        first, _ = put(log, "orders", "a", "b")
        fail(log, "one", {**INVALID, "seqs": [first]}, OTHER)
        assert log.claim(["orders"], "fulfil", "early") == []
        clock.advance(10)
        assert [(e.id, e.attempt) for e in log.claim(["orders"], "fulfil", "two")] == [("b", 1)]

    def test_who_names_only_strangers_names_nobody(self, log: Log, clock: VirtualClock) -> None:
        """An event that the run does not have is not to blame, so the run's own events pay."""
        watch(log, "orders", "fulfil", retry_delay=10.0)
        put(log, "orders", "a")
        fail(log, "one", {**TRANSIENT, "seqs": [999]})
        clock.advance(10)
        assert [e.attempt for e in log.claim(["orders"], "fulfil", "two")] == [1]

    def test_a_settled_run_leaves_no_error_behind(self, log: Log) -> None:
        """A cleared run that fails again without a word is not judged by its old error."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        fail(log, "one", INVALID)
        assert log.reopen("fulfil", "one") == 1
        assert log.dead_letters() == []
        log.settle("fulfil", "one", ok=False)
        [letter] = log.dead_letters()
        assert (letter.category, letter.error) == ("poison", None)

    def test_a_task_has_one_last_word(self, log: Log) -> None:
        """What a task failed with later replaces what it failed with before."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "one")
        log.note_failure("fulfil", "one", "ship", error="first", category=Category.INVALID)
        log.note_failure("fulfil", "one", "ship", error="second", category=Category.TRANSIENT)
        log.settle("fulfil", "one", ok=False)
        [letter] = log.dead_letters()
        assert (letter.category, letter.error) == ("transient", "second")

    def test_an_order_by_key_survives_blame(self, log: Log, clock: VirtualClock) -> None:
        """While a transient event waits, a later one of its key does not overtake it."""
        watch(log, "orders", "fulfil", key="subject", retry_delay=10.0)
        first, *_ = put(log, "orders", "a1", "b1", "a2", keyed=True)
        fail(log, "one", {**TRANSIENT, "seqs": [first]})
        assert ids(log.claim(["orders"], "fulfil", "two")) == ["b1"]
        clock.advance(10)
        assert ids(log.claim(["orders"], "fulfil", "three")) == ["a1", "a2"]
