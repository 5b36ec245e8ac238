"""Changed rows of PostgreSQL out of its write-ahead log, by logical decoding: no trigger, nothing missed.

::

    source = PostgresCdcSource(PostgresCdcConfig(
        conn_id="shop_db", slot="windsock_orders", tables=("public.orders",), create=True,
    ))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["new"] for event in delivery.events])
        await delivery.ack()

**Events.** ``windsock.postgres.insert``, ``.update``, ``.delete`` and ``.truncate``; source
``postgres://<conn_id>/<schema.table>``, key the primary key, id ``<LSN of the commit>/<number in the
transaction>``, time that of the commit. ``data`` has ``operation``, ``table``, ``key``, ``old``, ``new``,
``transaction`` and ``lsn``. ``old`` is what the table's replica identity tells: nothing or the key by
default, the whole row after ``ALTER TABLE ... REPLICA IDENTITY FULL``. Large columns that an update did not
touch are not in the log; their names are in ``unchanged``. Numbers, booleans, JSON, arrays and times become
JSON's own or ISO 8601, ``numeric`` stays text, ``bytea`` becomes base64, all other types are as PostgreSQL
writes them.

**Guarantee.** At least once, in the order of the commits, transactions whole and never before they are
committed. The slot is advanced when the log has committed, not before.

**Where it resumes.** The slot keeps the position. The cursor adds how much of a transaction is stored
already, so that a long one does not begin anew.

**The slot holds the server's log back** for as long as nobody reads it: a watcher that is stopped for good
leaves a disk that fills up. Drop its slot: ``SELECT pg_drop_replication_slot('windsock_orders')``. While the
watcher runs, what the slot retains is looked at every minute, and past ``warn_at`` bytes the warning
``windsock.source.slot_growing`` is logged; set ``max_slot_wal_keep_size`` on the server as the last resort.
An idle slot is moved along, so that other tables' changes do not pile up behind it.

**Not done:** an initial snapshot. A new slot begins with the next change; read what is there with the ``sql``
source, or a plain task, first.

**Connection.** Type ``postgres`` as in Airflow (``schema`` is the database; TLS and other options of libpq in
the extras), straight to the server, not through a pooler. The server needs ``wal_level = logical``, the login
the attribute REPLICATION and SELECT on the tables; with ``create`` also to own them. PostgreSQL 12 or newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import unreadable
from windsock.sources import _postgres
from windsock.sources._ending import Ended, Ending
from windsock.sources._pgoutput import Change, Decoder, lsn_text
from windsock.sources._postgres_slot import Slot
from windsock.sources._postgres_stream import Stream
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees
from windsock.values import scalar_text

__all__ = ["PostgresCdcConfig", "PostgresCdcSource"]

logger = logging.getLogger(__name__)

_INSPECTION = 60.0
"""Seconds between two looks at what the slot retains."""


class PostgresCdcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which changes to read."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the database.", min_length=1)]
    slot: Annotated[
        str,
        Meta(
            description="The replication slot, which keeps the position; one for each watcher.",
            pattern=r"^[a-z0-9_]{1,63}$",
        ),
    ]
    publication: Annotated[
        str | None,
        Meta(description="The publication, which says what is published; by default the slot's name."),
    ] = None
    tables: Annotated[
        tuple[str, ...],
        Meta(description="The tables, as `schema.table`; by default all that the publication has."),
    ] = ()
    operations: Annotated[
        tuple[Literal["insert", "update", "delete", "truncate"], ...],
        Meta(description="Which changes become events."),
    ] = ("insert", "update", "delete", "truncate")
    create: Annotated[
        bool,
        Meta(
            description="Create the publication (of `tables`, or of all tables) and the slot if they are "
            "missing."
        ),
    ] = False
    warn_at: Annotated[
        int,
        Meta(
            description="Bytes of the server's log that the slot may hold back before a warning is logged.",
            ge=0,
        ),
    ] = 1_000_000_000


class PostgresCdcSource(UsesConnection):
    """Reads a replication slot."""

    kind: ClassVar[str] = "postgres_cdc"
    config: ClassVar[type[PostgresCdcConfig]] = PostgresCdcConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        lag=False,
        tested="PostgreSQL 18",
        notes="In the order of the commits. The slot holds the server's log back while nobody reads; its "
        "growth is warned about, the number of waiting events is not known.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"create", "warn_at"})

    def __init__(self, config: PostgresCdcConfig) -> None:
        self.options = config
        self._session: _Session | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        session = _Session(self.options, await self.connection())
        try:
            await session.open(cursor)
        except BaseException:
            await session.close()
            raise
        self._session = session

    async def read(self) -> AsyncIterator[Delivery]:
        session = self._session
        if session is None:
            raise SourceError(f"slot {self.options.slot!r} is not being read: call connect first")
        with contextlib.suppress(Ended):
            async for delivery in session.read():
                yield delivery

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Session:
    """One connection, from ``connect`` to ``close``."""

    def __init__(self, options: PostgresCdcConfig, connection: Connection) -> None:
        self._options = options
        self._slot = Slot(connection, options.slot, options.publication or options.slot)
        self._stream = Stream(connection)
        self._ending = Ending()
        self._decoder = Decoder()
        self._tasks: list[asyncio.Task[None]] = []
        self._stored = (0, 0)
        self._confirmed = 0
        self._idle = 0
        self._unacked = 0

    async def open(self, cursor: Cursor | None) -> None:
        """Make sure that all is there, and start the stream."""
        _postgres.psycopg()
        found = await self._ending.first(
            self._slot.prepare(self._options.tables, create=self._options.create)
        )
        await self._ending.first(self._stream.start(self._slot.name, self._slot.publication))
        self._decoder = Decoder(keys=found.keys)
        if cursor is not None and cursor["system"] == self._stream.system:
            self._stored = cursor["lsn"], cursor["index"]
        self._tasks = [
            asyncio.create_task(self._keep_alive(found.patience / 3)),
            asyncio.create_task(self._inspect()),
        ]

    async def close(self) -> None:
        self._ending.end()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._stream.close()

    async def read(self) -> AsyncIterator[Delivery]:
        while True:
            messages = await self._ending.first(self._stream.receive(MAX_DELIVERY))
            changes, end = await asyncio.to_thread(self._changes, messages)
            starts = range(0, len(changes), MAX_DELIVERY)
            # Counted before anything else can be acked: what is not stored yet must not be confirmed.
            self._unacked += len(starts)
            self._idle = end
            if not self._unacked:
                self._confirmed = max(self._confirmed, end)
            if self._stream.asked:
                self._stream.confirm(self._confirmed)
            for start in starts:
                part = changes[start : start + MAX_DELIVERY]
                events, dead = await asyncio.to_thread(self._events, part)
                cursor = {"system": self._stream.system, "lsn": part[-1].lsn, "index": part[-1].index}
                ack = partial(self._ack, end if start == starts[-1] else 0)
                yield Delivery(events, cursor=cursor, ack=ack, dead=dead)

    def _changes(self, messages: Sequence[tuple[int, bytes]]) -> tuple[list[Change], int]:
        """What is news in the messages, and how far the log is behind us with them."""
        found: list[Change] = []
        end = self._idle
        for position, message in messages:
            if message:
                found += self._decoder.decode(message)
            if not self._decoder.inside:
                end = max(end, self._decoder.end, position)
        options = self._options
        return [
            change
            for change in found
            if (change.lsn, change.index) > self._stored
            and change.operation in options.operations
            and (not options.tables or change.table in options.tables)
        ], end

    def _events(self, changes: Sequence[Change]) -> tuple[list[Event], list[DeadLetter]]:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for change in changes:
            try:
                events.append(self._event(change))
            except InvalidEvent as error:
                body = repr(change.new or change.old).encode("utf-8", "backslashreplace")
                dead.append(unreadable(body, error, where=f"{change.table} at {lsn_text(change.lsn)}"))
        return events, dead

    async def _ack(self, end: int) -> None:
        self._unacked -= 1
        self._confirmed = max(self._confirmed, end if self._unacked else self._idle)
        with contextlib.suppress(Ended):  # the next reader knows from the cursor what is stored
            self._ending.check()
            self._stream.confirm(self._confirmed)

    async def _keep_alive(self, interval: float) -> None:
        """Be heard, also while nobody reads, and let an idle slot move along."""
        with contextlib.suppress(Ended):
            try:
                while True:
                    await self._ending.first(asyncio.sleep(interval))
                    self._stream.confirm(self._confirmed, answer=True)
            except SourceError as error:
                self._ending.end(error)

    async def _inspect(self) -> None:
        """Look at what the slot holds back; that nobody can look is not worth more than a warning."""
        with contextlib.suppress(Ended):
            while True:
                try:
                    self._report(await self._ending.first(self._slot.retained()))
                except SourceError as error:
                    logger.warning("windsock.source.slot_unknown slot=%s: %s", self._slot.name, error)
                await self._ending.first(asyncio.sleep(_INSPECTION))

    def _report(self, retained: int) -> None:
        if retained > self._options.warn_at:
            logger.warning(
                "windsock.source.slot_growing slot=%s retained_bytes=%d warn_at=%d: read faster, or drop the "
                "slot if it is not needed",
                self._slot.name,
                retained,
                self._options.warn_at,
            )

    def _event(self, change: Change) -> Event:
        data: dict[str, Any] = {
            "operation": change.operation,
            "table": change.table,
            "key": change.key,
            "old": change.old,
            "new": change.new,
            "transaction": change.transaction,
            "lsn": lsn_text(change.lsn),
        }
        if change.unchanged:
            data["unchanged"] = change.unchanged
        keys = [quote(scalar_text(value), safe="") for value in (change.key or {}).values()]
        return Event.make(
            data,
            id=f"{lsn_text(change.lsn)}/{change.index}",
            source=f"postgres://{self._options.conn_id}/{change.table}",
            type=f"windsock.postgres.{change.operation}",
            time=change.time,
            subject=change.table,
            key="/".join(keys) or change.table,
            sequence=f"{change.lsn:016X}-{change.index:08}",
        )
