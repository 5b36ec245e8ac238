"""A replication slot and its publication: are they there, are they ours, how much do they hold back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.sources import _postgres

__all__ = ["Found", "Slot"]

_SLOT = """
SELECT plugin, database = current_database(), active_pid, wal_status
  FROM pg_replication_slots
 WHERE slot_name = %s
"""
_PUBLISHED = """
SELECT t.schemaname || '.' || t.tablename, ARRAY(
           SELECT a.attname::text
             FROM pg_index i
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
            WHERE i.indrelid = c.oid AND i.indisprimary
            ORDER BY array_position(i.indkey::int2[], a.attnum))
  FROM pg_publication_tables t
  JOIN pg_namespace n ON n.nspname = t.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
 WHERE t.pubname = %s
"""
_RETAINED = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)
  FROM pg_replication_slots
 WHERE slot_name = %s
"""


@dataclass(frozen=True)
class Found:
    """What the server says about what will be read."""

    keys: dict[str, list[str]]
    """The primary keys of the published tables."""
    patience: float
    """Seconds for which the server waits for a word of its reader."""


class Slot:
    """One slot with its publication."""

    def __init__(self, connection: Connection, name: str, publication: str) -> None:
        self._connection = connection
        self.name = name
        self.publication = publication

    async def prepare(self, tables: Sequence[str], *, create: bool) -> Found:
        """Check that the slot can be read, after making what is missing if that is asked for."""
        async with self._asking() as client:
            ((level,),) = await _rows(client, "SHOW wal_level")
            if level != "logical":
                raise SourceError(
                    f"PostgreSQL (connection {self._connection.conn_id!r}) has wal_level {level!r}: set "
                    "wal_level = logical and restart it"
                )
            keys = await self._published(client, tables, create=create)
            await self._check(client, create=create)
            (milliseconds,) = (
                await _rows(client, "SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'")
            )[0]
        return Found(keys, patience=min(milliseconds / 1000 or 30.0, 30.0))

    async def retained(self) -> int:
        """Bytes of the server's log that the slot holds back."""
        async with self._asking() as client:
            found = await _rows(client, _RETAINED, [self.name])
        return int(found[0][0] or 0) if found else 0

    async def _published(self, client: Any, tables: Sequence[str], *, create: bool) -> dict[str, list[str]]:
        known = await _rows(client, "SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication])
        if not known:
            await self._publish(client, tables, create=create)
        keys: dict[str, list[str]] = dict(await _rows(client, _PUBLISHED, [self.publication]))
        if left_out := sorted(set(tables) - set(keys)):
            raise SourceError(
                f"publication {self.publication!r} does not have {', '.join(left_out)}: run ALTER "
                "PUBLICATION ... ADD TABLE ..., or correct the watcher's tables, each as schema.table"
            )
        return keys

    async def _publish(self, client: Any, tables: Sequence[str], *, create: bool) -> None:
        from psycopg import sql

        if not create:
            raise SourceError(
                f"publication {self.publication!r} does not exist: run CREATE PUBLICATION, or set create=True"
            )
        names = sql.SQL(", ").join(sql.Identifier(*table.split(".")) for table in tables)
        what = sql.SQL("FOR TABLE {}").format(names) if tables else sql.SQL("FOR ALL TABLES")
        await client.execute(
            sql.SQL("CREATE PUBLICATION {} {}").format(sql.Identifier(self.publication), what)
        )

    async def _check(self, client: Any, *, create: bool) -> None:
        found = await _rows(client, _SLOT, [self.name])
        if not found:
            if not create:
                raise SourceError(
                    f"slot {self.name!r} does not exist: run SELECT pg_create_logical_replication_slot("
                    f"'{self.name}', 'pgoutput'), or set create=True"
                )
            await client.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])
            return
        plugin, here, reader, state = found[0]
        if plugin != "pgoutput" or not here:
            raise SourceError(
                f"slot {self.name!r} belongs to another database or plugin ({plugin}): choose another name"
            )
        if state == "lost":
            raise SourceError(
                f"slot {self.name!r} is lost: the server removed log that was not read yet, and changes are "
                "missing; drop the slot, create it anew, and load what was missed in another way"
            )
        if reader is not None and not await self._released(client):
            raise SourceError(
                f"slot {self.name!r} is being read by another (server process {reader}): a slot has one "
                "reader, give each watcher its own or end the other one"
            )

    async def _released(self, client: Any) -> bool:
        """Whether the reader goes within moments: the server takes a while to see that one has gone."""
        for _ in range(20):
            await asyncio.sleep(0.1)
            found = await _rows(client, _SLOT, [self.name])
            if found and found[0][2] is None:
                return True
        return False

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Any]:
        """An ordinary connection for a moment."""
        psycopg = _postgres.psycopg()
        client = await _postgres.reach(self._connection)
        try:
            yield client
        except psycopg.Error as error:
            raise _postgres.failure(
                error, self._connection, f"cannot look after slot {self.name!r}"
            ) from error
        finally:
            await client.close()


async def _rows(client: Any, query: str, parameters: Sequence[Any] | None = None) -> list[Any]:
    cursor = await client.execute(query, parameters)
    rows: list[Any] = await cursor.fetchall()
    return rows
