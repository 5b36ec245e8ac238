"""What reads a long log finds its rows by an index, on both databases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from windsock.events import Category, DeadLetter, Event, Verdict
from windsock.explain import explain_event
from windsock.log.base import Log
from windsock.log.postgres import PostgresLog, _PostgresTransaction
from windsock.log.records import EventQuery, Scan, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec
from windsock.testing.postgres import PostgresServer

GROWING = ("events", "entries", "claims", "batches", "verdicts", "held", "dead_letters")
"""Tables that grow with the history; the others have a row for each watcher or Dag."""


def event(n: int) -> Event:
    return Event.make({}, source="s", type="t", id=f"event-{n}", key=f"k{n % 50}")


def fill(log: Log) -> None:
    """Two watchers, a thousand events each, filtered and dead ones, a run that is done, one that is not."""
    for name in ("a", "b"):
        log.register(WatcherSpec(name=name, kind="memory", key="key"), source=name, asset="shop")
        log.subscribe(name, "dag")
        events = [event(n) for n in range(1000)]
        verdicts = [Verdict(stage="filter", verdict="filtered", event=event(n)) for n in range(2000, 2100)]
        dead = DeadLetter(stage="size", category=Category.INVALID, reason="r", body=b"{}", event_id="dead")
        log.append([Write(watcher=name, events=events, verdicts=verdicts, dead=[dead])])
    log.claim(["a"], "dag", "done", limit=100)
    log.settle("dag", "done", ok=True)
    log.claim(["a"], "dag", "under way", limit=100)


def look(log: Log) -> None:
    """Explain events of every fate, and scan in every way."""
    for n in (5, 150, 999, 2050, 5000):
        explain_event(log, f"event-{n}")
    explain_event(log, "dead", watcher="a")
    for query in (
        Scan(limit=10),
        Scan(watchers=["a"], limit=10),
        Scan(watchers=["a", "b"], limit=10),
        Scan(asset="shop", type="t", since=0.0, limit=10),
        Scan(watchers=["a"], key="k7", limit=10),
    ):
        assert list(log.scan(query))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        fill(log)
        yield log


def test_sqlite(sqlite: SqliteLog) -> None:
    """No statement walks through a table that grows, and no scan sorts what it reads."""
    seen: list[str] = []
    sqlite._db.set_trace_callback(seen.append)
    look(sqlite)
    sqlite._db.set_trace_callback(None)
    statements = [one for one in seen if one.startswith("SELECT")]
    assert len(statements) > 20
    for statement in statements:
        aliases = {
            name
            for pair in re.findall(rf"\b({'|'.join(GROWING)}) (?!ON|WHERE)(\w+)", statement)
            for name in pair
        }
        steps = [row["detail"] for row in sqlite._db.execute(f"EXPLAIN QUERY PLAN {statement}")]
        for step in steps:
            assert not any(re.match(rf"SCAN {name}\b", step) for name in aliases), (
                statement,
                steps,
            )
        if "FROM events e JOIN watchers w" in statement and "LIMIT" in statement:
            assert not [step for step in steps if "TEMP B-TREE" in step], (statement, steps)


def steps_of(log: SqliteLog, query: EventQuery) -> int:
    """How many steps of SQLite's machine it takes to list events, in hundreds."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    log._db.set_progress_handler(step, 100)
    assert log.events(query)
    log._db.set_progress_handler(None, 0)
    return count


def test_an_old_event_is_listed_as_fast_as_a_new_one(tmp_path: Path) -> None:
    """The batch of an event is found without walking through the batches that came after it."""
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        log.register(WatcherSpec(name="a", kind="memory"), source="a")
        for n in range(1000):
            log.append([Write(watcher="a", events=[event(n)])])
        assert log.totals()["batches"] == 1000
        new, old = (steps_of(log, EventQuery(id=f"event-{n}")) for n in (999, 0))
        assert old <= new + 2
        assert steps_of(log, EventQuery(before=101)) <= steps_of(log, EventQuery()) + 2


def test_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sequential scans priced out, none is left on a table that grows: every condition has an index."""
    seen: list[tuple[str, Mapping[str, Any]]] = []
    execute = _PostgresTransaction._execute

    def recorded(self: _PostgresTransaction, sql: str, params: Mapping[str, Any]) -> Any:
        seen.append((sql, params))
        return execute(self, sql, params)

    with PostgresServer(tmp_path, durable=False) as server, closing(PostgresLog(server.url("plans"))) as log:
        fill(log)
        monkeypatch.setattr(_PostgresTransaction, "_execute", recorded)
        look(log)
        monkeypatch.undo()
        assert len(seen) > 20
        with log._cursor() as db:
            db.execute("ANALYZE")
            db.execute("SET LOCAL enable_seqscan = off")
            for sql, params in seen:
                rows = db.execute(f"EXPLAIN {sql}", params).fetchall()
                plan = "\n".join(row["QUERY PLAN"] for row in rows)
                walked = re.findall(r"Seq Scan on (\w+)", plan)
                assert not set(walked) & set(GROWING), (sql, plan)
