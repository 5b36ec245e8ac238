"""Debezium's change events, whichever way they come: Kafka, HTTP (Debezium Server) or the embedded engine.

::

    wanted = ChangeOptions(tables=("public.orders",), operations=("create", "update"))
    event = change_of(record.value, wanted, key=record.key, topic="shop.public.orders")
    event.type      # 'debezium.update'
    event.subject   # 'shop.public.orders'
    event.data      # {'before': {...}, 'after': {...}, 'source': {...}, 'op': 'u', ...}: every field is kept

**Types.** ``debezium.create``, ``update``, ``delete``, ``read`` (a row of a snapshot), ``truncate``,
``message`` (a logical decoding message), ``transaction`` (its BEGIN and END), ``schema_change`` and, if asked
for, ``tombstone``. Heartbeats mean nothing to a Dag and are skipped.

**Values.** An event may come with its Kafka Connect schema (``{"schema": …, "payload": …}``) or without. With
it, decimals become text (``"99.50"``), and so do the counts behind dates and times, in ISO 8601. Without it,
a decimal is base64 and a timestamp a number that nothing marks as such: let the connector write them readably
(``decimal.handling.mode=string``, ``time.precision.mode=isostring``), or name the columns in ``decimals`` and
``times``.

**Id.** Made of the position in the database's log that ``source`` gives (LSN and transaction, binlog file,
position and row, SCN, …), the operation and the message's key, so that a change is the same event however
often its connector sends it. A row of a table without a primary key is told from its neighbours by the
transaction's ``total_order`` where the connector provides it (``provide.transaction.metadata``), by
``carrier`` where the caller can name the message, or else by its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windsock.envelopes._debezium_values import TIMES, decode, decode_decimal
from windsock.events import Event, InvalidEvent, normalise, parse_json

__all__ = ["ChangeOptions", "Operation", "change_of"]

Operation = Literal[
    "create", "update", "delete", "read", "truncate", "message", "transaction", "schema_change"
]

_OPERATIONS = {
    "c": "create", "u": "update", "d": "delete", "r": "read", "t": "truncate", "m": "message",
}  # fmt: skip
_POSITION = (
    *("gtid", "file", "pos", "row"),  # MySQL, MariaDB, Cassandra
    *("lsn", "txId"),  # PostgreSQL
    *("change_lsn", "commit_lsn", "event_serial_no"),  # SQL Server, Db2, Informix
    *("scn", "commit_scn", "rs_id", "ssn"),  # Oracle
    *("ord", "lsid", "txnNumber"),  # MongoDB
    *("vgtid", "server_transaction_id", "record_sequence"),  # Vitess, Spanner
)
"""Fields of ``source`` that say where in its log a change stands. Not ``sequence``: on PostgreSQL its first
part depends on when the connector started."""
_WRAPPED: set[str] = {"schema", "payload"}
_LONGEST_NAME = 600
"""Characters of an id before it is shortened to a digest."""
_TIME_NAMES = tuple(sorted(TIMES))


class ChangeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which changes, and how their columns are read."""

    tables: Annotated[
        tuple[str, ...],
        Meta(
            description="Tables whose changes are wanted, as globs on `table`, `schema.table` or "
            "`database.schema.table` (MySQL: `database.table`); all when empty. Transactions and logical "
            "messages have no table and always pass."
        ),
    ] = ()
    operations: Annotated[
        tuple[Operation, ...],
        Meta(description="What is wanted; everything when empty. `read` is a row of a snapshot."),
    ] = ()
    decimals: Annotated[
        dict[str, int],
        Meta(
            description="Columns whose decimals come in base64 and without a schema, as `column` or "
            "`table.column`, and their scale: `{'amount': 2}`."
        ),
    ] = {}
    times: Annotated[
        dict[str, str],
        Meta(
            description="Columns whose times come as numbers and without a schema, as `column` or "
            "`table.column`, and Debezium's name of their type: `{'created': 'MicroTimestamp'}`; one of "
            f"{', '.join(_TIME_NAMES)}."
        ),
    ] = {}

    def __post_init__(self) -> None:
        for column, name in self.times.items():
            if name not in TIMES:
                raise ValueError(f"times[{column!r}] is {name!r}: use one of {', '.join(_TIME_NAMES)}")


def change_of(
    value: bytes | Mapping[str, Any] | None,
    options: ChangeOptions,
    *,
    key: bytes | str | None = None,
    topic: str | None = None,
    headers: Mapping[str, Any] | None = None,
    carrier: str | None = None,
    snapshot: str | None = None,
    tombstones: bool = False,
) -> Event | None:
    """The event of one message of Debezium's, or None for one that is not wanted.

    ``topic`` is the destination that the connector chose. ``carrier`` names the message in what carried it,
    the same at every redelivery. ``snapshot`` names the snapshot that is being read: one that had to begin
    again then repeats no row. With ``tombstones`` an empty value is an event, too. Raises
    :class:`InvalidEvent` for what is not a change event.
    """
    payload, schema = _unwrapped(value)
    names = _key(key)
    if payload is None:
        return _tombstone(names, topic, headers, carrier) if tombstones else None
    if not isinstance(payload, Mapping):
        raise InvalidEvent(f"not a change event: a JSON {type(payload).__name__}, where an object is needed")
    change = _Change(normalise(payload), names, topic, carrier, snapshot)
    if change.operation is None or not change.wanted(options):
        return None
    return Event.make(
        change.decoded(schema, options),
        id=change.id(),
        source=f"debezium://{change.server}",
        type=f"debezium.{change.operation}",
        time=change.time(),
        subject=change.subject,
        key=names,
        correlation=change.transaction,
        traceparent=(headers or {}).get("traceparent"),
        headers=headers,
    )


class _Change:
    """One message, looked at."""

    def __init__(
        self,
        payload: dict[str, Any],
        key: str | None,
        topic: str | None,
        carrier: str | None,
        snapshot: str | None,
    ) -> None:
        self.payload = payload
        self.key = key
        self.topic = topic or ""
        self.carrier = carrier
        self.snapshot = snapshot
        self.source: dict[str, Any] = payload["source"] if isinstance(payload.get("source"), dict) else {}
        self.operation = self._operation()
        self.server = self._server()
        self.table = self._table()

    def _operation(self) -> str | None:
        """What happened; None for a heartbeat."""
        payload = self.payload
        if "op" in payload:
            if not isinstance(payload["op"], str) or payload["op"] not in _OPERATIONS:
                raise InvalidEvent(f"not a change event: the operation {payload['op']!r} is unknown")
            if not self.source:
                raise InvalidEvent("not a change event: 'source' is missing or no object")
            return _OPERATIONS[payload["op"]]
        if payload.get("status") in ("BEGIN", "END") and "id" in payload:
            return "transaction"
        if "ddl" in payload or "tableChanges" in payload:
            return "schema_change"
        if payload.keys() <= {"ts_ms", "ts_us", "ts_ns"} and payload:
            return None
        raise InvalidEvent(
            "not a change event: it has no 'op' and is no transaction, schema change or heartbeat; "
            "if the connector unwraps rows (ExtractNewRecordState), read them as plain messages instead"
        )

    def _server(self) -> str:
        name = self.source.get("name")
        if isinstance(name, str) and name:
            return name
        return self.topic.removesuffix(".transaction") or "debezium"

    def _table(self) -> tuple[str, ...]:
        """Database, schema and table, as far as there are any."""
        if self.operation in ("transaction", "message"):
            return ()
        if self.operation == "schema_change":
            names = [
                self.payload.get("databaseName"),
                self.payload.get("schemaName"),
                self.source.get("table"),
            ]
        else:
            table = self.source.get("table") or self.source.get("collection")
            names = [self.source.get("db"), self.source.get("schema"), table]
        return tuple(name for name in names if isinstance(name, str) and name)

    @property
    def subject(self) -> str | None:
        """Where it happened."""
        if self.operation == "transaction":
            return str(self.payload["id"])
        if self.operation == "message":
            message = self.payload.get("message")
            prefix = message.get("prefix") if isinstance(message, dict) else None
            return prefix if isinstance(prefix, str) else None
        return ".".join(self.table)

    @property
    def transaction(self) -> str | None:
        """The id of its transaction, where the connector provides it."""
        if self.operation == "transaction":
            return str(self.payload["id"])
        about = self.payload.get("transaction")
        return str(about["id"]) if isinstance(about, dict) and about.get("id") is not None else None

    def wanted(self, options: ChangeOptions) -> bool:
        if options.operations and self.operation not in options.operations:
            return False
        if not options.tables or not self.table:
            return True
        names = [".".join(self.table[start:]) for start in range(len(self.table))]
        return any(fnmatchcase(name, pattern) for pattern in options.tables for name in names)

    def id(self) -> str:
        """The same for the same change, however often it is sent."""
        if self.operation == "transaction":
            parts = [self.payload["id"], self.payload["status"]]
        else:
            parts = [*self._where(), ".".join(self.table), self.operation, self._which()]
        name = "/".join("" if part is None else str(part) for part in parts)
        return name if len(name) <= _LONGEST_NAME else _digest(name)

    @property
    def _in_snapshot(self) -> bool:
        """Whether it is a row of the snapshot that has a name; one that was asked for later is another."""
        named = self.operation == "read" and self.snapshot is not None
        return named and self.source.get("snapshot") != "incremental"

    def _where(self) -> list[Any]:
        if self._in_snapshot:
            return [self.snapshot]
        found = [self.source[name] for name in _POSITION if self.source.get(name) is not None]
        return found or [self.source.get("sequence") or self.source.get("ts_ms")]

    def _which(self) -> str:
        """What tells this change from others at the same position."""
        content = {
            name: self.payload.get(name) for name in ("before", "after", "message", "ddl", "tableChanges")
        }
        if self._in_snapshot and self.key is not None:
            return f"{self.key}/{_digest(content)}"
        if self.operation in ("schema_change", "message"):
            return _digest(content)
        if self.key is not None:
            return self.key
        about = self.payload.get("transaction")
        if isinstance(about, dict) and about.get("total_order") is not None:
            return str(about["total_order"])
        unique = self.source.get("row") is not None and self.source.get("snapshot") in (None, False, "false")
        return _digest(content) if unique or self.carrier is None else self.carrier

    def time(self) -> float | None:
        """When it happened in the database; the connector's own time where that is not known."""
        for moment in (self.source.get("ts_ms"), self.payload.get("ts_ms")):
            if isinstance(moment, int) and not isinstance(moment, bool) and moment > 0:
                return moment / 1000
        return None

    def decoded(self, schema: Any, options: ChangeOptions) -> Any:
        data = decode(self.payload, schema)
        if not options.decimals and not options.times:
            return data
        rows = {name: self._columns(data[name], options) for name in ("before", "after") if name in data}
        return {**data, **rows}

    def _columns(self, row: Any, options: ChangeOptions) -> Any:
        if not isinstance(row, dict):
            return row
        return {column: self._column(column, value, options) for column, value in row.items()}

    def _column(self, column: str, value: Any, options: ChangeOptions) -> Any:
        for name in (f"{self.table[-1]}.{column}" if self.table else column, column):
            if name in options.decimals:
                return decode_decimal(value, options.decimals[name])
            if name in options.times and isinstance(value, int) and not isinstance(value, bool):
                return TIMES[options.times[name]](value)
        return value


def _unwrapped(value: bytes | Mapping[str, Any] | None) -> tuple[Any, Any]:
    """The payload, and its schema if it came along."""
    if isinstance(value, bytes):
        value = parse_json(value) if value else None
    if isinstance(value, Mapping) and value.keys() == _WRAPPED:
        return value["payload"], value["schema"]
    return value, None


def _key(key: bytes | str | None) -> str | None:
    """The message's key as text: its columns as compact JSON, or as it is when it is something else."""
    if not key:
        return None
    raw = key if isinstance(key, bytes) else key.encode("utf-8", "backslashreplace")
    try:
        payload, schema = _unwrapped(raw)
        plain = decode(normalise(payload), schema)
    except InvalidEvent:
        return raw.decode("utf-8", "backslashreplace")
    if plain is None:
        return None
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _tombstone(
    key: str | None, topic: str | None, headers: Mapping[str, Any] | None, carrier: str | None
) -> Event:
    return Event.make(
        None,
        id=carrier,
        source=f"debezium://{topic or 'debezium'}",
        type="debezium.tombstone",
        subject=topic,
        key=key,
        headers=headers,
    )


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
