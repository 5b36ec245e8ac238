"""Who reads: at most one owner, fenced by the epoch."""

from __future__ import annotations

import pytest

from windsock.events import LeaseLost
from windsock.log.base import Log
from windsock.log.records import Beat, EventQuery, Lease, Write
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import SOURCE, LogScene, event, keys_of, watch

__all__ = ["LeaseContract"]


def taken(lease: Lease | None) -> Lease:
    """The lease, which must have been granted."""
    assert lease is not None
    return lease


class LeaseContract(LogScene):
    """Leases and the appends that carry them."""

    def test_free_lease_is_granted(self, log: Log, clock: VirtualClock) -> None:
        """The first to ask gets the lease for the time it asked for."""
        lease = taken(log.acquire("queue", "one", 30))
        assert (lease.name, lease.owner, lease.expires_at) == ("queue", "one", clock() + 30)

    def test_held_lease_is_refused_to_others(self, log: Log, clock: VirtualClock) -> None:
        """While one owner holds the lease, another gets none."""
        taken(log.acquire("queue", "one", 30))
        clock.advance(29)
        assert log.acquire("queue", "two", 30) is None

    def test_leases_are_independent(self, log: Log) -> None:
        """A lease on one name says nothing about another."""
        taken(log.acquire("queue", "one", 30))
        assert taken(log.acquire("topic", "two", 30)).owner == "two"

    def test_same_owner_gets_a_new_epoch(self, log: Log) -> None:
        """An owner that starts again fences its own past."""
        old = taken(log.acquire("queue", "one", 30))
        new = taken(log.acquire("queue", "one", 30))
        assert new.epoch > old.epoch
        with pytest.raises(LeaseLost):
            log.renew(old, 30)

    def test_renewed_lease_is_held_longer(self, log: Log, clock: VirtualClock) -> None:
        """Renewing keeps the epoch and moves the end."""
        lease = taken(log.acquire("queue", "one", 30))
        clock.advance(20)
        renewed = log.renew(lease, 30)
        assert (renewed.epoch, renewed.expires_at) == (lease.epoch, clock() + 30)
        clock.advance(20)
        assert log.acquire("queue", "two", 30) is None

    def test_late_renewal_succeeds_if_nobody_took_over(self, log: Log, clock: VirtualClock) -> None:
        """An expired lease that nobody wanted can still be renewed."""
        lease = taken(log.acquire("queue", "one", 30))
        clock.advance(100)
        assert log.renew(lease, 30).expires_at == clock() + 30
        assert log.acquire("queue", "two", 30) is None

    def test_expired_lease_is_taken_over(self, log: Log, clock: VirtualClock) -> None:
        """After the end another owner gets the lease, with a new epoch, and the old one learns it."""
        old = taken(log.acquire("queue", "one", 30))
        clock.advance(31)
        new = taken(log.acquire("queue", "two", 30))
        assert (new.owner, new.epoch) == ("two", old.epoch + 1)
        with pytest.raises(LeaseLost):
            log.renew(old, 30)

    def test_released_lease_is_free_at_once(self, log: Log) -> None:
        """After a release the next owner need not wait, and the epoch never starts again."""
        old = taken(log.acquire("queue", "one", 30))
        log.release(old)
        assert taken(log.acquire("queue", "two", 30)).epoch > old.epoch

    def test_stale_release_does_nothing(self, log: Log, clock: VirtualClock) -> None:
        """A late release by the old owner does not free the new owner's lease."""
        old = taken(log.acquire("queue", "one", 30))
        clock.advance(31)
        taken(log.acquire("queue", "two", 30))
        log.release(old)
        assert log.acquire("queue", "three", 30) is None

    def test_append_with_the_current_lease(self, log: Log) -> None:
        """The owner appends; a renewed lease is as good as the first."""
        watch(log, "orders", "fulfil")
        lease = taken(log.acquire("queue", "one", 30))
        log.append([Write(watcher="orders", events=[event("a")])], lease=lease)
        log.append([Write(watcher="orders", events=[event("b")])], lease=log.renew(lease, 30))
        assert log.backlog(["orders"]) == 2

    def test_stale_append_changes_nothing(self, log: Log, clock: VirtualClock) -> None:
        """An append by a former owner is refused whole: no event, no dedup key, no cursor, no counter."""
        watch(log, "orders", "fulfil")
        old = taken(log.acquire("queue", "one", 30))
        log.append([], source=SOURCE, cursor={"at": 1}, lease=old)
        clock.advance(31)
        new = taken(log.acquire("queue", "two", 30))
        before = log.health()
        write = Write(watcher="orders", events=[event("a")], dedup=keys_of("a"), filtered=3)
        with pytest.raises(LeaseLost):
            log.append([write], source=SOURCE, cursor={"at": 2}, lease=old)
        assert log.events(EventQuery()) == []
        assert log.cursor(SOURCE) == {"at": 1}
        assert log.health() == before
        [appended] = log.append([write], source=SOURCE, cursor={"at": 3}, lease=new)
        assert (len(appended.new), appended.duplicates) == (1, [])

    def test_append_after_release_is_refused(self, log: Log) -> None:
        """Who gave the lease back is no longer the owner."""
        watch(log, "orders", "fulfil")
        lease = taken(log.acquire("queue", "one", 30))
        log.release(lease)
        with pytest.raises(LeaseLost):
            log.append([Write(watcher="orders", events=[event("a")])], lease=lease)
        with pytest.raises(LeaseLost):
            log.renew(lease, 30)
        assert log.backlog(["orders"]) == 0

    def test_one_beat_for_many_readers(self, log: Log, clock: VirtualClock) -> None:
        """Readers beat together: each lease is renewed, each health stored, each told its own backlog."""
        watch(log, "orders", "fulfil", source="queue")
        watch(log, "parcels", "ship", source="topic")
        log.append([Write(watcher="orders", events=[event("a"), event("b")])])
        queue, topic = taken(log.acquire("queue", "one", 30)), taken(log.acquire("topic", "one", 30))
        clock.advance(20)
        beats = [Beat(lease=queue, state="running", lag=7), Beat(lease=topic, state="paused", error="slow")]
        first, second = log.beat(beats, 30)
        assert first is not None
        assert second is not None
        assert (first.lease.expires_at, first.backlog) == (clock() + 30, 2)
        assert (second.lease.expires_at, second.backlog) == (clock() + 30, 0)
        assert [spec.name for spec in (*first.specs, *second.specs)] == ["orders", "parcels"]
        shown = {health.source: (health.state, health.lag, health.error) for health in log.health()}
        assert shown == {"queue": ("running", 7, None), "topic": ("paused", None, "slow")}

    def test_a_beat_that_asks_hears_of_all_watchers(self, log: Log) -> None:
        """The total counts every watcher's backlog; the rank is that of the source's highest priority."""
        for name, source, priority in (
            ("a", "queue", 0),
            ("b", "topic", 3),
            ("c", "topic", 7),
            ("d", "x", 3),
        ):
            log.register(WatcherSpec(name=name, kind="memory", priority=priority), source=source)
            log.subscribe(name, "dag")
            log.append([Write(watcher=name, events=[event(f"{name}1"), event(f"{name}2")])])
        queue, topic = taken(log.acquire("queue", "one", 30)), taken(log.acquire("topic", "one", 30))
        beats = [Beat(lease=lease, state="running", total=True) for lease in (queue, topic)]
        kept = [one for one in log.beat(beats, 30) if one is not None]
        assert [(one.backlog, one.total, one.rank) for one in kept] == [(2, 8, 0), (4, 8, 2)]
        (plain,) = log.beat([Beat(lease=topic, state="running")], 30)
        assert plain is not None
        assert (plain.backlog, plain.total, plain.rank) == (4, None, 0)

    def test_a_beat_without_the_lease_is_refused_alone(self, log: Log, clock: VirtualClock) -> None:
        """A reader whose lease was taken over hears so and changes nothing; its neighbours go on."""
        watch(log, "orders", "fulfil", source="queue")
        old = taken(log.acquire("queue", "one", 30))
        other = taken(log.acquire("topic", "one", 30))
        clock.advance(31)
        new = taken(log.acquire("queue", "two", 30))
        log.beat([Beat(lease=new, state="running")], 30)
        lost, kept = log.beat([Beat(lease=old, state="backoff"), Beat(lease=other, state="running")], 30)
        assert lost is None
        assert kept is not None
        [health] = log.health()
        assert (health.owner, health.state) == ("two", "running")
        assert log.acquire("queue", "three", 30) is None

    def test_sources_that_nobody_wants_any_more(self, log: Log) -> None:
        """A source is unwanted when its Dags are gone, not while it never had one."""
        watch(log, "orders", source="queue")
        assert log.unwanted() == set()
        log.subscribe("orders", "fulfil")
        assert log.unwanted() == set()
        log.unsubscribe("orders", "fulfil")
        assert log.unwanted() == {"queue"}
        log.subscribe("orders", "audit")
        assert log.unwanted() == set()
