"""Dead letters that are redriven by themselves, and how many there are."""

from __future__ import annotations

from windsock.events import Category, DeadLetter
from windsock.log.base import Log
from windsock.log.records import Write
from windsock.spec import Retry
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, put, watch

__all__ = ["RetryContract"]

POLICY = Retry(attempts=2, delay=100.0, cap=150.0, jitter=0.5)


def bury(log: Log, run_id: str, category: Category | None = Category.TRANSIENT) -> int:
    """A run fails with what it claimed; the letter."""
    log.claim(["orders"], "fulfil", run_id)
    log.note_failure("fulfil", run_id, "ship", error="busy", category=category)
    log.settle("fulfil", run_id, ok=False)
    return log.dead_letters()[0].id


class RetryContract(LogScene):
    """Retry policies of watchers, and the count that alerts stand on."""

    def test_a_letter_is_due_after_its_wait(self, log: Log, clock: VirtualClock) -> None:
        """Not a moment before: the delay, shortened by the letter's own share of the jitter."""
        watch(log, "orders", "fulfil", max_attempts=1, retry={"transient": POLICY})
        put(log, "orders", "a")
        letter = bury(log, "one")
        wait = POLICY.wait(0, str(letter))
        assert 50.0 <= wait <= 100.0
        clock.advance(wait - 1)
        assert log.letters_to_retry() == []
        clock.advance(2)
        assert log.letters_to_retry() == [letter]

    def test_waits_grow_to_the_cap_and_attempts_end(self, log: Log, clock: VirtualClock) -> None:
        """Each redriven letter of the event counts; after the last attempt it stays for a person."""
        watch(log, "orders", "fulfil", max_attempts=1, retry={"transient": POLICY})
        put(log, "orders", "a")
        first = bury(log, "one")
        clock.advance(100)
        log.redrive(log.letters_to_retry())
        second = bury(log, "two")
        assert (second != first, log.dead_letters()[0].retries) == (True, 1)
        clock.advance(POLICY.wait(1, str(second)) - 1)
        assert log.letters_to_retry() == []
        clock.advance(2)
        assert log.letters_to_retry() == [second]
        log.redrive([second])
        bury(log, "three")
        clock.advance(10_000)
        assert (log.letters_to_retry(), log.dead_letters()[0].retries) == ([], 2)

    def test_only_the_declared_category_is_retried(self, log: Log, clock: VirtualClock) -> None:
        """A poison letter of a watcher that retries transient ones stays."""
        watch(log, "orders", "fulfil", max_attempts=1, retry={"transient": POLICY})
        put(log, "orders", "a")
        bury(log, "one", None)
        clock.advance(10_000)
        assert log.letters_to_retry() == []

    def test_old_events_are_not_retried(self, log: Log, clock: VirtualClock) -> None:
        """The age counts from the event's arrival, up to the watcher's max_age."""
        watch(log, "orders", "fulfil", max_attempts=1, max_age=300.0, retry={"transient": POLICY})
        put(log, "orders", "a")
        clock.advance(200)
        letter = bury(log, "one")
        clock.advance(100)
        assert log.letters_to_retry() == [letter]
        clock.advance(1)
        assert log.letters_to_retry() == []

    def test_a_retry_in_vain_is_counted(self, log: Log, clock: VirtualClock) -> None:
        """A letter that never became an event stays the same letter; its waits and attempts go on."""
        watch(log, "orders", "fulfil", retry={"invalid": POLICY})
        dead = DeadLetter(stage="validate", category=Category.INVALID, reason="r", body=b"{}", event_id="a")
        log.append([Write(watcher="orders", events=[], dead=[dead])])
        [letter] = log.dead_letters()
        clock.advance(100)
        assert log.letters_to_retry() == [letter.id]
        log.retried_in_vain([letter.id])
        assert log.letters_to_retry() == []
        clock.advance(150)
        assert log.letters_to_retry() == [letter.id]
        log.retried_in_vain([letter.id])
        clock.advance(10_000)
        assert (log.letters_to_retry(), log.dead_letters()[0].retries) == ([], 2)

    def test_the_next_retry_is_foretold(self, log: Log, clock: VirtualClock) -> None:
        """The time that is told is the moment the letter becomes due; each attempt is one less."""
        watch(log, "orders", "fulfil", max_attempts=1, retry={"transient": POLICY})
        put(log, "orders", "a")
        for run_id, left in (("one", 2), ("two", 1)):
            letter = bury(log, run_id)
            told = log.next_retries([letter, 999])
            assert {name: retry.left for name, retry in told.items()} == {letter: left}
            clock.now = told[letter].at - 0.5
            assert log.letters_to_retry() == []
            clock.now = told[letter].at
            assert log.letters_to_retry() == [letter]
            log.redrive([letter])
            assert log.next_retries([letter]) == {}
        assert log.next_retries([bury(log, "three")]) == {}

    def test_a_retry_that_comes_too_late_is_not_foretold(self, log: Log, clock: VirtualClock) -> None:
        """Neither when its time lies past the event's max_age, nor when that has passed, nor unasked."""
        policy = Retry(attempts=2, delay=100.0, jitter=0.0)
        watch(log, "orders", "fulfil", max_attempts=1, max_age=300.0, retry={"transient": policy})
        put(log, "orders", "a")
        clock.advance(200)
        letter = bury(log, "one")
        assert list(log.next_retries([letter])) == [letter]
        clock.advance(101)
        assert log.next_retries([letter]) == {}
        put(log, "orders", "b", "c")
        clock.advance(201)
        assert log.next_retries([bury(log, "two")]) == {}
        put(log, "orders", "d")
        assert log.next_retries([bury(log, "three", None)]) == {}

    def test_the_longest_waiting_come_first(self, log: Log, clock: VirtualClock) -> None:
        """With more letters than asked for, nobody is passed over."""
        watch(log, "orders", "fulfil", retry={"invalid": POLICY})
        for name in ("a", "b", "c"):
            dead = DeadLetter(stage="s", category=Category.INVALID, reason="r", body=b"", event_id=name)
            log.append([Write(watcher="orders", events=[], dead=[dead])])
            clock.advance(1)
        oldest = sorted(letter.id for letter in log.dead_letters())
        clock.advance(1000)
        assert log.letters_to_retry(limit=2) == oldest[:2]

    def test_open_letters_are_counted_by_watcher(self, log: Log, clock: VirtualClock) -> None:
        """Older letters and closed ones do not count."""
        watch(log, "orders", "fulfil")
        watch(log, "parcels", "ship")
        dead = [DeadLetter(stage="s", category=Category.INVALID, reason="r", body=b"")] * 2
        log.append([Write(watcher="orders", events=[], dead=dead)])
        clock.advance(60)
        since = clock()
        log.append([Write(watcher=name, events=[], dead=dead) for name in ("orders", "parcels")])
        log.discard([log.dead_letters(watcher="parcels")[0].id])
        assert log.count_letters(since=since) == {"orders": 2, "parcels": 1}
