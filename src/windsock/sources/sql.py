"""Rows of a table, in any database that an Airflow SQL hook reaches.

::

    source = SqlSource(SqlConfig(
        conn_id="shop_db", table="orders", cursor_column="updated_at", primary_key=("id",),
    ))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])      # [{'id': 7, 'total': 12.5, ...}, ...]
        await delivery.ack()

**What it watches**, by ``mode``:

* ``rows``: new and changed rows, by a column that only grows: a time stamp that every change renews, or an
  id. One event per row, ``windsock.sql.row``: its data are the row's columns, its key the primary key, its id
  is made of table, primary key and the cursor column's value.
* ``count``: how many rows there are. ``windsock.sql.count`` when the number changed or, with ``threshold``,
  when it reaches the threshold.
* ``condition``: whether a row matches ``filter``, or whether the first value of ``query`` is true (a flag
  table). ``windsock.sql.condition`` when it becomes true, its data the row that was found.

**Guarantee.** At least once, each row once per value of its cursor column, in the order of that column and
the primary key. Rows with equal values are told apart by the primary key. Rows that are committed late,
behind others that were announced already, are announced late; see ``lookback``. What this way of watching
cannot see: deleted rows, versions of a row between two polls, changes that leave the cursor column alone (use
``postgres_cdc``, ``postgres_notify`` or ``debezium`` for these). A row that is stamped in the future takes
the watermark with it: leave such rows out until they are due, with ``filter="updated_at <= now()"``. In the
modes ``count`` and ``condition`` what comes and goes between two polls is not seen.

**Where it resumes.** The cursor in the log: the last row's position and a digest of the rows behind it (see
:mod:`windsock.sources._sql_window`), some three kilobytes.

**Connection.** Inside Airflow its own hook opens it, whatever the conn_type. Outside: ``sqlite`` (host is the
file's absolute path), ``postgres`` (extras as in Airflow, handed to libpq) and ``mysql`` (extras ``charset``,
``ssl``, ``unix_socket``, ``init_command``). Put an index on cursor column and primary key, in this order.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import SourceError
from windsock.sources._ending import Ended
from windsock.sources._sql_database import Database
from windsock.sources._sql_rows import Rows
from windsock.sources._sql_session import Session
from windsock.sources._sql_states import States
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

__all__ = ["SqlConfig", "SqlSource"]


class SqlConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which rows to watch, and how."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the database.", min_length=1)]
    mode: Annotated[
        Literal["rows", "count", "condition"],
        Meta(
            description="What to watch: new and changed `rows`, the `count` of rows, or whether a "
            "`condition` holds."
        ),
    ] = "rows"
    table: Annotated[
        str | None,
        Meta(description="The table or view, as `table` or `schema.table`, spelt as it was created."),
    ] = None
    cursor_column: Annotated[
        str | None,
        Meta(
            description="Mode `rows`: the column that grows with every new or changed row: a time stamp "
            "or an id. Rows in which it is NULL are not seen."
        ),
    ] = None
    primary_key: Annotated[
        tuple[str, ...],
        Meta(
            description="Mode `rows`: the columns that tell rows apart. May be left out only if the cursor "
            "column is a number that no two rows share."
        ),
    ] = ()
    columns: Annotated[
        tuple[str, ...],
        Meta(description="The columns that an event carries; by default all. Keep large ones out."),
    ] = ()
    filter: Annotated[
        str | None,
        Meta(description="Which rows count, as SQL of the database: `status = 'ready'`. It is run as it is."),
    ] = None
    query: Annotated[
        str | None,
        Meta(
            description="Mode `condition`, instead of table and filter: a SELECT whose first value says "
            "whether the condition holds. No row, NULL, 0 and texts such as 'false', 'no', 'n' mean no."
        ),
    ] = None
    threshold: Annotated[
        int | None,
        Meta(
            description="Mode `count`: announce when the count reaches this number, and not again until "
            "it has been below. By default every change of the count is announced.",
        ),
    ] = None
    repeat: Annotated[
        bool,
        Meta(
            description="Modes `condition` and `count` with a threshold: announce at every poll while it "
            "holds, not only when it begins to."
        ),
    ] = False
    start: Annotated[
        Literal["earliest", "latest"],
        Meta(
            description="Where a new watcher begins: with the rows (or the count, or the condition) that are "
            "there, or with what comes after."
        ),
    ] = "earliest"
    lookback: Annotated[
        float,
        Meta(
            description="Mode `rows`: for how many seconds a row may still appear behind one that was "
            "announced; as long as the longest transaction that writes to the table. Such rows are looked "
            "for among the last 100,000. 0 if rows always appear in order.",
            ge=0,
        ),
    ] = 60.0
    poll: Annotated[float, Meta(description="Seconds between two looks at the table.", gt=0)] = 10.0
    page: Annotated[int, Meta(description="The most rows that are read at once.", ge=1, le=MAX_DELIVERY)] = (
        MAX_DELIVERY
    )
    timeout: Annotated[
        float,
        Meta(
            description="Seconds after which a statement is given up. Inside Airflow the connection's own "
            "settings count.",
            gt=0,
        ),
    ] = 60.0

    def __post_init__(self) -> None:
        for name in filter(None, (self.table, self.cursor_column, *self.primary_key, *self.columns)):
            if "\0" in name or not all(name.split(".")):
                raise ValueError(f"{name!r} is no name of a table or column")
        if self.table is not None and self.table.count(".") > 2:
            raise ValueError(f"table {self.table!r} has more parts than database.schema.table")
        if (self.query is not None) != (self.table is None):
            raise ValueError("name the table to watch as 'table', or, in mode 'condition', give a 'query'")
        if self.query is not None and (self.mode != "condition" or self.filter):
            raise ValueError("'query' is for mode 'condition', and stands for itself without 'filter'")
        if self.mode == "rows" and not self.cursor_column:
            raise ValueError("mode 'rows' needs 'cursor_column', the column that grows with every change")
        if self.mode == "condition" and self.table and not self.filter:
            raise ValueError("mode 'condition' needs 'filter', which says what has to be there, or a 'query'")


class SqlSource(UsesConnection):
    """Watches a table by asking."""

    kind: ClassVar[str] = "sql"
    config: ClassVar[type[SqlConfig]] = SqlConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        position="log",
        tested="PostgreSQL 18, MariaDB 10.11, SQLite 3",
        notes="In the order of cursor column and primary key; rows that are committed late come late. "
        "Deleted rows and versions between two polls are not seen.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"lookback", "poll", "page", "timeout"})

    def __init__(self, config: SqlConfig) -> None:
        self.options = config
        self._session: Session | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        connection = await self.connection()
        kind = Rows if self.options.mode == "rows" else States
        session = kind(self.options, Database(connection, timeout=self.options.timeout))
        try:
            await session.open(cursor)
        except BaseException:
            session.close()
            raise
        self._session = session

    async def read(self) -> AsyncIterator[Delivery]:
        session = self._session
        if session is None:
            raise SourceError(f"table {self.options.table} is not being watched: call connect first")
        with contextlib.suppress(Ended):
            async for delivery in session.read():
                yield delivery

    async def lag(self) -> int | None:
        try:
            return await self._session.lag() if self._session else None
        except (SourceError, Ended):
            return None  # the read says why

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
