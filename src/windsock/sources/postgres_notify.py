"""Changed rows of PostgreSQL as they are committed, by a trigger and LISTEN/NOTIFY; or bare notifications.

::

    # once: windsock postgres install-trigger public.orders --conn-id shop_db
    source = PostgresNotifySource(PostgresNotifyConfig(conn_id="shop_db", tables=("public.orders",)))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["new"] for event in delivery.events])
        await delivery.ack()

**Events.** ``windsock.postgres.insert``, ``.update``, ``.delete`` and ``.truncate``; source
``postgres://<conn_id>/<schema.table>``, key the primary key, id made of the transaction's and the change's
number. ``data`` has ``operation``, ``table``, ``key``, ``old``, ``new`` and ``transaction``; rows are as
PostgreSQL's ``to_json`` writes them.

**Guarantee.** At least once. The trigger writes each change into an outbox table, in the same transaction,
so it is there if and only if the change is; NOTIFY only rings. Rows are read in the order of their ids and
deleted from the outbox when they are acked. Transactions that run side by side get their ids in one order
and may commit in another: a row that appears behind others which were read is found, because every row that
is still in the outbox is due, whatever its number; no open transaction holds the others up. The changes of
one row always keep their order.

**Where it resumes.** The outbox is the position: what is in it was not acked. Two sources must not read the
same tables of one outbox; give each an outbox of its own.

**With ``channels``** it listens to those instead and needs no trigger: each payload is a message, read as
``format`` says. PostgreSQL keeps no notification for who is not listening, so this is *at most once*: what is
sent while the reader is away, or is held when it dies, is lost. Events have a random id unless they are
CloudEvents. A payload has at most 8,000 bytes.

**Connection.** Type ``postgres`` as in Airflow (``schema`` is the database; TLS and other options of libpq in
the extras). A connection pooler in transaction mode cannot LISTEN: connect to the server itself; with an
outbox, changes then still come at each ``poll``. The login needs SELECT and DELETE on the outbox.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, parse_json
from windsock.messages import Message, MessageOptions, events_of, unreadable
from windsock.sources import _postgres
from windsock.sources._ending import Ended, Ending
from windsock.sources._postgres_triggers import CHANNEL, OUTBOX
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees
from windsock.values import scalar_text

__all__ = ["CHANNELS_ONLY", "PostgresNotifyConfig", "PostgresNotifySource"]

CHANNELS_ONLY = Guarantees(
    delivery="at most once",
    position="none",
    once="with id",
    lag=False,
    tested="PostgreSQL 18",
    notes="With `channels`: PostgreSQL keeps no notification for who is not listening.",
)
"""What is promised without an outbox."""

_SELECT = "SELECT id, transaction::text, changed, relation, operation, key::text, old::text, new::text"
_NEW = _SELECT + " FROM {outbox} WHERE id > %s AND {mine} ORDER BY id LIMIT {limit}"
_LATE = _SELECT + " FROM {outbox} WHERE id < %s AND id <> ALL (%s) AND {mine} ORDER BY id LIMIT {limit}"
_COUNT = "SELECT count(*) FROM {outbox} WHERE {mine}"
_TAKE = "DELETE FROM {outbox} WHERE id = ANY (%s)"


class PostgresNotifyConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which changes, or which channels."""

    tables: Annotated[
        tuple[str, ...],
        Meta(description="The tables, as `schema.table`; by default all whose trigger writes to the outbox."),
    ] = ()
    operations: Annotated[
        tuple[Literal["insert", "update", "delete", "truncate"], ...],
        Meta(description="Which changes become events; the others are taken out of the outbox unread."),
    ] = ("insert", "update", "delete", "truncate")
    outbox: Annotated[
        str,
        Meta(description="The table into which the trigger writes, as it was installed.", min_length=1),
    ] = OUTBOX
    channel: Annotated[
        str, Meta(description="The channel on which the trigger rings, as it was installed.", min_length=1)
    ] = CHANNEL
    channels: Annotated[
        tuple[str, ...],
        Meta(
            description="Listen to these channels instead, without an outbox: at most once, and only what is "
            "sent while somebody listens."
        ),
    ] = ()
    poll: Annotated[
        float,
        Meta(
            description="Seconds between two looks into the outbox when no notification comes, in case one "
            "was lost.",
            gt=0,
        ),
    ] = 30.0


class PostgresNotifySource(UsesConnection):
    """Reads an outbox when its bell rings, or a channel's payloads."""

    kind: ClassVar[str] = "postgres_notify"
    config: ClassVar[type[PostgresNotifyConfig]] = PostgresNotifyConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        tested="PostgreSQL 18",
        notes="Transactions that ran side by side come in the order in which they were seen; the changes of "
        "one row keep theirs. With `channels` instead of an outbox: at most once, nothing is kept.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"poll"})

    def __init__(self, config: PostgresNotifyConfig) -> None:
        self.options = config
        self._session: _Listening | _Outbox | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        kind = _Listening if self.options.channels else _Outbox
        session = kind(self.options, await self.connection())
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        self._session = session

    async def read(self) -> AsyncIterator[Delivery]:
        session = self._session
        if session is None:
            raise SourceError("PostgreSQL is not being listened to: call connect first")
        with contextlib.suppress(Ended):
            async for delivery in session.read():
                yield delivery

    async def lag(self) -> int | None:
        session = self._session
        try:
            return await session.lag() if isinstance(session, _Outbox) else None
        except (SourceError, Ended):
            return None  # the read says why

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Session:
    """One connection, from ``connect`` to ``close``."""

    def __init__(self, options: PostgresNotifyConfig, connection: Connection) -> None:
        self.options = options
        self.connection = connection
        self.ending = Ending()
        self.client: Any = None

    async def listen(self, *channels: str) -> None:
        """Connect and listen."""
        from psycopg import sql

        self.client = await self.ending.first(_postgres.reach(self.connection))
        for channel in channels:
            await self.ask(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    async def ask(self, statement: Any, parameters: Sequence[Any] | None = None) -> list[Any]:
        """Run a statement; its rows, if it has any."""
        psycopg = _postgres.psycopg()
        try:
            cursor = await self.ending.first(self.client.execute(statement, parameters))
            return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise _postgres.failure(error, self.connection, "cannot be read") from error

    async def close(self) -> None:
        self.ending.end()
        if self.client is not None:
            await self.client.close()


class _Listening(_Session):
    """Notifications as messages."""

    async def open(self) -> None:
        _postgres.psycopg()
        await self.listen(*self.options.channels)

    async def read(self) -> AsyncIterator[Delivery]:
        while True:
            heard = await self.ending.first(self._hear())
            for start in range(0, len(heard), MAX_DELIVERY):
                yield self._delivery(heard[start : start + MAX_DELIVERY])

    async def _hear(self) -> list[Any]:
        """The next notifications: one, and what came with it."""
        psycopg = _postgres.psycopg()
        try:
            return [notification async for notification in self.client.notifies(stop_after=1)]
        except psycopg.Error as error:
            raise _postgres.failure(error, self.connection, "has ended the connection") from error

    def _delivery(self, heard: Sequence[Any]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for notification in heard:
            message = Message(body=notification.payload.encode(), subject=notification.channel)
            source = f"postgres://{self.options.conn_id}/{quote(notification.channel)}"
            made, unread = events_of([message], self.options, source=source, kind="postgres_notify")
            events += made
            dead += unread
        return Delivery(events, dead=dead)


class _Outbox(_Session):
    """Rows of the outbox, each until it is acked.

    One connection does everything: its socket is watched while nothing is asked, so that a notification or a
    broken connection wakes the reader at once.
    """

    def __init__(self, options: PostgresNotifyConfig, connection: Connection) -> None:
        super().__init__(options, connection)
        self._lock = asyncio.Lock()
        self._rung = asyncio.Event()
        self._out: set[int] = set()
        self._last = 0

    async def open(self) -> None:
        from psycopg import sql

        _postgres.psycopg()
        tables = list(self.options.tables)
        names: dict[str, Any] = {
            "outbox": sql.Identifier(*self.options.outbox.split(".")),
            "mine": sql.SQL("relation = ANY ({})").format(sql.Literal(tables)) if tables else sql.SQL("true"),
            "limit": sql.Literal(MAX_DELIVERY),
        }
        self._new, self._late, self._count, self._take = (
            sql.SQL(text).format(**names) for text in (_NEW, _LATE, _COUNT, _TAKE)
        )
        await self.listen(self.options.channel)
        self.client.add_notify_handler(lambda _: self._rung.set())
        await self.ask(self._count)

    async def read(self) -> AsyncIterator[Delivery]:
        while True:
            self._rung.clear()
            if self._last:
                while rows := await self._ask(self._late, [self._last, list(self._out)]):
                    yield await self._delivery(rows)
            while rows := await self._ask(self._new, [self._last]):
                self._last = rows[-1][0]
                yield await self._delivery(rows)
            await self._wait()

    async def lag(self) -> int:
        """How many rows wait that were not acked."""
        ((count,),) = await self._ask(self._count)
        return int(count)

    async def close(self) -> None:
        self._watch(False)
        await super().close()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.poll):
                await self.ending.first(self._rung.wait())

    async def _ask(self, statement: Any, parameters: Sequence[Any] | None = None) -> list[Any]:
        """Ask while nobody else does, and watch the socket again after."""
        self.ending.check()
        async with self._lock:
            self._watch(False)
            try:
                return await self.ask(statement, parameters)
            finally:
                self._watch(True)

    def _watch(self, on: bool) -> None:
        if self.client is None or self.client.closed:
            return
        loop, socket = asyncio.get_running_loop(), self.client.fileno()
        if on:
            loop.add_reader(socket, self._ring)
            while self.client.pgconn.notifies():  # what came right behind the answer
                self._rung.set()
        else:
            loop.remove_reader(socket)

    def _ring(self) -> None:
        self._watch(False)  # it stays readable until somebody asks
        self._rung.set()

    async def _delivery(self, rows: Sequence[Sequence[Any]]) -> Delivery:
        ids = [row[0] for row in rows]
        self._out.update(ids)
        events, dead = await asyncio.to_thread(self._events, rows)
        return Delivery(events, ack=partial(self._ack, ids), dead=dead)

    async def _ack(self, ids: Sequence[int]) -> None:
        with contextlib.suppress(Ended):  # the rows are still there for the next reader
            await self._ask(self._take, [ids])
            self._out.difference_update(ids)

    def _events(self, rows: Sequence[Sequence[Any]]) -> tuple[list[Event], list[DeadLetter]]:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for row in rows:
            if row[4] not in self.options.operations:
                continue
            try:
                events.append(self._event(*row))
            except InvalidEvent as error:
                body = (row[7] or row[6] or "").encode()
                dead.append(unreadable(body, error, where=f"{self.options.outbox} row {row[0]}"))
        return events, dead

    def _event(
        self,
        number: int,
        transaction: str,
        changed: Any,
        relation: str,
        operation: str,
        key: str | None,
        old: str | None,
        new: str | None,
    ) -> Event:
        keys = parse_json(key.encode()) if key else None
        return Event.make(
            {
                "operation": operation,
                "table": relation,
                "key": keys,
                "old": parse_json(old.encode()) if old else None,
                "new": parse_json(new.encode()) if new else None,
                "transaction": transaction,
            },
            id=f"{transaction}-{number}",
            source=f"postgres://{self.options.conn_id}/{relation}",
            type=self.options.type or f"windsock.postgres.{operation}",
            time=changed,
            subject=relation,
            key="/".join(quote(scalar_text(value), safe="") for value in keys.values()) if keys else relation,
            sequence=number,
        )
