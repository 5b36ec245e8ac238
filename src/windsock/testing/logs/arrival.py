"""What arrives: events, dedup keys, dead letters, counters and the cursor, in one transaction."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from windsock.events import Category, DeadLetter, Event, WindsockError
from windsock.log.base import Log
from windsock.log.records import EventQuery, Write
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import SOURCE, LogScene, event, ids, keys_of, put, watch

__all__ = ["ArrivalContract"]

AWKWARD = {
    "every attribute": Event(
        id="1",
        source="https://shop.example/orders?x=1",
        type="order.created",
        time=dt.datetime(
            2026, 2, 28, 23, 59, 59, 123456, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))
        ),
        subject="order/1",
        data={"total": 12.5, "lines": [1, None, True, {"deep": [[]]}]},
        datacontenttype="application/json",
        dataschema="https://shop.example/order.json",
        key="customer-7",
        sequence="00042",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        correlation="c",
        cause="d",
        extensions={"text": "x", "number": -3, "flag": True},
    ),
    "all bytes": Event(id="2", source="s", type="t", data=bytes(range(256)), binary=True),
    "empty bytes": Event(id="3", source="s", type="t", data=b"", binary=True),
    "text of the world": Event(
        id="ключ-🔑", source="s", type="Größe", key="日本", data="é\u2028\u202e\ufffd😀"
    ),
    "NUL in the data": Event(id="4", source="s", type="t", data={"a\0b": "c\0d"}),
    "NUL in the attributes": Event(id="5\0", source="s\0", type="t\0", key="k\0", subject="\0"),
    "quotes and wildcards": Event(id="%_'\"\\", source="s", type="'; --", key='"', data="%s ? :x {0}"),
    "widest integers": Event(id="6", source="s", type="t", data=[2**63 - 1, -(2**63), 0.1, 1e308]),
    "empty texts": Event(id="", source="", type="", key="", data=""),
    "large": Event(id="7", source="s", type="t", data="x" * 900_000),
}


class ArrivalContract(LogScene):
    """Appending."""

    def test_new_events_get_their_place_in_order(self, log: Log) -> None:
        """Events are returned as they came, each with its place in the log, ascending across appends."""
        watch(log, "orders", "fulfil")
        first = [event("a", data={"n": 1}), event("b")]
        [one] = log.append([Write(watcher="orders", events=first)])
        [two] = log.append([Write(watcher="orders", events=[event("c")])])
        seqs = [stored.seq for stored in one.new + two.new]
        assert None not in seqs
        assert seqs == sorted(set(seqs), key=lambda seq: seq or 0)
        assert [msgspec.structs.replace(stored, seq=None) for stored in one.new] == first
        assert (one.duplicates, two.duplicates) == ([], [])

    @pytest.mark.parametrize("awkward", AWKWARD.values(), ids=list(AWKWARD))
    def test_event_comes_back_as_it_went_in(self, log: Log, awkward: Event) -> None:
        """Whatever an event holds, a claim and a query return the very same."""
        watch(log, "orders", "fulfil", key="key")
        [appended] = log.append([Write(watcher="orders", events=[awkward])])
        [stored] = appended.new
        [claimed] = log.claim(["orders"], "fulfil", "r1")
        [record] = log.events(EventQuery(id=awkward.id))
        assert stored == claimed == record.event
        assert msgspec.structs.replace(claimed, seq=None) == awkward
        assert msgspec.structs.replace(claimed, seq=None).encode() == awkward.encode()

    def test_bodies_spare_the_encoding(self, log: Log) -> None:
        """Events whose encoded form comes along are the same events."""
        watch(log, "orders", "fulfil")
        events = list(AWKWARD.values())
        bodies = [item.encode() for item in events]
        [appended] = log.append([Write(watcher="orders", events=events, bodies=bodies)])
        claimed = log.claim(["orders"], "fulfil", "r1")
        assert claimed == appended.new
        assert [msgspec.structs.replace(item, seq=None) for item in claimed] == events

    def test_one_answer_per_write(self, log: Log) -> None:
        """Several watchers are served in one transaction, answered in the order of the writes."""
        watch(log, "orders", "fulfil")
        watch(log, "returns", "fulfil")
        answers = log.append(
            [
                Write(watcher="returns", events=[event("r")]),
                Write(watcher="orders", events=[event("a"), event("b")]),
                Write(watcher="returns", events=[]),
            ]
        )
        assert [ids(answer.new) for answer in answers] == [["r"], ["a", "b"], []]
        assert log.append([]) == []

    def test_duplicate_is_named_with_the_first(self, log: Log) -> None:
        """An event whose dedup key is known is not stored again and points at the first."""
        watch(log, "orders", "fulfil")
        [seq] = put(log, "orders", "a", dedup=True)
        write = Write(watcher="orders", events=[event("a", data=2), event("b")], dedup=keys_of("ab"))
        [appended] = log.append([write])
        assert ids(appended.new) == ["b"]
        assert appended.duplicates == [(event("a", data=2), seq)]
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]

    def test_duplicate_inside_one_write(self, log: Log) -> None:
        """The first of equals in one write is new, the others are its duplicates."""
        watch(log, "orders", "fulfil")
        events = [event("a", data=n) for n in range(3)]
        [appended] = log.append([Write(watcher="orders", events=events, dedup=keys_of("aaa"))])
        [first] = appended.new
        assert first.data == 0
        assert appended.duplicates == [(events[1], first.seq), (events[2], first.seq)]

    def test_duplicate_across_writes_and_watchers(self, log: Log) -> None:
        """The hash alone decides, across the writes of one append and across watchers."""
        watch(log, "orders", "fulfil")
        watch(log, "returns", "fulfil")
        one, two, three = log.append(
            [
                Write(watcher="orders", events=[event("a")], dedup=keys_of("a")),
                Write(watcher="returns", events=[event("a")], dedup=keys_of("a")),
                Write(watcher="returns", events=[event("a")], dedup=keys_of("a", scope="returns")),
            ]
        )
        assert (len(one.new), len(two.new), len(three.new)) == (1, 0, 1)
        assert two.duplicates == [(event("a"), one.new[0].seq)]

    def test_without_hashes_nothing_is_a_duplicate(self, log: Log) -> None:
        """Equal events without dedup keys are all stored."""
        watch(log, "orders", "fulfil", dedupe=0.0)
        assert len(put(log, "orders", "a", "a") + put(log, "orders", "a")) == 3

    def test_window_ends(self, log: Log, clock: VirtualClock) -> None:
        """Inside the window an equal event is a duplicate, after it a new one with its own window."""
        watch(log, "orders", "fulfil", dedupe=60.0)
        assert len(put(log, "orders", "a", dedup=True)) == 1
        clock.advance(59)
        assert put(log, "orders", "a", dedup=True) == []
        clock.advance(2)
        assert len(put(log, "orders", "a", "a", dedup=True)) == 1
        clock.advance(59)
        assert put(log, "orders", "a", dedup=True) == []

    def test_duplicate_points_at_the_first_of_its_window(self, log: Log, clock: VirtualClock) -> None:
        """After the window the duplicates name the event of the new window."""
        watch(log, "orders", "fulfil", dedupe=60.0)
        put(log, "orders", "a", dedup=True)
        clock.advance(61)
        [seq] = put(log, "orders", "a", dedup=True)
        [appended] = log.append([Write(watcher="orders", events=[event("a")], dedup=keys_of("a"))])
        assert [first for _, first in appended.duplicates] == [seq]

    def test_window_for_ever(self, log: Log, clock: VirtualClock) -> None:
        """Without a window an event is never stored twice."""
        watch(log, "orders", "fulfil", dedupe=None)
        put(log, "orders", "a", dedup=True)
        clock.advance(10 * 365 * 86_400)
        assert put(log, "orders", "a", dedup=True) == []

    def test_duplicates_make_no_work(self, log: Log) -> None:
        """An append of nothing but duplicates opens no batch and wakes nobody."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", dedup=True)
        log.claim(["orders"], "fulfil", "r1")
        log.settle("fulfil", "r1", ok=True)
        put(log, "orders", "a", dedup=True, flush=True)
        assert log.due(["orders"]) == []
        assert log.backlog(["orders"]) == 0

    def test_cursor_comes_with_the_events(self, log: Log) -> None:
        """The cursor is what the last append that carried one said, per source."""
        watch(log, "orders", "fulfil")
        assert log.cursor(SOURCE) is None
        position = {"offset": 2**53, "files": {"é": [1.5, None, True]}}
        log.append([Write(watcher="orders", events=[event("a")])], source=SOURCE, cursor=position)
        log.append([Write(watcher="orders", events=[event("b")])], source=SOURCE)
        log.append([], source="elsewhere", cursor={"offset": 1})
        assert log.cursor(SOURCE) == position
        log.append([], source=SOURCE, cursor={})
        assert log.cursor(SOURCE) == {}
        assert log.cursor("elsewhere") == {"offset": 1}

    def test_failed_append_changes_nothing(self, log: Log) -> None:
        """When any part of an append fails, no part of it stays."""
        watch(log, "orders", "fulfil")
        watch(log, "returns", "fulfil")
        good = Write(watcher="orders", events=[event("a")], dedup=keys_of("a"), filtered=2)
        bad = Write(watcher="returns", events=[event("b"), event("c", data=object())], dedup=keys_of("bc"))
        before = log.health()
        with pytest.raises(TypeError):
            log.append([good, bad], source=SOURCE, cursor={"at": 1})
        assert log.events(EventQuery()) == []
        assert log.cursor(SOURCE) is None
        assert log.health() == before
        [appended] = log.append([good])
        assert ids(appended.new) == ["a"]

    def test_unknown_watcher_is_refused(self, log: Log) -> None:
        """Events for a watcher that nobody registered are refused by name, with everything beside them."""
        watch(log, "orders", "fulfil")
        writes = [Write(watcher=name, events=[event(name)]) for name in ("orders", "nobody")]
        with pytest.raises(WindsockError, match="nobody"):
            log.append(writes)
        assert log.backlog(["orders"]) == 0

    def test_dead_and_filtered_are_counted(self, log: Log, clock: VirtualClock) -> None:
        """What the pipeline dropped is counted, what it set aside is kept byte for byte."""
        watch(log, "orders", "fulfil")
        dead = DeadLetter(
            stage="validate",
            category=Category.INVALID,
            reason="not JSON: \0 é",
            body=bytes(range(256)),
            error="Traceback…",
        )
        log.append([Write(watcher="orders", events=[], dead=[dead], filtered=5)])
        log.append([Write(watcher="orders", events=[event("a")], filtered=2)])
        [health] = log.health()
        assert (health.logged, health.filtered, health.dead, health.duplicates) == (1, 7, 1, 0)
        [record] = log.dead_letters()
        assert (record.watcher, record.stage, record.category) == ("orders", "validate", "invalid")
        assert (record.body, record.error, record.at) == (dead.body, dead.error, clock())
        assert (record.seq, record.dag_id, record.run_id) == (None, None, None)
        assert log.backlog(["orders"]) == 1

    def test_threads_append_side_by_side(self, log: Log) -> None:
        """Appends from many threads are all stored once, each thread's in its own order."""
        watch(log, "orders", "fulfil")

        def work(thread: int) -> None:
            for step in range(10):
                put(log, "orders", f"{thread}-{step}", f"shared-{step}", dedup=True)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        found = ids(log.claim(["orders"], "fulfil", "r1", limit=1000))
        assert len(found) == len(set(found)) == 50
        for thread in range(4):
            own = [id for id in found if id.startswith(f"{thread}-")]
            assert own == [f"{thread}-{step}" for step in range(10)]
