"""Part H: how fast a long log is read again, and how long it takes to say what became of one event.

The log is an SQLite file of 1,000,000 events of about 460 bytes, written through a watcher's pipeline: with
events that were filtered, duplicates and invalid ones, runs that succeeded, a run that failed for good, one
that is under way, and a long backlog. Beside the replay stands SQLite's bare read of the same rows.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from dags.samples import orders
from msgspec.structs import replace
from report import Finding, number, progress
from shaping import SHAPED

from windsock.explain import explain_event
from windsock.log.records import Scan
from windsock.log.sqlite import SqliteLog
from windsock.pipeline import Pipeline
from windsock.runner import writes_for

__all__ = ["measure_explain", "measure_replay", "open_long_log"]

EVENTS, QUICK_EVENTS = 1_000_000, 100_000
READ = 50_000
FLAT_MIB = 16
LOOK, LOOKS = 0.050, 100
_COMMIT = 5000
_MIB = 2**20


@dataclass
class LongLog:
    """A log with a past, and the ids of some of its events by what became of them."""

    log: SqliteLog
    path: Path
    count: int = 0
    ids: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, fate: str, *ids: str) -> None:
        self.ids.setdefault(fate, []).extend(ids)


@contextlib.contextmanager
def open_long_log(folder: Path, *, quick: bool) -> Iterator[LongLog]:
    """Write the log; nothing of it is measured."""
    count = QUICK_EVENTS if quick else EVENTS
    progress(f"history: a log of {number(count)} events is written")
    with contextlib.closing(SqliteLog(folder / "long.db")) as log:
        made = LongLog(log, folder / "long.db")
        spec = replace(SHAPED, max_attempts=1, key="data.customer.id", batch=replace(SHAPED.batch, size=100))
        log.register(spec, source="bench", asset="bench")
        log.subscribe(spec.name, "bench_dag")
        pipeline = Pipeline.compile(spec)
        chance = random.Random(1)
        for first in range(0, count, _COMMIT):
            events = orders(first, _COMMIT)
            made.keep("stored", *(event.id for event in chance.sample(events, 5)))
            other = [replace(event, id=f"filtered-{event.id}", type="order.closed") for event in events[:20]]
            wrong = [replace(e, id=f"dead-{e.id}", data={**e.data, "currency": "EURO"}) for e in events[:5]]
            again = [replace(event, id=f"again-{event.id}") for event in events[:10]]
            made.keep("filtered", *(event.id for event in other))
            made.keep("dead", *(event.id for event in wrong))
            made.keep("duplicate", *(event.id for event in again))
            log.append([writes_for(pipeline, [*events, *other, *wrong, *again])], source="bench")
        for number_ in range(10):
            run_id = f"run-{number_}"
            claimed = log.claim([spec.name], "bench_dag", run_id, limit=5000)
            fate = "done" if number_ < 7 else "poison" if number_ == 7 else "claimed"
            made.keep(fate, *(event.id for event in chance.sample(claimed, 20)))
            if fate != "claimed":
                log.settle("bench_dag", run_id, ok=fate == "done", reason="the task failed")
        made.count = sum(health.logged for health in log.health())
        yield made


def measure_replay(made: LongLog, *, quick: bool) -> Iterator[Finding]:
    """Every stored event read again, oldest first, and what that does to the memory of the process."""
    bare, ours, growth = [], [], []
    process = psutil.Process()
    for _ in range(1 if quick else 3):
        progress(f"replay: {number(made.count)} events")
        began = time.perf_counter()
        with contextlib.closing(sqlite3.connect(made.path)) as db:
            rows = sum(1 for _ in db.execute("SELECT seq, received_at, body FROM events ORDER BY seq"))
        bare.append(rows / (time.perf_counter() - began))
        before = most = 0
        began = time.perf_counter()
        n = 0
        for n, _stored in enumerate(made.log.scan(Scan()), start=1):
            if n % 10_000 == 0:
                used = process.memory_info().rss
                before, most = before or used, max(most, used)
        ours.append(n / (time.perf_counter() - began))
        growth.append((most - before) / _MIB)
        if n != made.count:
            raise RuntimeError(f"{made.count} events are stored, {n} were read")
    windsock = statistics.median(ours)
    yield Finding(
        part="replay",
        what=f"read {number(made.count)} stored events again",
        baseline=f"rows by bare SQLite {number(statistics.median(bare))}/s",
        windsock=f"{number(windsock)}/s, memory +{max(growth):.1f} MiB",
        ratio=windsock / statistics.median(bare),
        target=f"≥ {READ:,}/s, flat",
        reached=windsock >= READ and max(growth) <= FLAT_MIB,
        raw={"bare_per_s": bare, "windsock_per_s": ours, "growth_mib": growth},
    )


def measure_explain(made: LongLog) -> Iterator[Finding]:
    """The way of a hundred events, whatever became of them."""
    progress("explain")
    chance = random.Random(2)
    # What was filtered or a duplicate is remembered for the newest events.
    known = {
        fate: ids[-1000:] if fate in ("filtered", "duplicate") else ids for fate, ids in made.ids.items()
    }
    times: dict[str, list[float]] = {fate: [] for fate in known}
    for n in range(LOOKS):
        fate = sorted(known)[n % len(known)]
        event_id = chance.choice(known[fate])
        began = time.perf_counter()
        explained = explain_event(made.log, event_id)
        times[fate].append(time.perf_counter() - began)
        if not explained.ways:
            raise RuntimeError(f"nothing is known of the {fate} event {event_id}")
    every = [value for values in times.values() for value in values]
    yield Finding(
        part="explain",
        what=f"explain one of {number(made.count)} events, median (and most) of {len(every)}",
        baseline="",
        windsock=f"{statistics.median(every) * 1000:.1f} ms ({max(every) * 1000:.1f} ms)",
        target=f"< {LOOK * 1000:.0f} ms",
        reached=max(every) < LOOK,
        raw={"seconds": times},
    )
