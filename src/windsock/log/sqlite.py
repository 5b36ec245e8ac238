"""The log in one SQLite file: the default, for one machine.

WAL with ``synchronous=FULL``: a commit is on disk before it returns, readers never wait for the writer, and
several processes share the file. One connection per log object, used by one thread at a time.
``SqliteLog(":memory:")`` is the memory log of the test kit.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from windsock.events import Event
from windsock.log.sql import SqlLog
from windsock.log.transaction import LogUnavailable, Row, Transaction, load_queries, migrations

__all__ = ["SqliteLog"]

_BUSY_SECONDS = 30.0
_MAX_VARIABLES = 500
_CACHE_KIB = 16_000
_PAGE_BYTES = 8192
"""Of a new file. Dedup keys and ids come in any order, so a commit changes pages all over their indexes;
fewer, larger pages cost less, until a commit of one event pays for them. Measured from 1 to 64 KiB."""
_CHECKPOINT_PAGES = 4000
"""32 MB: a page that is changed by several commits before it is copied back into the file is worth waiting
for."""
_SAME_ID = "substr(id, -12) = substr(:id, -12) AND +id = :id"
"""Uses the index on the last characters of ids, which the plus keeps SQLite from reasoning away."""
_REMEMBER = (
    "INSERT INTO dedup (hash, seq, expires_at) VALUES {rows}"
    " ON CONFLICT (hash) DO UPDATE SET seq = excluded.seq, expires_at = excluded.expires_at"
    " WHERE dedup.expires_at <= ?"
)
_INSERT = "INSERT INTO events (seq, watcher_id, id, type, key, received_at, body) VALUES {rows}"
_INSERT_INDEXED = (
    "INSERT INTO events (seq, watcher_id, id, type, key, received_at, body, subject) VALUES {rows}"
)
"""One more value for each row costs 3 % of an append: only a watcher with a history pays it."""
_AT_ONCE = (500, 50, 1)
"""Rows of one statement, as many as there are. With one for each row an append costs a quarter more, and asks
for the interpreter after each: a source that is read in another thread and the log then work in turns."""
_LARGE_BYTES = 4096
"""Bodies from which on each event has its own statement: SQLite keeps what the last one was given."""
_QUERIES = load_queries(lock="", lock_s="", binary="", share="", text="CAST(body AS TEXT)")


class SqliteLog(SqlLog):
    """See :class:`windsock.log.base.Log`."""

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock=clock)
        self.path = str(path)
        self._lock = threading.RLock()
        try:
            if self.path != ":memory:":
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._db.row_factory = _as_dict
            self._db.execute(f"PRAGMA page_size={_PAGE_BYTES}")
            self._turn_wal_on()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
            self._migrate()
        except (sqlite3.Error, OSError) as error:
            raise LogUnavailable(f"cannot open the event log {self.path}: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _turn_wal_on(self) -> None:
        """SQLite does not wait but refuses while another process does the same to a new file."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def _migrate(self) -> None:
        """Bring the file up to date; two processes that start together follow each other."""
        steps = migrations("sqlite")
        if self._version() >= steps[-1][0]:
            return
        with self._transaction():
            done = self._version()
            for version, sql in steps:
                if version > done:
                    for statement in sql.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version = {version}")

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()["user_version"])

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[Transaction]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield _SqliteTransaction(self._db)
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise LogUnavailable(f"event log {self.path}: {error}") from error
            except sqlite3.ProgrammingError as error:
                raise LogUnavailable(f"event log {self.path} is closed: {error}") from error

    def _fill(self, name: str, where: str) -> str:
        where = where.replace("{id}", _SAME_ID).replace("{text}", "CAST(body AS TEXT)")
        return _QUERIES[name].replace("{where}", where)


class _SqliteTransaction(Transaction):
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        found = self._db.execute(_QUERIES.get(name, name), params)
        found.row_factory = None  # to name the columns once costs half of naming them for each row
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def run(self, name: str, /, **params: Any) -> int:
        return self._db.execute(_QUERIES[name], params).rowcount

    def many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        self._db.executemany(_QUERIES[name], params)

    def take_seqs(self, count: int) -> Sequence[int]:
        row = self._db.execute(
            "UPDATE counter SET next_seq = next_seq + ? RETURNING next_seq", (count,)
        ).fetchone()
        return range(row["next_seq"] - count, row["next_seq"])

    def remember(
        self, hashes: Sequence[bytes], seqs: Sequence[int], expires_at: float | None, now: float
    ) -> dict[bytes, int]:
        new = dict(zip(hashes, seqs, strict=True))
        ordered = sorted(new)  # in the order of the index, neighbours share a page
        rows = ((digest, new[digest], expires_at) for digest in ordered)
        if self._insert(_REMEMBER, rows, len(ordered), now) == len(ordered):
            return {}
        known: dict[bytes, int] = {}
        for start in range(0, len(ordered), _MAX_VARIABLES):
            part = ordered[start : start + _MAX_VARIABLES]
            marks = ",".join("?" * len(part))
            found = self._db.execute(
                f"SELECT hash, seq FROM dedup WHERE hash IN ({marks})",  # noqa: S608 - only question marks
                part,
            )
            known.update((row["hash"], row["seq"]) for row in found if row["seq"] != new[row["hash"]])
        return known

    def insert_events(
        self,
        watcher_id: int,
        events: Sequence[Event],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        now: float,
        subjects: Sequence[str | None] = (),
    ) -> None:
        statement: str = _INSERT
        rows: Iterator[tuple[Any, ...]] = (
            (seq, watcher_id, event.id, event.type, event.key, now, body)
            for seq, event, body in zip(seqs, events, bodies, strict=True)
        )
        if subjects:
            found_by = zip(rows, subjects, strict=True)
            statement, rows = _INSERT_INDEXED, ((*row, subject) for row, subject in found_by)
        large = max(map(len, bodies)) >= _LARGE_BYTES
        self._insert(statement, rows, len(events), at_once=(1,) if large else _AT_ONCE)

    def _insert(
        self,
        statement: str,
        rows: Iterator[tuple[Any, ...]],
        left: int,
        *more: Any,
        at_once: Sequence[int] = _AT_ONCE,
    ) -> int:
        """Run a statement on so many ``{rows}``, with what else it takes; how many of them it stored."""
        stored = 0
        for count in at_once:
            for _ in range(left // count):
                values = (*chain.from_iterable(islice(rows, count)), *more)
                width = (len(values) - len(more)) // count
                stored += self._db.execute(_with_rows(statement, width, count), values).rowcount
            left %= count
        return stored


@cache
def _with_rows(statement: str, values: int, count: int) -> str:
    row = f"({','.join('?' * values)})"
    return statement.replace("{rows}", ",".join([row] * count))


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
