"""What is known: queries, dead letters, backlog, health and what is kept."""

from __future__ import annotations

import pytest

from windsock.events import Category, DeadLetter, Event, Verdict
from windsock.log.base import Log
from windsock.log.records import REMEMBERED, EventQuery, State, Write
from windsock.spec import Batching
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import SOURCE, LogScene, event, keys_of, put, states, watch

__all__ = ["KnowledgeContract"]

START = 1_700_000_000.0


def _named(query: EventQuery) -> str:
    """The fields that a query sets, for the name of its test."""
    default = EventQuery()
    fields = (name for name in query.__struct_fields__ if getattr(query, name) != getattr(default, name))
    return " ".join(f"{name}={getattr(query, name)}" for name in fields) or "all"


def found(log: Log, query: EventQuery) -> list[str]:
    """The ids that a query finds, in its order."""
    return [record.event.id for record in log.events(query)]


class KnowledgeContract(LogScene):
    """Looking, counting and forgetting."""

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (EventQuery(), "dcba"),
            (EventQuery(id="b"), "b"),
            (EventQuery(id="nothing"), ""),
            (EventQuery(key="k1"), "ca"),
            (EventQuery(type="paid"), "db"),
            (EventQuery(watcher="orders"), "cba"),
            (EventQuery(asset="shop"), "d"),
            (EventQuery(asset="stock"), "cba"),
            (EventQuery(dag_id="fulfil"), "cba"),
            (EventQuery(dag_id="audit"), "d"),
            (EventQuery(dag_id="stranger"), ""),
            (EventQuery(state=State.CLAIMED), "a"),
            (EventQuery(state=State.PENDING), "dcb"),
            (EventQuery(state=State.OPEN), ""),
            (EventQuery(since=START + 15), "dc"),
            (EventQuery(until=START + 15), "ba"),
            (EventQuery(since=START + 5, until=START + 25), "cb"),
            (EventQuery(text="needle"), "b"),
            (EventQuery(text="NEEDLE"), "b"),
            (EventQuery(text="100%"), "c"),
            (EventQuery(text="0_"), ""),
            (EventQuery(text="Grün"), "d"),
            (EventQuery(limit=2), "dc"),
            (EventQuery(type="paid", watcher="orders"), "b"),
            (EventQuery(key="k1", state=State.PENDING, since=START + 15), "c"),
        ],
        ids=lambda value: _named(value) if isinstance(value, EventQuery) else value or "nothing",
    )
    def test_every_field_narrows(
        self, log: Log, clock: VirtualClock, query: EventQuery, expected: str
    ) -> None:
        """A query finds what matches every field that is set, newest first."""
        watch(log, "orders", "fulfil", asset="stock")
        watch(log, "returns", "audit", asset="shop")
        for watcher, item in (
            ("orders", Event(id="a", source="s", type="made", key="k1")),
            ("orders", Event(id="b", source="s", type="paid", key="k2", data={"hay": "a needle in it"})),
            ("orders", Event(id="c", source="s", type="made", key="k1", data="100% 0x")),
            ("returns", Event(id="d", source="s", type="paid", subject="Grün")),
        ):
            log.append([Write(watcher=watcher, events=[item])])
            clock.advance(10)
        log.claim(["orders"], "fulfil", "r1", limit=1)
        assert found(log, query) == list(expected)

    def test_pages_miss_nothing(self, log: Log) -> None:
        """Page after page, by the last seq, every event is seen once for every Dag."""
        watch(log, "orders", "fulfil", "audit")
        put(log, "orders", *"abcdefg")
        seen: list[tuple[str, str | None]] = []
        before: int | None = None
        while page := log.events(EventQuery(before=before, limit=3)):
            seen += [(record.event.id, record.dag_id) for record in page]
            before = page[-1].event.seq
        assert len(seen) == len(set(seen)) == 14

    def test_record_tells_the_story(self, log: Log, clock: VirtualClock) -> None:
        """A record says where the event came from, when, and how it stands for each Dag."""
        watch(log, "orders", "fulfil", "audit", retry_delay=10.0)
        put(log, "orders", "a")
        received = clock()
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=False)
        clock.advance(10)
        log.claim(["orders"], "fulfil", "r2")
        one, two = sorted(log.events(EventQuery(id="a")), key=lambda record: record.dag_id or "")
        for record in (one, two):
            assert (record.watcher, record.asset, record.received_at) == ("orders", "stock", received)
            assert record.batch is not None
        assert (one.dag_id, one.state, one.run_id, one.attempts) == ("audit", State.PENDING, None, 0)
        assert (two.dag_id, two.state, two.run_id, two.attempts) == ("fulfil", State.CLAIMED, "r2", 1)

    def test_settled_record_names_its_run(self, log: Log) -> None:
        """For an event that is done or dead the run that ended it is known."""
        watch(log, "orders", "fulfil")
        _, seq = put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.dead_letter("fulfil", "r1", seq, "broken")
        log.settle("fulfil", "r1", ok=True)
        assert [(record.state, record.run_id) for record in log.events(EventQuery())] == [
            (State.DEAD, "r1"),
            (State.DONE, "r1"),
        ]

    def test_event_without_dags_is_found(self, log: Log) -> None:
        """An event that nobody subscribed to has one record, for itself."""
        watch(log, "orders", batch=Batching(size=2, within=60))
        put(log, "orders", "a", "b", "c")
        records = log.events(EventQuery())
        assert [(record.event.id, record.dag_id, record.state) for record in records] == [
            ("c", None, State.OPEN),
            ("b", None, State.PENDING),
            ("a", None, State.PENDING),
        ]

    def test_newest_dead_letters(self, log: Log) -> None:
        """Dead letters are listed newest first, of one watcher if named."""
        for name in ("orders", "returns"):
            watch(log, name)
            for n in range(3):
                dead = DeadLetter(stage="s", category=Category.INVALID, reason=f"{name} {n}", body=b"")
                log.append([Write(watcher=name, events=[], dead=[dead])])
        assert [record.reason for record in log.dead_letters(limit=2)] == ["returns 2", "returns 1"]
        assert [record.reason for record in log.dead_letters(watcher="orders")] == [
            "orders 2",
            "orders 1",
            "orders 0",
        ]

    def test_backlog_counts_each_event_once(self, log: Log, clock: VirtualClock) -> None:
        """Backlog is what some Dag has not settled: open, pending, claimed or waiting, each counted once."""
        watch(log, "orders", "fulfil", "audit", batch=Batching(size=2, within=60))
        watch(log, "returns", "audit")
        put(log, "orders", "a", "b", "c")
        put(log, "returns", "r")
        assert log.backlog(["orders"]) == 3
        assert log.backlog(["orders", "returns"]) == 4
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        assert log.backlog(["orders"]) == 3
        log.claim(["orders"], "audit", "r1", limit=1)
        log.settle("audit", "r1", ok=True)
        assert log.backlog(["orders"]) == 2
        log.claim(["orders"], "audit", "r2", limit=1)
        log.settle("audit", "r2", ok=False)
        assert log.backlog(["orders"]) == 2

    def test_backlog_is_what_any_dag_has_left(self, log: Log) -> None:
        """Dags that settled different events have all of the others' left."""
        watch(log, "orders", "fulfil", "audit")
        seqs = put(log, "orders", "a", "b", "c")
        for dag_id, seq in (("fulfil", seqs[0]), ("audit", seqs[1])):
            log.claim(["orders"], dag_id, "r1")
            log.dead_letter(dag_id, "r1", seq, "broken")
        assert log.backlog(["orders"]) == 3

    def test_backlog_without_dags_is_nothing(self, log: Log) -> None:
        """Events that no Dag waits for do not hold a source back."""
        watch(log, "orders")
        put(log, "orders", "a")
        assert log.backlog(["orders"]) == 0
        assert log.backlog([]) == 0

    def test_counters(self, log: Log, clock: VirtualClock) -> None:
        """A watcher's counters add up over its appends."""
        watch(log, "orders", "fulfil")
        watch(log, "returns")
        put(log, "orders", "a", "b", dedup=True)
        clock.advance(5)
        put(log, "orders", "b", "c", dedup=True)
        last = clock()
        clock.advance(5)
        log.append([Write(watcher="orders", events=[], filtered=4)])
        health = {item.watcher: item for item in log.health()}
        orders, returns = health["orders"], health["returns"]
        assert (orders.asset, orders.source, orders.backlog) == ("stock", SOURCE, 3)
        assert (orders.logged, orders.duplicates, orders.filtered, orders.dead) == (3, 1, 4, 0)
        assert orders.last_event_at == last
        assert (returns.logged, returns.backlog, returns.last_event_at) == (0, 0, None)
        assert (returns.state, returns.owner, returns.heartbeat_at) == (None, None, None)

    def test_dead_is_counted_wherever_it_dies(self, log: Log) -> None:
        """The dead counter has what the pipeline, a failed run and a Dag set aside."""
        watch(log, "orders", "fulfil", max_attempts=1)
        dead = DeadLetter(stage="s", category=Category.INVALID, reason="", body=b"")
        [appended] = log.append([Write(watcher="orders", events=[event("a"), event("b")], dead=[dead])])
        log.claim(["orders"], "fulfil", "r1")
        assert appended.new[0].seq is not None
        log.dead_letter("fulfil", "r1", appended.new[0].seq, "broken")
        log.settle("fulfil", "r1", ok=False)
        assert [health.dead for health in log.health()] == [3]

    def test_heartbeat_is_seen_at_every_watcher_of_the_source(self, log: Log, clock: VirtualClock) -> None:
        """The reader's last word is seen at each watcher that it serves, and at no other."""
        watch(log, "orders")
        watch(log, "returns")
        log.register(watch(log, "refunds"), source="elsewhere")
        log.heartbeat(SOURCE, "one", "running", lag=7)
        clock.advance(5)
        log.heartbeat(SOURCE, "two", "backoff", error="connection refused")
        health = {item.watcher: item for item in log.health()}
        for name in ("orders", "returns"):
            item = health[name]
            assert (item.state, item.owner, item.heartbeat_at) == ("backoff", "two", clock())
            assert (item.lag, item.error) == (None, "connection refused")
        assert health["refunds"].state is None
        log.heartbeat(SOURCE, "two", "running", lag=0)
        [state] = {(item.state, item.lag, item.error) for item in log.health() if item.source == SOURCE}
        assert state == ("running", 0, None)

    def test_heartbeat_keeps_the_cursor(self, log: Log) -> None:
        """A heartbeat before or after an append does not touch the source's position."""
        log.heartbeat(SOURCE, "one", "running")
        assert log.cursor(SOURCE) is None
        log.append([], source=SOURCE, cursor={"at": 1})
        log.heartbeat(SOURCE, "one", "paused")
        assert log.cursor(SOURCE) == {"at": 1}

    def test_an_event_is_traced_through_its_runs(self, log: Log, clock: VirtualClock) -> None:
        """Where an event stands at each Dag, and which runs had it before."""
        watch(log, "orders", "fulfil", "audit", max_attempts=3)
        put(log, "orders", "a", "b")
        log.claim(["orders"], "audit", "only")
        for run_id in ("first", "second"):
            assert log.claim(["orders"], "fulfil", run_id)
            log.settle("fulfil", run_id, ok=False)
            clock.advance(3600)
        log.claim(["orders"], "fulfil", "third", limit=1)
        log.settle("fulfil", "third", ok=True)
        [a] = log.trace("a", watcher="orders")
        [b] = log.trace("b")
        ways = [(place.dag_id, place.run_id, place.state, place.attempts) for place in a.places]
        assert ways == [("audit", "only", State.CLAIMED, 0), ("fulfil", "third", State.DONE, 2)]
        earlier = [[(run.run_id, run.state, run.count) for run in one.places[1].earlier] for one in (a, b)]
        assert earlier == [[("first", "failed", 2), ("second", "failed", 2)]] * 2
        assert a.places[0].earlier == ()

    def test_purge_forgets_only_what_is_settled_and_old(self, log: Log, clock: VirtualClock) -> None:
        """Old events that every Dag has done or dead go; all others stay and can be claimed."""
        watch(log, "orders", "fulfil", "audit", max_attempts=1, batch=Batching(size=1))
        put(log, "orders", *"abcd")
        for dag_id in ("fulfil", "audit"):
            log.claim(["orders"], dag_id, "done")
            log.settle(dag_id, "done", ok=True)
            log.claim(["orders"], dag_id, "dead")
            log.settle(dag_id, "dead", ok=False)
        log.claim(["orders"], "fulfil", "half")
        log.settle("fulfil", "half", ok=True)
        log.claim(["orders"], "audit", "held")
        clock.advance(100)
        put(log, "orders", "e")
        assert log.purge(before=START) == 0
        assert log.purge(before=clock() - 1) == 2
        assert log.purge(before=clock() - 1) == 0
        assert set(found(log, EventQuery())) == {"c", "d", "e"}
        log.settle("audit", "held", ok=True)
        assert [item.id for item in log.claim(["orders"], "audit", "next", limit=9)] == ["d", "e"]
        assert [item.id for item in log.claim(["orders"], "fulfil", "next", limit=9)] == ["d", "e"]

    def test_purge_leaves_what_waits(self, log: Log, clock: VirtualClock) -> None:
        """Open, blocked, waiting and claimed events are not purged however old they are."""
        watch(log, "orders", "fulfil", key="key", batch=Batching(size=3, within=10**9), retry_delay=10.0)
        put(log, "orders", "a1", "b1", "b2", "c1", keyed=True)
        log.claim(["orders"], "fulfil", "r1", limit=1)
        log.settle("fulfil", "r1", ok=False)
        log.claim(["orders"], "fulfil", "r2", limit=1)
        assert log.claim(["orders"], "fulfil", "r3") == []
        before = states(log, "fulfil")
        assert before == {"a1": State.PENDING, "b1": State.CLAIMED, "b2": State.BLOCKED, "c1": State.OPEN}
        assert log.purge(before=clock() + 1) == 0
        assert states(log, "fulfil") == before

    def test_purge_does_not_wait_for_a_dag_that_is_gone(self, log: Log, clock: VirtualClock) -> None:
        """The place of an unsubscribed Dag keeps no event."""
        watch(log, "orders", "fulfil", "gone")
        put(log, "orders", "a")
        log.unsubscribe("orders", "gone")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        clock.advance(10)
        assert log.purge(before=clock()) == 1

    def test_purge_keeps_living_dedup_keys(self, log: Log, clock: VirtualClock) -> None:
        """An event that is forgotten is still recognised while its dedup window lasts."""
        watch(log, "orders", "fulfil", dedupe=1000.0)
        [seq] = put(log, "orders", "a", dedup=True)
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        clock.advance(500)
        assert log.purge(before=clock()) == 1
        [appended] = log.append([Write(watcher="orders", events=[event("a")], dedup=keys_of("a"))])
        assert [first for _, first in appended.duplicates] == [seq]
        clock.advance(501)
        log.purge(before=clock())
        assert len(put(log, "orders", "a", dedup=True)) == 1

    def test_purge_leaves_the_letter_of_a_cleared_run(self, log: Log, clock: VirtualClock) -> None:
        """A cleared run no longer finds an event that was purged, so the event's dead letter stays open."""
        watch(log, "orders", "fulfil", max_attempts=1)
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        clock.advance(10)
        log.settle("fulfil", "r1", ok=False)
        assert log.purge(before=clock() - 5) == 1
        assert log.claim(["orders"], "fulfil", "r1") == []
        assert [letter.event_id for letter in log.dead_letters()] == ["a"]

    def test_purge_counts_stay_true(self, log: Log, clock: VirtualClock) -> None:
        """Forgetting events changes neither the logged counter nor the place of a Dag."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        clock.advance(10)
        log.purge(before=clock())
        put(log, "orders", "c")
        [health] = log.health()
        assert (health.logged, health.backlog) == (3, 1)
        [place] = log.subscriptions()
        assert (place.pending, place.claimed, place.dead) == (1, 0, 0)

    def test_verdicts_are_remembered(self, log: Log) -> None:
        """What was filtered and what was a duplicate can be looked up by its id, with the reason."""
        watch(log, "orders", "fulfil")
        kept, other = event("a"), event("b")
        verdict = Verdict(stage="filter", verdict="filtered", event=other, reason="no such field")
        [first] = log.append([Write(watcher="orders", events=[kept], dedup=keys_of("a"), verdicts=[verdict])])
        log.append([Write(watcher="orders", events=[kept], dedup=keys_of("a"))])
        [filtered] = log.verdicts(event_id=other.id)
        assert (filtered.watcher, filtered.stage, filtered.reason) == ("orders", "filter", "no such field")
        assert filtered.event == other
        [duplicate] = log.verdicts(event_id=kept.id)
        assert (duplicate.verdict, duplicate.seq) == ("duplicate", first.new[0].seq)
        assert [record.event.id for record in log.verdicts(watcher="orders")] == [kept.id, other.id]

    def test_only_the_newest_verdicts_are_kept(self, log: Log) -> None:
        """A flood of filtered events cannot fill the log."""
        watch(log, "orders", "fulfil")
        flood = [Verdict(stage="filter", verdict="filtered", event=event(n)) for n in range(REMEMBERED + 50)]
        log.append([Write(watcher="orders", events=[], verdicts=flood[:60])])
        log.append([Write(watcher="orders", events=[], verdicts=flood[60:])])
        records = log.verdicts(watcher="orders", limit=2 * REMEMBERED)
        assert len(records) == REMEMBERED
        assert (records[0].event, records[-1].event) == (flood[-1].event, flood[50].event)
