"""Who is there: watchers, and the Dags' places in their events."""

from __future__ import annotations

from windsock.log.base import Log
from windsock.log.records import Subscription
from windsock.spec import Batching, WatcherSpec
from windsock.testing.logs.scene import LogScene, ids, put, watch

__all__ = ["SubscriptionContract"]


def only(log: Log, watcher: str, dag_id: str) -> Subscription:
    """The Dag's place in the watcher's events."""
    [subscription] = log.subscriptions(watcher=watcher, dag_id=dag_id)
    return subscription


class SubscriptionContract(LogScene):
    """Registering and subscribing."""

    def test_registered_watcher_is_known_by_its_definition(self, log: Log) -> None:
        """A registered definition comes back equal, with every option it has."""
        spec = watch(
            log, "orders", key="data.id", dedupe=60.0, batch=Batching(size=7, within=2.5), max_attempts=9
        )
        assert log.watcher("orders") == spec
        assert log.watchers() == [spec]

    def test_unknown_watcher_is_none(self, log: Log) -> None:
        """Nobody is known in an empty log."""
        assert log.watcher("orders") is None
        assert log.watchers() == []
        assert log.watchers(source="elsewhere") == []

    def test_watchers_of_one_source_or_one_asset(self, log: Log) -> None:
        """Watchers are listed by source and by asset."""
        for name, source, asset in (("a", "s1", "x"), ("b", "s1", "y"), ("c", "s2", "x")):
            log.register(WatcherSpec(name=name, kind="memory"), source=source, asset=asset)
        assert {spec.name for spec in log.watchers(source="s1")} == {"a", "b"}
        assert {spec.name for spec in log.watchers(asset="x")} == {"a", "c"}
        assert {spec.name for spec in log.watchers(source="s1", asset="x")} == {"a"}

    def test_registering_again_brings_the_definition_up_to_date(self, log: Log) -> None:
        """The newest definition counts; without an asset the known one stays."""
        watch(log, "orders", asset="stock")
        changed = watch(log, "orders", asset=None, batch=Batching(size=3))
        assert log.watcher("orders") == changed
        assert log.watchers(asset="stock") == [changed]
        watch(log, "orders", asset="shop", batch=Batching(size=3))
        assert log.watchers(asset="stock") == []

    def test_registering_again_keeps_the_events_and_places(self, log: Log) -> None:
        """A new definition loses no event and moves no place."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        watch(log, "orders", max_attempts=1)
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]

    def test_first_dag_starts_at_the_first_event(self, log: Log) -> None:
        """What arrived before anybody subscribed belongs to the first Dag."""
        watch(log, "orders")
        put(log, "orders", "a", "b")
        log.subscribe("orders", "fulfil")
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]

    def test_later_dag_starts_at_the_next_event(self, log: Log) -> None:
        """A Dag that comes later gets what arrives from then on, not the past."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        log.subscribe("orders", "audit")
        put(log, "orders", "c")
        assert ids(log.claim(["orders"], "audit", "r1")) == ["c"]
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b", "c"]

    def test_later_dag_starts_inside_an_open_batch(self, log: Log) -> None:
        """A Dag that comes while a batch is open gets only that batch's later events."""
        watch(log, "orders", "fulfil", batch=Batching(size=2, within=60))
        put(log, "orders", "a")
        log.subscribe("orders", "audit")
        put(log, "orders", "b")
        assert ids(log.claim(["orders"], "audit", "r1")) == ["b"]

    def test_first_is_counted_per_watcher(self, log: Log) -> None:
        """A watcher's first Dag starts at its first event even if other watchers have Dags."""
        watch(log, "orders", "fulfil")
        watch(log, "returns")
        put(log, "returns", "a")
        log.subscribe("returns", "audit")
        assert ids(log.claim(["returns"], "audit", "r1")) == ["a"]

    def test_subscribing_again_keeps_the_place(self, log: Log) -> None:
        """A Dag that is parsed again does not get its past again, and misses nothing."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        put(log, "orders", "b")
        log.subscribe("orders", "fulfil")
        assert ids(log.claim(["orders"], "fulfil", "r2")) == ["b"]

    def test_paused_is_told(self, log: Log) -> None:
        """Subscribing says whether the Dag is paused, and says it anew each time."""
        watch(log, "orders")
        log.subscribe("orders", "fulfil", paused=True)
        assert only(log, "orders", "fulfil").paused
        log.subscribe("orders", "fulfil")
        assert not only(log, "orders", "fulfil").paused

    def test_unsubscribed_dag_counts_no_more(self, log: Log) -> None:
        """The events of a Dag that is gone are no backlog and wake nobody."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        assert log.backlog(["orders"]) == 2
        log.unsubscribe("orders", "fulfil")
        assert log.backlog(["orders"]) == 0
        assert log.due(["orders"]) == []
        assert not only(log, "orders", "fulfil").active

    def test_returning_dag_finds_its_place(self, log: Log) -> None:
        """A Dag that comes back goes on where it was, including what arrived while it was gone."""
        watch(log, "orders", "fulfil", batch=Batching(size=1))
        put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        log.unsubscribe("orders", "fulfil")
        put(log, "orders", "c")
        log.subscribe("orders", "fulfil")
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=10)) == ["b", "c"]

    def test_unsubscribing_a_stranger_does_nothing(self, log: Log) -> None:
        """A Dag that never subscribed can be unsubscribed."""
        watch(log, "orders", "fulfil")
        log.unsubscribe("orders", "stranger")
        assert [place.dag_id for place in log.subscriptions()] == ["fulfil"]

    def test_place_has_its_counts(self, log: Log) -> None:
        """A place counts what is pending, claimed and dead, for itself alone."""
        watch(log, "orders", "fulfil", "audit")
        seqs = put(log, "orders", "a", "b", "c", "d")
        log.claim(["orders"], "fulfil", "r1", limit=3)
        log.dead_letter("fulfil", "r1", seqs[0], "broken")
        place = only(log, "orders", "fulfil")
        assert (place.watcher, place.asset, place.dag_id) == ("orders", "stock", "fulfil")
        assert (place.active, place.paused, place.explicit) == (True, False, True)
        assert (place.pending, place.claimed, place.dead) == (1, 2, 1)
        other = only(log, "orders", "audit")
        assert (other.pending, other.claimed, other.dead, other.explicit) == (4, 0, 0, False)

    def test_places_of_one_watcher_or_one_dag(self, log: Log) -> None:
        """Places are listed by watcher and by Dag."""
        watch(log, "orders", "fulfil", "audit")
        watch(log, "returns", "audit")
        assert {(place.watcher, place.dag_id) for place in log.subscriptions(watcher="orders")} == {
            ("orders", "fulfil"),
            ("orders", "audit"),
        }
        assert {place.watcher for place in log.subscriptions(dag_id="audit")} == {"orders", "returns"}
        assert len(log.subscriptions()) == 3
