"""PostgreSQL's streaming replication protocol on asyncio, over psycopg's bare connection.

The server pushes its log and wants to hear from time to time how far the client has stored it; what was
confirmed it may forget. Nothing here blocks and nothing is polled.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.sources import _postgres

__all__ = ["Stream"]

_SETTINGS = "-c datestyle=ISO -c timezone=UTC -c bytea_output=hex -c extra_float_digits=3"
_EPOCH = 946_684_800  # 2000-01-01, from which PostgreSQL counts
_HEADER = 25  # bytes before the data in a message
_COPY_BOTH = 8


class Stream:
    """One replication connection that reads one slot."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: Any = None
        self.system = ""
        """The number of the database cluster, in which positions have a meaning."""
        self.asked = False
        """Whether the server waits for a word of ours."""
        self._ready: asyncio.Future[None] | None = None

    async def start(self, slot: str, publication: str) -> None:
        """Connect and have the server push what the slot has not confirmed."""
        from psycopg import sql

        self._client = await _postgres.reach(
            self._connection, replication="database", options=_SETTINGS, client_encoding="UTF8"
        )
        psycopg = _postgres.psycopg()
        try:
            cursor = await self._client.execute("IDENTIFY_SYSTEM")
            self.system = (await cursor.fetchone())[0]
            command = sql.SQL(
                "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})"
            ).format(sql.Identifier(slot), sql.Literal(sql.Identifier(publication).as_string(None)))
            raw = self._client.pgconn
            raw.send_query(command.as_bytes(self._client))
            while raw.is_busy():
                await self._readable()
                raw.consume_input()
            result = raw.get_result()
            if result is None or result.status != _COPY_BOTH:
                raise self._refused(slot, result)
        except psycopg.Error as error:
            raise _postgres.failure(error, self._connection, f"cannot read slot {slot!r}") from error

    async def receive(self, limit: int) -> list[tuple[int, bytes]]:
        """The next messages: (0, message), or (position, nothing) where the log was read that far in vain."""
        psycopg = _postgres.psycopg()
        try:
            while not (found := self._available(limit)):
                await self._readable()
                self._client.pgconn.consume_input()
        except psycopg.Error as error:
            raise _postgres.failure(error, self._connection, "has ended the stream") from error
        return found

    def confirm(self, position: int, *, answer: bool = False) -> None:
        """Tell the server that all before the position is stored; ``answer`` asks where it is itself."""
        psycopg = _postgres.psycopg()
        now = int((time.time() - _EPOCH) * 1_000_000)
        try:
            raw = self._client.pgconn
            raw.put_copy_data(struct.pack(">cqqqqb", b"r", position, position, position, now, answer))
            raw.flush()
            self.asked = False
            self._wake()  # libpq may have read while it wrote, and the socket tells nobody
        except psycopg.Error as error:
            raise _postgres.failure(error, self._connection, "has ended the stream") from error

    async def close(self) -> None:
        """Let go of the slot."""
        if self._client is not None:
            await self._client.close()

    def _available(self, limit: int) -> list[tuple[int, bytes]]:
        """What has come in already."""
        found: list[tuple[int, bytes]] = []
        while len(found) < limit:
            length, data = self._client.pgconn.get_copy_data(1)
            if length == 0:
                break
            if length < 0:
                if found:
                    break
                raise SourceError(
                    f"PostgreSQL (connection {self._connection.conn_id!r}) has ended the stream: the server "
                    "is going down or the slot was dropped; retried"
                )
            message = bytes(data)
            if message[:1] == b"w":
                found.append((0, message[_HEADER:]))
            elif message[:1] == b"k":
                position, _, wants_answer = struct.unpack_from(">qqb", message, 1)
                self.asked = self.asked or bool(wants_answer)
                found.append((position, b""))
        return found

    def _refused(self, slot: str, result: Any) -> SourceError:
        psycopg = _postgres.psycopg()
        text = result.get_error_message() if result is not None else "the connection is closed"
        state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) if result is not None else None
        if state == b"55006":
            return SourceError(
                f"slot {slot!r} is being read by another: {' '.join(text.split())}; a slot has one reader, "
                "give each watcher its own or end the other one"
            )
        return _postgres.failure(psycopg.Error(text), self._connection, f"cannot read slot {slot!r}")

    async def _readable(self) -> None:
        """Wait until there may be something to read, or the connection is gone."""
        loop = asyncio.get_running_loop()
        socket = self._client.pgconn.socket
        self._ready = loop.create_future()
        loop.add_reader(socket, self._wake)
        try:
            await self._ready
        finally:
            loop.remove_reader(socket)

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
