"""How events flow: in sequence, debounced, throttled, limited, by priority, and not too late."""

from __future__ import annotations

import random

import pytest

from windsock.events import Event
from windsock.log.base import Log
from windsock.log.records import Scan, Write
from windsock.spec import Batching, Ordering
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, keys_of, put, watch

__all__ = ["FlowContract"]


def send(log: Log, *numbers: int, key: str = "k", watcher: str = "orders") -> None:
    """Append one event for each number, in one write."""
    events = [event(f"{key}{number}", key=key) for number in numbers]
    log.append([Write(watcher=watcher, events=events, numbers=numbers)])


def stored(log: Log) -> list[str]:
    """The ids of the stored events, in the order of the log."""
    return [found.event.id for found in log.scan(Scan())]


def taken(log: Log, run_id: str, *watchers: str, limit: int | None = None) -> list[str]:
    """The ids of what a run claims; the run succeeds."""
    events: list[Event] = log.claim(watchers or ["orders"], "fulfil", run_id, limit=limit)
    log.settle("fulfil", run_id, ok=True)
    return [one.id for one in events]


class FlowContract(LogScene):
    """Sequences, batches that wait, rates, priorities and ages."""

    def test_a_gap_is_waited_for(self, log: Log) -> None:
        """Events ahead of their turn are held, and follow at once when the gap is filled."""
        watch(log, "orders", "fulfil", key="key", sequence=Ordering(by="n"))
        send(log, 1, 3, 4)
        assert stored(log) == ["k1"]
        assert log.health()[0].held == 2
        send(log, 2)
        assert stored(log) == ["k1", "k2", "k3", "k4"]
        assert (log.health()[0].held, log.health()[0].late) == (0, 0)

    def test_keys_do_not_wait_for_each_other(self, log: Log) -> None:
        """A gap in one key holds nothing of another."""
        watch(log, "orders", "fulfil", key="key", sequence=Ordering(by="n"))
        send(log, 1, 3, key="a")
        send(log, 7, 8, key="b")
        assert stored(log) == ["a1", "b7", "b8"]

    def test_late_events_are_stored_and_counted(self, log: Log) -> None:
        """What comes after its turn is not lost."""
        watch(log, "orders", "fulfil", key="key", sequence=Ordering(by="n"))
        send(log, 5, 6)
        send(log, 4)
        assert stored(log) == ["k5", "k6", "k4"]
        assert log.health()[0].late == 1

    @pytest.mark.parametrize("limit", [False, True], ids=["too old", "too many"])
    def test_a_gap_is_given_up_and_the_rest_released(
        self, log: Log, clock: VirtualClock, limit: bool
    ) -> None:
        """After the wait, or past the limit, what is held goes on in order; the next gap waits anew."""
        ordering = Ordering(by="n", wait=60.0, limit=2 if limit else 1000)
        watch(log, "orders", "fulfil", key="key", sequence=ordering)
        send(log, 1, 3, 4, 6)
        if not limit:
            clock.advance(59)
            log.tick()
            assert stored(log) == ["k1"]
            clock.advance(1)
        log.tick()
        assert stored(log)[:3] == ["k1", "k3", "k4"]
        send(log, 5)
        assert stored(log) == ["k1", "k3", "k4", "k5", "k6"] if limit else sorted(stored(log))
        assert taken(log, "one") == stored(log)

    def test_a_gap_sets_aside_what_waits(self, log: Log, clock: VirtualClock) -> None:
        """With dead_letter the held events become dead letters, and their successor goes on."""
        watch(log, "orders", "fulfil", key="key", sequence=Ordering(by="n", wait=5.0, on_gap="dead_letter"))
        send(log, 1, 3, 4)
        clock.advance(6)
        log.tick()
        assert [letter.event_id for letter in log.dead_letters()] == ["k4", "k3"]
        send(log, 5)
        assert stored(log) == ["k1", "k5"]
        assert log.health()[0].held == 0

    def test_a_gap_can_be_held_for_ever(self, log: Log, clock: VirtualClock) -> None:
        """With hold nothing goes on without what is missing."""
        watch(log, "orders", "fulfil", key="key", sequence=Ordering(by="n", wait=5.0, on_gap="hold"))
        send(log, 1, 3)
        clock.advance(86400)
        log.tick()
        assert stored(log) == ["k1"]
        send(log, 2)
        assert stored(log) == ["k1", "k2", "k3"]

    @pytest.mark.parametrize("seed", range(20))
    def test_any_order_of_arrival_becomes_the_order_of_the_numbers(self, log: Log, seed: int) -> None:
        """However events are shuffled and cut into appends, each key is stored in order, once each."""
        chance = random.Random(seed)  # noqa: S311 - a reproducible shuffle
        watch(log, "orders", "fulfil", key="key", sequence=Ordering(by="n"))
        for key in "ab":
            send(log, 0, key=key)
        waiting = [(key, number) for key in "ab" for number in range(1, 16)]
        chance.shuffle(waiting)
        while waiting:
            cut = chance.randint(1, 7)
            part, waiting = waiting[:cut], waiting[cut:]
            events = [event(f"{key}{number}", key=key) for key, number in part]
            log.append([Write(watcher="orders", events=events, numbers=[number for _, number in part])])
        for key in "ab":
            assert [id for id in stored(log) if id[0] == key] == [f"{key}{n}" for n in range(16)]
        assert (log.health()[0].held, log.health()[0].late) == (0, 0)

    def test_overlapping_sources_of_one_asset_are_deduplicated(self, log: Log) -> None:
        """With the asset as scope, what one watcher brought is a duplicate for the other."""
        for name in ("files", "hooks"):
            watch(log, name, "fulfil", asset="stock", dedupe_scope="asset")
        watch(log, "other", "fulfil", asset="else", dedupe_scope="asset")
        keys = keys_of("a", scope="")
        [first] = log.append([Write(watcher="files", events=[event("a")], dedup=keys)])
        [again] = log.append([Write(watcher="hooks", events=[event("a")], dedup=keys)])
        [apart] = log.append([Write(watcher="other", events=[event("a")], dedup=keys)])
        assert (len(first.new), len(again.new), len(apart.new)) == (1, 0, 1)
        assert again.duplicates[0][1] == first.new[0].seq

    def test_leading_debounce(self, log: Log, clock: VirtualClock) -> None:
        """The first event after a pause is announced at once, what follows when it is quiet again."""
        watch(log, "orders", "fulfil", batch=Batching(quiet=10.0, leading=True))
        put(log, "orders", "a")
        assert taken(log, "one") == ["a"]
        put(log, "orders", "b")
        clock.advance(5)
        put(log, "orders", "c")
        log.tick()
        assert log.due(["orders"]) == []
        clock.advance(10)
        log.tick()
        assert taken(log, "two") == ["b", "c"]
        clock.advance(10)
        put(log, "orders", "d")
        assert taken(log, "three") == ["d"]

    def test_adaptive_batches(self, log: Log, clock: VirtualClock) -> None:
        """An idle Dag gets events at once; while it is busy they gather, up to the target time."""
        watch(log, "orders", "fulfil", batch=Batching(size=100, target=30.0))
        put(log, "orders", "a")
        [announcement] = log.due(["orders"])
        log.announced(announcement)
        put(log, "orders", "b")
        put(log, "orders", "c")
        log.tick()
        assert taken(log, "one") == ["a"]
        log.tick()
        assert taken(log, "two") == ["b", "c"]
        put(log, "orders", "d")
        log.announced(log.due(["orders"])[0])
        put(log, "orders", "e")
        clock.advance(30)
        log.tick()
        assert taken(log, "three") == ["d", "e"]

    def test_throttle(self, log: Log, clock: VirtualClock) -> None:
        """One announcement in the window; everything that came meanwhile goes along with the next."""
        watch(log, "orders", "fulfil", throttle=60.0)
        put(log, "orders", "a")
        log.announced(log.due(["orders"])[0])
        assert taken(log, "one") == ["a"]
        put(log, "orders", "b")
        put(log, "orders", "c")
        clock.advance(59)
        assert log.due(["orders"]) == []
        clock.advance(1)
        assert log.due(["orders"])[0].count == 2
        assert taken(log, "two") == ["b", "c"]

    def test_rate_limit(self, log: Log, clock: VirtualClock) -> None:
        """Runs take no more than the rate allows; the rest is announced when the window is over."""
        watch(log, "orders", "fulfil", rate_limit="3/m")
        put(log, "orders", *"abcde")
        assert taken(log, "one", limit=2) == ["a", "b"]
        assert taken(log, "two") == ["c"]
        assert log.due(["orders"]) == []
        assert taken(log, "three") == []
        clock.advance(60)
        assert log.due(["orders"])
        assert taken(log, "four") == ["d", "e"]

    def test_priorities(self, log: Log) -> None:
        """Among the watchers of an asset the higher priority is taken first, each in its order."""
        watch(log, "slow", "fulfil")
        watch(log, "fast", "fulfil", priority=5)
        put(log, "slow", "a", "b")
        put(log, "fast", "x", "y")
        assert taken(log, "one", "slow", "fast", limit=3) == ["a", "x", "y"]
        assert taken(log, "two", "slow", "fast") == ["b"]

    def test_what_waited_too_long_is_set_aside(self, log: Log, clock: VirtualClock) -> None:
        """Past max_age fresh and returned events become dead letters; newer ones and runs go on."""
        watch(log, "orders", "fulfil", max_age=100.0, retry_delay=1.0)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "one")
        log.settle("fulfil", "one", ok=False)
        put(log, "orders", "b", "c")
        log.claim(["orders"], "fulfil", "two", limit=1)
        clock.advance(101)
        put(log, "orders", "d")
        assert log.expire() == 2
        letters = log.dead_letters()
        assert {(letter.event_id, letter.category) for letter in letters} == {
            ("a", "expired"),
            ("c", "expired"),
        }
        log.settle("fulfil", "two", ok=True)
        assert taken(log, "three") == ["d"]
        assert log.expire() == 0
        log.redrive([letter.id for letter in letters])
        assert log.expire() == 0, "what was redriven on purpose does not expire again"
        assert taken(log, "four") == ["a", "c"]
