"""Random lives of a log, compared with the model after every step.

Rules are what the world can do: append with duplicates, let time pass, claim, clear, settle, release, set
aside, announce, take over the lease, crash. On SQLite any step may first be cut off in the middle of its
transaction: then nothing must have changed.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from property.log_model import LogModel, Place
from windsock.events import Event, LeaseLost, dedup_hash
from windsock.log import LogUnavailable
from windsock.log.base import Log
from windsock.log.postgres import PostgresLog
from windsock.log.records import EventQuery, EventRecord, Lease, State, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import Batching, WatcherSpec
from windsock.testing.clock import VirtualClock
from windsock.testing.postgres import PostgresServer

Answer = TypeVar("Answer")
Open = Callable[[VirtualClock], Log]

SOURCE = "memory://model"
SPECS = [
    WatcherSpec(
        name="keyed",
        kind="memory",
        key="key",
        batch=Batching(size=4, within=20, quiet=8),
        max_attempts=3,
        retry_delay=5.0,
    ),
    WatcherSpec(
        name="plain", kind="memory", dedupe=40.0, batch=Batching(size=3), max_attempts=2, retry_delay=10.0
    ),
]
WATCHERS = [spec.name for spec in SPECS]
DAGS = ["one", "two", "late"]
FAR = 100_000

names = st.integers(0, 40)
watchers = st.sampled_from(WATCHERS)
several = st.sampled_from([["keyed"], ["plain"], ["keyed", "plain"]])
dags = st.sampled_from(DAGS)
times = st.sampled_from([1, 5, 8, 10, 20, 30, 60, 4000])
"""Seconds that let windows, retries and reminders just begin, just end, or all be over."""


class LogMachine(RuleBasedStateMachine):
    """One log and its model, living through the same."""

    def __init__(self, open_log: Open, *, reopen: bool, interrupt: bool) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.open_log = open_log
        self.can_reopen = reopen
        self.can_interrupt = interrupt
        self.log = open_log(self.clock)
        self.model = LogModel(SPECS)
        self.numbers = itertools.count()
        self.leases: list[Lease] = []
        self.logged: set[int] = set()

    def teardown(self) -> None:
        self.log.close()

    def do(self, cut: int | None, step: Callable[[], Answer]) -> Answer:
        """The step's answer; if it is cut off, nothing has changed, and it is done again."""
        if cut is None or not self.can_interrupt:
            return step()
        assert isinstance(self.log, SqliteLog)
        statement, cuts = "", iter([1])

        def begins(sql: str) -> None:
            nonlocal statement
            statement = sql

        def cut_off() -> int:
            return 0 if statement.startswith(("COMMIT", "ROLLBACK")) else next(cuts, 0)

        self.log._db.set_trace_callback(begins)
        self.log._db.set_progress_handler(cut_off, cut)
        try:
            return step()
        except LogUnavailable:
            pass
        finally:
            self.log._db.set_progress_handler(None, 0)
            self.log._db.set_trace_callback(None)
        self.agrees()
        return step()

    cuts = st.none() | st.integers(1, 400)

    @initialize(past=st.lists(st.lists(names, max_size=8), max_size=3))
    def start(self, past: list[list[int]]) -> None:
        for spec in SPECS:
            self.log.register(spec, source=SOURCE, asset="stock")
            for dag_id in DAGS[:2]:
                self.log.subscribe(spec.name, dag_id)
                self.model.subscribe(spec.name, dag_id, paused=False)
        for numbers in past:
            self.store({"keyed": (numbers, True), "plain": ([40 - n for n in numbers], True)}, None, None)

    # who is there

    @rule(name=watchers, dag_id=dags, paused=st.booleans(), cut=cuts)
    def subscribe(self, name: str, dag_id: str, paused: bool, cut: int | None) -> None:
        self.do(cut, lambda: self.log.subscribe(name, dag_id, paused=paused))
        self.model.subscribe(name, dag_id, paused)

    @rule(name=watchers, dag_id=dags)
    def unsubscribe(self, name: str, dag_id: str) -> None:
        self.log.unsubscribe(name, dag_id)
        if (name, dag_id) in self.model.places:
            self.model.places[name, dag_id].active = False

    # who reads

    @rule(owner=st.sampled_from(["left", "right"]), ttl=st.integers(5, 60), cut=cuts)
    def acquire(self, owner: str, ttl: int, cut: int | None) -> None:
        held, now = self.model.lease, self.clock()
        lease = self.do(cut, lambda: self.log.acquire("reader", owner, ttl))
        if held is not None and held.expires_at > now and held.owner != owner:
            assert lease is None
            return
        assert lease is not None
        assert (lease.owner, lease.expires_at) == (owner, now + ttl)
        assert lease.epoch == self.model.epoch + 1
        self.model.lease, self.model.epoch = lease, lease.epoch
        self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), ttl=st.integers(5, 60))
    def renew(self, data: st.DataObject, ttl: int) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        if self.model.current(lease):
            self.model.lease = self.log.renew(lease, ttl)
            assert self.model.lease.epoch == lease.epoch
        else:
            with pytest.raises(LeaseLost):
                self.log.renew(lease, ttl)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        self.log.release(lease)
        if self.model.current(lease):
            self.model.lease = None

    # what arrives

    @rule(
        parts=st.dictionaries(watchers, st.tuples(st.lists(names, max_size=6), st.booleans()), min_size=1),
        data=st.data(),
        cut=cuts,
    )
    def append(self, parts: dict[str, tuple[list[int], bool]], data: st.DataObject, cut: int | None) -> None:
        self.store(parts, data.draw(st.none() | st.sampled_from(self.leases)) if self.leases else None, cut)

    def store(self, parts: dict[str, tuple[list[int], bool]], lease: Lease | None, cut: int | None) -> None:
        """Append to the log and to the model."""
        cursor = {"at": next(self.numbers)}
        writes = []
        for name, (numbers, flush) in sorted(parts.items()):
            events = [Event(id=str(n), source="model", type="t", key=f"k{n % 3}") for n in numbers]
            hashes = [dedup_hash("model", event.id) for event in events]
            writes.append(Write(watcher=name, events=events, dedup=hashes, flush=flush))
        step = partial(self.log.append, writes, source=SOURCE, cursor=cursor, lease=lease)
        if not self.model.current(lease):
            with pytest.raises(LeaseLost):
                step()
            return
        answers = self.do(cut, step)
        for write, answer in zip(writes, answers, strict=True):
            self.model.append(write.watcher, write.events, write.dedup, write.flush, answer, self.clock())
            self.logged |= {event.seq for event in answer.new if event.seq is not None}
        self.model.cursor = cursor

    @rule(name=watchers)
    def append_what_cannot_be_stored(self, name: str) -> None:
        events = [
            Event(id="good", source="model", type="t"),
            Event(id="x", source="model", type="t", data=object()),
        ]
        hashes = [dedup_hash("model", event.id) for event in events]
        with pytest.raises(TypeError):
            self.log.append(
                [Write(watcher=name, events=events, dedup=hashes)], source=SOURCE, cursor={"at": -1}
            )

    @rule(cut=cuts)
    def close_batches(self, cut: int | None) -> None:
        assert self.do(cut, self.log.close_batches) == self.model.close_batches(self.clock())

    @rule(seconds=times, close=st.booleans())
    def let_time_pass(self, seconds: int, close: bool) -> None:
        self.clock.advance(seconds)
        if close:
            self.close_batches(None)

    # who is told

    @rule(confirm=st.integers(0, 2), cut=cuts)
    def announce(self, confirm: int, cut: int | None) -> None:
        now = self.clock()
        due = {item.watcher: item for item in self.log.due(WATCHERS, inline=FAR, inline_bytes=10**9)}
        expected = {name: places for name in WATCHERS if (places := self.model.due(name, now))}
        assert due.keys() == expected.keys()
        for name, places in expected.items():
            item = due[name]
            union = sorted({entry.seq for place in places for entry in place.claimable(now)})
            assert [event.seq for event in item.events] == union
            assert (item.first, item.count) == (union[0], len(union))
            assert item.up_to >= union[-1]
            assert item.reminder == any(place.wakes for place in places)
            for _ in range(confirm):
                told = [(place, place.claims) for place in places]
                self.do(cut, partial(self.log.announced, item))
                self.model.announced(told, now)

    @rule(name=watchers, claim=st.booleans(), seconds=times, data=st.data())
    def announce_late(self, name: str, claim: bool, seconds: int, data: st.DataObject) -> None:
        """Between becoming due and being confirmed, time passes and perhaps a run claims."""
        places = self.model.due(name, self.clock())
        told = [(place, place.claims) for place in places]
        due = self.log.due([name])
        assert len(due) == bool(told)
        self.clock.advance(seconds)
        if claim and places:
            self.new_run([name], data.draw(st.sampled_from(places)).dag_id, 2, None)
        for item in due:
            self.log.announced(item)
        self.model.announced(told, self.clock())

    # who has it

    @rule(several=several, dag_id=dags, limit=st.integers(1, 6), cut=cuts)
    def new_run(self, several: list[str], dag_id: str, limit: int, cut: int | None) -> None:
        if len(self.model.places_of(dag_id, several)) == len(several):
            self.claim(several, dag_id, f"r{next(self.numbers)}", limit, cut)

    @rule(
        several=several,
        dag_id=dags,
        limit=st.integers(1, 3),
        outcomes=st.lists(st.sampled_from(["ok", "failed", "gone"]), min_size=1, max_size=3),
        seconds=times,
    )
    def whole_run(
        self, several: list[str], dag_id: str, limit: int, outcomes: list[str], seconds: int
    ) -> None:
        """A run from claim to end, then cleared for each further outcome."""
        if len(self.model.places_of(dag_id, several)) < len(several):
            return
        run_id = f"r{next(self.numbers)}"
        for outcome in outcomes:
            self.claim(several, dag_id, run_id, limit, None)
            self.clock.advance(seconds)
            now = self.clock()
            if outcome == "gone":
                assert self.log.release_run(dag_id, run_id) == self.model.release_run(dag_id, run_id, now)
            else:
                ok = outcome == "ok"
                assert self.log.settle(dag_id, run_id, ok=ok) == self.model.settle(dag_id, run_id, ok, now)

    def claim(self, several: list[str], dag_id: str, run_id: str, limit: int, cut: int | None) -> None:
        known = any(run_id in place.runs for place in self.model.places_of(dag_id))
        before = self.records()
        got = self.do(cut, lambda: self.log.claim(several, dag_id, run_id, limit=limit))
        assert [(event.seq, event.attempt) for event in got] == self.model.claim(
            several, dag_id, run_id, limit, self.clock()
        )
        if not known:
            self.in_order(dag_id, {event.seq for event in got}, before)

    def in_order(
        self, dag_id: str, taken: set[int | None], before: dict[tuple[str | None, int], EventRecord]
    ) -> None:
        """No event was taken while an older one with its key was not settled, and none that a run had."""
        mine = [record for (owner, _), record in before.items() if owner == dag_id]
        oldest_left: dict[str | None, int] = {}
        for record in mine:
            seq = record.event.seq
            if seq in taken:
                assert record.state in (State.PENDING, State.BLOCKED)
            elif record.watcher == "keyed" and record.state not in (State.DONE, State.DEAD):
                assert seq is not None
                oldest_left[record.event.key] = min(seq, oldest_left.get(record.event.key, seq))
        for record in mine:
            if record.watcher == "keyed" and record.event.seq in taken:
                assert record.event.seq < oldest_left.get(record.event.key, record.event.seq + 1)

    def runs(self, *, active: bool | None = None) -> list[tuple[str, str]]:
        """The runs that the model remembers."""
        return sorted(
            {
                (place.dag_id, run_id)
                for place in self.model.places.values()
                for run_id, run in place.runs.items()
                if active in (None, run.active)
            }
        )

    @precondition(lambda self: self.runs())
    @rule(several=several, data=st.data(), limit=st.integers(1, 6), cut=cuts)
    def claim_again(self, several: list[str], data: st.DataObject, limit: int, cut: int | None) -> None:
        """A task is retried, a run is cleared, or it claims from another watcher."""
        dag_id, run_id = data.draw(st.sampled_from(self.runs()))
        if len(self.model.places_of(dag_id, several)) == len(several):
            self.claim(several, dag_id, run_id, limit, cut)

    @rule(name=watchers, dag_id=dags, back=st.integers(0, 5), cut=cuts)
    def triggered_run(self, name: str, dag_id: str, back: int, cut: int | None) -> None:
        if (name, dag_id) in self.model.places:
            run_id, up_to = f"r{next(self.numbers)}", self.model.watchers[name].last - back
            step = partial(self.log.claim_announced, name, dag_id, run_id, up_to)
            assert self.do(cut, step) == self.model.claim_announced(name, dag_id, run_id, up_to, self.clock())

    @precondition(lambda self: self.runs(active=True))
    @rule(data=st.data(), ok=st.booleans(), times=st.integers(1, 2), cut=cuts)
    def settle(self, data: st.DataObject, ok: bool, times: int, cut: int | None) -> None:
        dag_id, run_id = data.draw(st.sampled_from(self.runs(active=True)))
        for _ in range(times):
            step = partial(self.log.settle, dag_id, run_id, ok=ok)
            assert self.do(cut, step) == self.model.settle(dag_id, run_id, ok, self.clock())

    @precondition(lambda self: self.runs(active=True))
    @rule(data=st.data(), cut=cuts)
    def release_run(self, data: st.DataObject, cut: int | None) -> None:
        dag_id, run_id = data.draw(st.sampled_from(self.runs(active=True)))
        step = partial(self.log.release_run, dag_id, run_id)
        assert self.do(cut, step) == self.model.release_run(dag_id, run_id, self.clock())

    def claimed(self) -> list[tuple[Place, str, int]]:
        """Every event that a run has now."""
        return [
            (place, entry.run, entry.seq)
            for place in self.model.places.values()
            for entry in place.entries.values()
            if entry.state is State.CLAIMED and entry.run is not None
        ]

    @precondition(lambda self: self.claimed())
    @rule(data=st.data(), cut=cuts)
    def dead_letter(self, data: st.DataObject, cut: int | None) -> None:
        place, run_id, seq = data.draw(st.sampled_from(self.claimed()))
        self.do(cut, lambda: self.log.dead_letter(place.dag_id, run_id, seq, "broken"))
        self.model.dead_letter(place, run_id, seq)

    # what is kept

    @rule(age=st.integers(0, 60))
    def purge(self, age: int) -> None:
        before = self.clock() - age
        assert self.log.purge(before=before) == self.model.purge(before)
        self.logged &= {seq for watched in self.model.watchers.values() for seq in watched.received}

    @precondition(lambda self: self.can_reopen)
    @rule()
    def crash(self) -> None:
        self.log.close()
        self.log = self.open_log(self.clock)

    # what holds after every step

    def records(self) -> dict[tuple[str | None, int], EventRecord]:
        """What the log says of each event and Dag, each exactly once."""
        listed = self.log.events(EventQuery(limit=FAR))
        found = {(record.dag_id, record.event.seq or 0): record for record in listed}
        assert len(found) == len(listed)
        return found

    @invariant()
    def agrees(self) -> None:
        """Every event is in exactly one state for every place: the model's."""
        records = self.records()
        assert {seq for _, seq in records} == self.logged
        places = list(self.model.places.values())
        expected = {
            (place.dag_id, entry.seq): (place, entry) for place in places for entry in place.entries.values()
        }
        assert records.keys() - {(None, seq) for seq in self.logged} == expected.keys()
        for identity, (place, entry) in expected.items():
            record = records[identity]
            assert (record.run_id, record.attempts) == (entry.run, entry.attempts)
            if entry.state is not State.PENDING:
                assert record.state is entry.state
            elif entry.seq > place.watcher.closed:
                assert record.state is State.OPEN
            elif place.watcher.spec.key is None:
                assert record.state is State.PENDING
            else:
                assert record.state in (State.PENDING, State.BLOCKED)

    @invariant()
    def counts_add_up(self) -> None:
        """Open, pending, claimed, done and dead are all there is, for each place and for the backlog."""
        for subscription in self.log.subscriptions():
            place = self.model.places[subscription.watcher, subscription.dag_id]
            entries = place.entries.values()
            settled = [entry for entry in entries if entry.state in (State.DONE, State.DEAD)]
            opened = [entry for entry in entries if entry.seq > place.watcher.closed]
            assert subscription.claimed == sum(entry.state is State.CLAIMED for entry in entries)
            assert subscription.dead == sum(entry.state is State.DEAD for entry in entries)
            total = subscription.pending + subscription.claimed + len(settled) + len(opened)
            assert total == len(entries)
            assert (subscription.active, subscription.paused) == (place.active, place.paused)
            assert subscription.explicit == place.explicit
        for name in WATCHERS:
            left = {
                entry.seq
                for (watcher, _), place in self.model.places.items()
                if watcher == name and place.active
                for entry in place.entries.values()
                if entry.state not in (State.DONE, State.DEAD)
            }
            assert self.log.backlog([name]) == len(left)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """The cursor, the runs at work and the dead letters are as they were left."""
        assert self.log.cursor(SOURCE) == self.model.cursor
        assert set(self.log.active_runs()) == set(self.runs(active=True))
        letters = [(item.dag_id, item.run_id, item.seq) for item in self.log.dead_letters(limit=FAR)]
        assert sorted(letters) == sorted(self.model.letters)


def live(machine: Callable[[], LogMachine], *, lives: int, steps: int) -> None:
    """Run random lives of the log."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=lives * int(os.environ.get("WINDSOCK_LIVES", "1")),
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_memory_log_agrees_with_the_model() -> None:
    """Many lives in memory, cut off at random points, never part from the model."""

    def open_log(clock: VirtualClock) -> Log:
        return SqliteLog(":memory:", clock=clock)

    live(lambda: LogMachine(open_log, reopen=False, interrupt=True), lives=250, steps=40)


def test_sqlite_log_agrees_with_the_model(tmp_path: Path) -> None:
    """A file that is closed and opened again in between never parts from the model."""

    def machine() -> LogMachine:
        path = tmp_path / f"{uuid.uuid4().hex}.db"
        return LogMachine(lambda clock: SqliteLog(path, clock=clock), reopen=True, interrupt=True)

    live(machine, lives=15, steps=40)


def test_postgres_log_agrees_with_the_model(postgres: PostgresServer) -> None:
    """A PostgreSQL schema, with connections that come and go, never parts from the model."""
    url = postgres.url("model")

    def machine() -> LogMachine:
        schema = f"t{uuid.uuid4().hex}"
        return LogMachine(
            lambda clock: PostgresLog(url, schema=schema, clock=clock), reopen=True, interrupt=False
        )

    live(machine, lives=12, steps=40)
