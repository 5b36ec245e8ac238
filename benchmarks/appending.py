"""Part A: how fast events become durable, beside the fastest loop that could store them at all.

The raw loop is one table and one statement per batch: what any design with this dedup rule would pay at
least. It is given its rows ready-made. Windsock is given events, and does everything that it does on the hot
path: encode, hash, dedup, store, batch, count, remember the cursor, check the lease. Both commit durably.

Rounds alternate, so that whatever else the machine does hits both; the medians are compared.
"""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
from dags.samples import orders
from report import Finding, number, progress

from windsock.events import Event
from windsock.log import Log, open_log
from windsock.pipeline import Pipeline
from windsock.runner import writes_for
from windsock.spec import Batching, WatcherSpec
from windsock.testing.postgres import PostgresServer

__all__ = ["measure_append"]

TARGETS = {"SQLite": 50_000, "PostgreSQL": 25_000}
Row = tuple[str, str, str, str, bytes]
Insert = Callable[[Sequence[Row]], None]
Batches = list[list[Event]]


def measure_append(folder: Path, postgres: PostgresServer, *, quick: bool) -> Iterator[Finding]:
    """Append throughput on both databases, in batches of 1000 and of 100."""
    rounds, events = (3 if quick else 9), 10_000
    for database in TARGETS:
        for size in (1000, 100):
            progress(f"append: {database}, batches of {size}")
            place = folder / f"append-{database.lower()}-{size}"
            place.mkdir()
            with contextlib.ExitStack() as stack:
                if database == "SQLite":
                    insert = stack.enter_context(_raw_sqlite(place / "raw.db"))
                    url = f"sqlite:///{place / 'windsock.db'}"
                else:
                    insert = stack.enter_context(_raw_postgres(postgres.url(f"append_raw_{size}")))
                    url = postgres.url(f"append_windsock_{size}")
                log = stack.enter_context(contextlib.closing(open_log(url)))
                yield _compare(database, size, insert, log, rounds, events)


def _compare(database: str, size: int, insert: Insert, log: Log, rounds: int, events: int) -> Finding:
    append = _windsock(log, size)
    raw_rates, windsock_rates = [], []
    for n in range(rounds + 1):
        batches = [orders(n * events + start, size) for start in range(0, events, size)]
        rows = [[_row(event) for event in batch] for batch in batches]
        # The first to go finds the disk as the other left it; so they take turns in that, too.
        pairs = [(raw_rates, lambda: [insert(part) for part in rows]),  # noqa: B023 - used in this round
                 (windsock_rates, lambda: [append(batch) for batch in batches])]  # noqa: B023  # fmt: skip
        for rates, work in pairs if n % 2 else reversed(pairs):
            gc.collect()
            started = time.perf_counter()
            work()
            rates.append(events / (time.perf_counter() - started))
    del raw_rates[0], windsock_rates[0]  # warm-up
    raw, windsock = statistics.median(raw_rates), statistics.median(windsock_rates)
    share, target = windsock / raw, TARGETS[database]
    # The targets are for batches of 1000; those of 100 show what a smaller commit costs.
    aimed = size == 1000
    return Finding(
        part="append",
        what=f"append to {database}, batches of {size}",
        baseline=f"raw loop {number(raw)}/s",
        windsock=f"{number(windsock)}/s",
        ratio=share,
        target=f"≥ {target:,}/s, ≥ 50 % of raw" if aimed else "",
        reached=windsock >= target and share >= 0.5 if aimed else None,
        raw={"raw_per_s": raw_rates, "windsock_per_s": windsock_rates, "events_per_round": events},
    )


def _windsock(log: Log, size: int) -> Callable[[Sequence[Event]], None]:
    spec = WatcherSpec(name="orders", kind="memory", batch=Batching(size=size))
    log.register(spec, source="bench", asset="bench")
    log.subscribe("orders", "bench_dag")
    pipeline = Pipeline.compile(spec)
    lease = log.acquire("bench", "benchmark", 3600.0)
    position = 0

    def append(events: Sequence[Event]) -> None:
        nonlocal position
        position += len(events)
        write = writes_for(pipeline, events)
        (appended,) = log.append([write], source="bench", cursor={"at": position}, lease=lease)
        if len(appended.new) != len(events):
            raise RuntimeError(f"{len(events)} new events were appended, {len(appended.new)} were stored")

    return append


def _row(event: Event) -> Row:
    return (event.source, event.id, event.type, str(event.time), event.encode())


@contextlib.contextmanager
def _raw_sqlite(path: Path) -> Iterator[Insert]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA page_size=8192")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA cache_size=-16000")
        db.execute("PRAGMA wal_autocheckpoint=4000")
        db.execute(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY, source TEXT NOT NULL, id TEXT NOT NULL,"
            " type TEXT NOT NULL, time TEXT, body BLOB NOT NULL, UNIQUE (source, id))"
        )

        def insert(rows: Sequence[Row]) -> None:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO events (source, id, type, time, body) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                rows,
            )
            db.execute("COMMIT")

        yield insert


@contextlib.contextmanager
def _raw_postgres(url: str) -> Iterator[Insert]:
    with psycopg.connect(url) as db:
        db.execute(
            "CREATE TABLE events (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source TEXT NOT NULL,"
            " id TEXT NOT NULL, type TEXT NOT NULL, time TEXT, body BYTEA NOT NULL, UNIQUE (source, id))"
        )
        db.commit()

        def insert(rows: Sequence[Row]) -> None:
            columns = [list(column) for column in zip(*rows, strict=True)]
            db.execute(
                "INSERT INTO events (source, id, type, time, body) SELECT * FROM"
                " unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[]) ON CONFLICT DO NOTHING",
                columns,
            )
            db.commit()

        yield insert
