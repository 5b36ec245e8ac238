"""Part G: how fast events go through a watcher's pipeline, by themselves and with the SQLite log.

Each event of about 460 bytes is filtered by an expression, checked against a JSON Schema, encoded, labelled
for dedup and for its batch: what :func:`windsock.runner.writes_for` does between a source and the log. Beside
it stands what no pipeline with this schema could do without: to check the data and to encode the event; with
the log, the append loop without a filter and a schema. Rounds alternate. In memory it is one thread's work,
so what counts is processor time, which the rest of the machine does not change; with the log, real time.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jsonschema_rs
from dags.samples import orders
from report import Finding, number, progress

from windsock.events import Event
from windsock.log.sqlite import SqliteLog
from windsock.pipeline import Pipeline
from windsock.runner import writes_for
from windsock.spec import Batching, WatcherSpec

__all__ = ["SHAPED", "measure_pipeline"]

IN_MEMORY, WITH_LOG = 60_000, 30_000
COMMIT = 1000
SCHEMA = {
    "type": "object",
    "required": ["order", "customer", "lines", "total", "currency"],
    "properties": {
        "order": {"type": "integer", "minimum": 0},
        "customer": {
            "type": "object",
            "required": ["id", "tier"],
            "properties": {"id": {"type": "integer"}, "tier": {"enum": ["gold", "silver", "none"]}},
        },
        "lines": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["sku", "count", "price"],
                "properties": {
                    "sku": {"type": "string"},
                    "count": {"type": "integer"},
                    "price": {"type": "number"},
                },
            },
        },
        "total": {"type": "number"},
        "currency": {"type": "string", "maxLength": 3},
    },
}
SHAPED = WatcherSpec(
    name="shaped",
    kind="memory",
    where="type == 'order.created' && data.total > 100 && data.customer.tier in ['gold', 'silver', 'none']",
    schema=SCHEMA,
    dedupe_key="data.order",
    batch=Batching(size=COMMIT, flush="data.currency == 'END'"),
)
Work = Callable[[Sequence[Event]], None]


def measure_pipeline(folder: Path, *, quick: bool) -> Iterator[Finding]:
    """Filter, validate, dedupe and batch on one core: in memory, then into the SQLite log."""
    rounds, events = (3 if quick else 9), 20_000
    progress("pipeline: in memory")
    yield _compare(
        "filter, validate, dedupe, batch in memory, one core",
        _needed(),
        _pipeline(),
        IN_MEMORY,
        rounds,
        events,
        beside_it="schema check and encoding",
        clock=time.process_time,
    )
    progress("pipeline: with the SQLite log")
    with (
        contextlib.closing(SqliteLog(folder / "plain.db")) as plain,
        contextlib.closing(SqliteLog(folder / "shaped.db")) as shaped,
    ):
        bare = WatcherSpec(name="plain", kind="memory", batch=Batching(size=COMMIT))
        yield _compare(
            "filter, validate, dedupe, batch into the SQLite log",
            _logged(plain, bare),
            _logged(shaped, SHAPED),
            WITH_LOG,
            rounds,
            events,
            beside_it="append without the steps",
            clock=time.perf_counter,
        )


def _compare(
    what: str,
    beside: Work,
    ours: Work,
    target: int,
    rounds: int,
    events: int,
    *,
    beside_it: str,
    clock: Callable[[], float],
) -> Finding:
    rates: dict[str, list[float]] = {"beside": [], "windsock": []}
    for n in range(rounds + 1):
        batches = [orders(n * events + start, COMMIT) for start in range(0, events, COMMIT)]
        pairs = [("beside", beside), ("windsock", ours)]
        for side, work in pairs if n % 2 else reversed(pairs):
            gc.collect()
            began = clock()
            for batch in batches:
                work(batch)
            rates[side].append(events / (clock() - began))
    del rates["beside"][0], rates["windsock"][0]  # warm-up
    baseline, windsock = statistics.median(rates["beside"]), statistics.median(rates["windsock"])
    return Finding(
        part="pipeline",
        what=what,
        baseline=f"{beside_it} {number(baseline)}/s",
        windsock=f"{number(windsock)}/s",
        ratio=windsock / baseline,
        target=f"≥ {target:,}/s",
        reached=windsock >= target,
        raw={**rates, "events_per_round": events},
    )


def _needed() -> Work:
    is_valid = jsonschema_rs.validator_for(SCHEMA).is_valid

    def work(events: Sequence[Event]) -> None:
        for event in events:
            is_valid(event.data)
            event.encode()

    return work


def _pipeline() -> Work:
    pipeline = Pipeline.compile(SHAPED)

    def work(events: Sequence[Event]) -> None:
        write = writes_for(pipeline, events)
        if not len(write.events) == len(write.dedup) == len(write.bodies) == len(events):
            raise RuntimeError(f"{len(events)} events went in, {len(write.events)} came out")

    return work


def _logged(log: SqliteLog, spec: WatcherSpec) -> Work:
    log.register(spec, source="bench", asset="bench")
    log.subscribe(spec.name, "bench_dag")
    pipeline = Pipeline.compile(spec)
    lease = log.acquire("bench", "benchmark", 3600.0)
    position = 0

    def work(events: Sequence[Event]) -> None:
        nonlocal position
        position += len(events)
        write = writes_for(pipeline, events)
        (appended,) = log.append([write], source="bench", cursor={"at": position}, lease=lease)
        if len(appended.new) != len(events):
            raise RuntimeError(f"{len(events)} new events were appended, {len(appended.new)} were stored")

    return work
