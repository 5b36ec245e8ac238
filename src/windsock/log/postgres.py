"""The log in PostgreSQL, in a schema of its own: for a team, and for several machines.

A small connection pool per log object, safe for threads. Rows are written with one ``unnest`` statement per
batch, its arrays in binary (``%b``): as text they would cost client and server twice as much. Dedup keys are
settled by the primary key, so two appends at once cannot both be first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from windsock.events import Event
from windsock.log.sql import SqlLog
from windsock.log.transaction import LogUnavailable, Row, Transaction, load_queries, migrations

try:
    import psycopg
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise ImportError("the PostgreSQL log needs its client: pip install 'windsock[postgres]'") from error

__all__ = ["PostgresLog"]

_CONNECT_SECONDS = 10.0
_TEXT = "convert_from(body, 'UTF8')"


def _translate(sql: str) -> str:
    """Named parameters in psycopg's form."""
    return re.sub(r"(?<!:):([a-z_][a-z_0-9]*)", r"%(\1)s", sql.replace("%", "%%"))


_QUERIES = {
    name: _translate(sql)
    for name, sql in load_queries(
        lock="FOR UPDATE", lock_s="FOR UPDATE OF s", share="FOR SHARE", binary='COLLATE "C"'
    ).items()
}


class PostgresLog(SqlLog):
    """See :class:`windsock.log.base.Log`."""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        schema: str = "windsock",
        pool_size: int = 4,
    ) -> None:
        super().__init__(clock=clock)
        self.schema = schema
        self._pool = ConnectionPool(
            url,
            min_size=0,
            max_size=pool_size,
            timeout=_CONNECT_SECONDS,
            open=True,
            check=ConnectionPool.check_connection,
            configure=self._configure,
            kwargs={"row_factory": dict_row, "connect_timeout": int(_CONNECT_SECONDS)},
        )
        self._migrate()

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("SELECT set_config('search_path', %s, false)", (self.schema,))
        connection.commit()

    def close(self) -> None:
        self._pool.close()

    def _migrate(self) -> None:
        """Bring the schema up to date; two processes that start together follow each other."""
        name = psycopg.sql.Identifier(self.schema)
        with self._cursor() as db:
            db.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"windsock:{self.schema}",))
            db.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
            db.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY)")
            rows = db.execute("SELECT version FROM schema_version").fetchall()
            done = max((row["version"] for row in rows), default=0)
            for version, sql in migrations("postgres"):
                if version > done:
                    db.execute(sql)
                    db.execute("INSERT INTO schema_version VALUES (%s)", (version,))

    @contextmanager
    def _cursor(self) -> Iterator[psycopg.Cursor[Any]]:
        try:
            with self._pool.connection() as connection, connection.cursor() as cursor:
                yield cursor
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            raise LogUnavailable(f"event log in PostgreSQL: {str(error).strip()}") from error

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[Transaction]:
        with self._cursor() as cursor:
            yield _PostgresTransaction(cursor)

    def _fill(self, name: str, where: str) -> str:
        where = _translate(where.replace("{id}", "id = :id")).replace("{text}", _TEXT)
        return _QUERIES[name].replace("{where}", where)


def _storable(value: Any) -> Any:
    """Text without NUL, which no PostgreSQL text can hold; an event's body still has it, escaped."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


class _PostgresTransaction(Transaction):
    def __init__(self, db: psycopg.Cursor[Any]) -> None:
        self._db = db

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        return self._execute(_QUERIES.get(name, name), params).fetchall()

    def run(self, name: str, /, **params: Any) -> int:
        return self._execute(_QUERIES[name], params).rowcount

    def _execute(self, sql: str, params: Mapping[str, Any]) -> psycopg.Cursor[Any]:
        return self._db.execute(sql, {name: _storable(value) for name, value in params.items()})

    def many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        if params:
            rows = [{name: _storable(value) for name, value in row.items()} for row in params]
            self._db.executemany(_QUERIES[name], rows)

    def take_seqs(self, count: int) -> Sequence[int]:
        self._db.execute("SELECT nextval('event_seq') AS seq FROM generate_series(1, %s)", (count,))
        return sorted(row["seq"] for row in self._db.fetchall())

    def remember(
        self, hashes: Sequence[bytes], seqs: Sequence[int], expires_at: float | None, now: float
    ) -> dict[bytes, int]:
        # Keys are inserted in one order everywhere, so that two appends cannot wait for each other.
        self._db.execute(
            "INSERT INTO dedup AS d (hash, seq, expires_at)"
            " SELECT hash, seq, CAST(%s AS double precision)"
            " FROM unnest(%b::bytea[], %b::bigint[]) AS new (hash, seq) ORDER BY hash"
            " ON CONFLICT (hash) DO UPDATE SET seq = excluded.seq, expires_at = excluded.expires_at"
            " WHERE d.expires_at <= %s RETURNING hash",
            (expires_at, list(hashes), list(seqs), now),
            binary=True,
        )
        if self._db.rowcount == len(hashes):
            return {}
        taken = {bytes(row["hash"]) for row in self._db.fetchall()}
        known = [digest for digest in hashes if digest not in taken]
        self._db.execute("SELECT hash, seq FROM dedup WHERE hash = ANY(%s)", (known,), binary=True)
        return {bytes(row["hash"]): row["seq"] for row in self._db.fetchall()}

    def insert_events(
        self,
        watcher_id: int,
        events: Sequence[Event],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        now: float,
        subjects: Sequence[str | None] = (),
    ) -> None:
        # An array that is too short is filled up with NULL, so no subjects at all are an empty one.
        self._db.execute(
            "INSERT INTO events (seq, watcher_id, id, type, key, received_at, body, subject)"
            " SELECT seq, %s, id, type, key, %s, body, subject"
            " FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::text[], %b::bytea[], %b::text[])"
            " AS new (seq, id, type, key, body, subject)",
            (
                watcher_id,
                now,
                list(seqs),
                [_storable(event.id) for event in events],
                [_storable(event.type) for event in events],
                [_storable(event.key) for event in events],
                list(bodies),
                [_storable(subject) for subject in subjects],
            ),
        )
