"""Who is told: what is due, what was told, and the reminders."""

from __future__ import annotations

from windsock.log.base import Log
from windsock.log.records import Announcement
from windsock.spec import Batching
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, ids, put, watch

__all__ = ["AnnouncementContract"]


def tell(log: Log, *watchers: str) -> Announcement:
    """Announce the one thing that is due."""
    [announcement] = log.due(watchers)
    log.announced(announcement)
    return announcement


class AnnouncementContract(LogScene):
    """Announcing."""

    def test_claimable_events_are_due(self, log: Log) -> None:
        """An announcement names the watcher and the events that it is about."""
        watch(log, "orders", "fulfil")
        first, *_, last = put(log, "orders", "a", "b", "c")
        [due] = log.due(["orders"])
        assert (due.watcher, due.first, due.up_to, due.count) == ("orders", first, last, 3)
        assert (due.reminder, due.events) == (False, [])

    def test_nothing_is_due_without_events_or_dags(self, log: Log) -> None:
        """Neither an empty watcher nor one without Dags has anything to tell."""
        watch(log, "orders", "fulfil")
        watch(log, "returns")
        put(log, "returns", "r")
        assert log.due(["orders", "returns", "nobody"]) == []
        assert log.due([]) == []

    def test_unconfirmed_is_due_again(self, log: Log) -> None:
        """Asking what is due changes nothing, so an announcement that was lost is made again."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        [one] = log.due(["orders"])
        [two] = log.due(["orders"])
        assert (one.watcher, one.first, one.up_to, one.count) == (
            two.watcher,
            two.first,
            two.up_to,
            two.count,
        )

    def test_confirmed_is_not_due(self, log: Log) -> None:
        """Once told, a Dag is not told again before it claims, also when more arrives."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        tell(log, "orders")
        assert log.due(["orders"]) == []
        put(log, "orders", "b")
        assert log.due(["orders"]) == []

    def test_confirming_twice_is_confirming_once(self, log: Log, clock: VirtualClock) -> None:
        """A repeated confirmation does not push the reminder away."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        announcement = tell(log, "orders")
        log.announced(announcement)
        clock.advance(31)
        assert len(log.due(["orders"])) == 1

    def test_what_a_claim_leaves_is_due(self, log: Log) -> None:
        """After a claim the rest is due at once, and with no rest nothing is."""
        watch(log, "orders", "fulfil")
        seqs = put(log, "orders", "a", "b", "c")
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1", limit=2)
        [due] = log.due(["orders"])
        assert (due.first, due.up_to, due.count, due.reminder) == (seqs[2], seqs[2], 1, False)
        log.announced(due)
        log.claim(["orders"], "fulfil", "r2")
        assert log.due(["orders"]) == []

    def test_what_an_implicit_claim_leaves_is_due(self, log: Log) -> None:
        """A Dag that does not claim for itself is told of what came after its run was triggered."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        announcement = tell(log, "orders")
        put(log, "orders", "b")
        log.claim_announced("orders", "fulfil", "r1", up_to=announcement.up_to)
        [due] = log.due(["orders"])
        assert due.count == 1

    def test_same_run_claiming_again_wakes_nobody(self, log: Log) -> None:
        """A retried task that sees its events again does not count as a new claim."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1", limit=1)
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1", limit=1)
        assert log.due(["orders"]) == []

    def test_unclaimed_is_told_again_ever_more_slowly(self, log: Log, clock: VirtualClock) -> None:
        """Reminders come after 30 s, then after twice as long each time, at most an hour."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        tell(log, "orders")
        for wait in (30, 60, 120, 240, 480, 960, 1920, 3600, 3600):
            clock.advance(wait - 1)
            assert log.due(["orders"]) == []
            clock.advance(1)
            assert tell(log, "orders").reminder

    def test_claim_ends_the_slowness(self, log: Log, clock: VirtualClock) -> None:
        """After a claim the next reminder comes after 30 s again."""
        watch(log, "orders", "fulfil", batch=Batching(size=1))
        put(log, "orders", "a", "b")
        tell(log, "orders")
        clock.advance(30)
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1")
        assert not tell(log, "orders").reminder
        clock.advance(30)
        assert tell(log, "orders").reminder

    def test_paused_dag_is_not_told(self, log: Log, clock: VirtualClock) -> None:
        """A paused Dag makes nothing due, its events wait, and unpausing makes them due at once."""
        watch(log, "orders")
        log.subscribe("orders", "fulfil", paused=True)
        put(log, "orders", "a")
        clock.advance(10_000)
        assert log.due(["orders"]) == []
        assert log.backlog(["orders"]) == 1
        log.subscribe("orders", "fulfil", paused=False)
        assert tell(log, "orders").count == 1

    def test_unpausing_tells_at_once(self, log: Log, clock: VirtualClock) -> None:
        """A Dag that was told, paused and unpaused is told again without waiting for a reminder."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        for wait in (30, 60, 120):
            tell(log, "orders")
            clock.advance(wait)
        tell(log, "orders")
        log.subscribe("orders", "fulfil", paused=True)
        log.subscribe("orders", "fulfil", paused=False)
        assert tell(log, "orders").count == 1

    def test_subscribing_again_is_no_reason_to_tell(self, log: Log) -> None:
        """A Dag that is parsed again is not told again."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        tell(log, "orders")
        log.subscribe("orders", "fulfil")
        assert log.due(["orders"]) == []

    def test_one_announcement_for_all_dags(self, log: Log) -> None:
        """Several Dags of a watcher are told by one announcement."""
        watch(log, "orders", "fulfil", "audit")
        put(log, "orders", "a", "b")
        assert tell(log, "orders").count == 2
        assert log.due(["orders"]) == []

    def test_dag_that_did_not_claim_is_reminded(self, log: Log, clock: VirtualClock) -> None:
        """One Dag's claim does not cancel another's reminder."""
        watch(log, "orders", "fulfil", "audit")
        put(log, "orders", "a")
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1")
        assert log.due(["orders"]) == []
        clock.advance(30)
        assert tell(log, "orders").reminder

    def test_woken_dag_does_not_silence_another(self, log: Log) -> None:
        """A Dag that was not told yet is told, even while another is still awake."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        tell(log, "orders")
        log.subscribe("orders", "audit")
        [seq] = put(log, "orders", "b")
        assert tell(log, "orders").up_to == seq

    def test_each_watcher_is_told_on_its_own(self, log: Log) -> None:
        """Watchers have one announcement each, and only those that were asked for."""
        for name in ("orders", "returns", "refunds"):
            watch(log, name, "fulfil")
            put(log, name, name)
        assert {due.watcher for due in log.due(["orders", "returns"])} == {"orders", "returns"}
        tell(log, "orders")
        assert {due.watcher for due in log.due(["orders", "returns"])} == {"returns"}

    def test_few_small_events_come_inline(self, log: Log) -> None:
        """The events come along when they are few and small enough, else none of them."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        size = 2 * len(event("a").encode())

        def inline(count: int, limit: int) -> list[str]:
            [due] = log.due(["orders"], inline=count, inline_bytes=limit)
            return ids(due.events)

        assert inline(2, size) == ["a", "b"]
        assert inline(10, 10_000) == ["a", "b"]
        assert inline(1, 10_000) == []
        assert inline(10, size - 1) == []

    def test_announcement_has_the_events_of_every_told_dag(self, log: Log) -> None:
        """When Dags have different events to claim, what is announced covers each of them."""
        watch(log, "orders", "fulfil", "audit")
        a, _, c = put(log, "orders", "a", "b", "c")
        log.claim(["orders"], "fulfil", "r1", limit=2)
        log.settle("fulfil", "r1", ok=True)
        log.claim(["orders"], "audit", "r1", limit=1)
        log.claim(["orders"], "audit", "r2", limit=2)
        log.settle("audit", "r2", ok=True)
        log.release_run("audit", "r1")
        [due] = log.due(["orders"], inline=10, inline_bytes=10_000)
        assert ids(due.events) == ["a", "c"]
        assert (due.first, due.up_to, due.count) == (a, c, 2)

    def test_failed_events_are_due_after_their_backoff(self, log: Log, clock: VirtualClock) -> None:
        """What a failed run gives back is due when its time has come, not before."""
        watch(log, "orders", "fulfil", retry_delay=100.0)
        put(log, "orders", "a")
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        clock.advance(99)
        assert log.due(["orders"]) == []
        clock.advance(1)
        assert tell(log, "orders").count == 1

    def test_events_behind_a_busy_key_are_not_due(self, log: Log) -> None:
        """What nobody could claim now is not announced; it is when the key is free."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "a1", keyed=True)
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "r1")
        put(log, "orders", "a2", keyed=True)
        assert log.due(["orders"]) == []
        log.settle("fulfil", "r1", ok=True)
        assert tell(log, "orders").count == 1

    def test_run_that_found_nothing_is_no_reason_to_tell(self, log: Log) -> None:
        """While a key is busy, runs that end without events do not start more runs like them."""
        watch(log, "orders", "fulfil", key="key")
        put(log, "orders", "a1", "a2", keyed=True)
        tell(log, "orders")
        log.claim(["orders"], "fulfil", "busy", limit=1)
        assert log.claim(["orders"], "fulfil", "empty") == []
        log.settle("fulfil", "empty", ok=True)
        assert log.due(["orders"]) == []
        log.settle("fulfil", "busy", ok=True)
        assert tell(log, "orders").count == 1

    def test_retry_of_one_key_is_no_reason_to_tell(self, log: Log, clock: VirtualClock) -> None:
        """While an event waits for its retry, those behind it are not announced; with it they are."""
        watch(log, "orders", "fulfil", key="key", retry_delay=100.0)
        put(log, "orders", "a1", "a2", keyed=True)
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.settle("fulfil", "r1", ok=False)
        assert log.due(["orders"]) == []
        clock.advance(100)
        assert tell(log, "orders").count == 2

    def test_announcements_have_their_own_ids(self, log: Log, clock: VirtualClock) -> None:
        """No two announcements have the same id, whatever made them due; asked twice, one keeps its id."""
        watch(log, "orders", "fulfil", "audit")
        put(log, "orders", "a", "b")
        told = [tell(log, "orders").id]
        clock.advance(30)
        assert log.due(["orders"])[0].id == log.due(["orders"])[0].id
        told.append(tell(log, "orders").id)
        for dag_id in ("fulfil", "audit", "fulfil"):
            log.subscribe("orders", dag_id, paused=True)
            log.subscribe("orders", dag_id, paused=False)
            told.append(tell(log, "orders").id)
        log.claim(["orders"], "fulfil", "r1", limit=1)
        told.append(tell(log, "orders").id)
        log.claim(["orders"], "audit", "r1", limit=1)
        told.append(tell(log, "orders").id)
        assert len(told) == len(set(told))
