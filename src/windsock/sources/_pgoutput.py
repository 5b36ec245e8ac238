"""PostgreSQL's logical replication messages (``pgoutput``, version 1), decoded to plain values.

Every message names its relation by a number that an earlier one described, and belongs to the transaction
that was begun last; so a :class:`Decoder` goes with one connection and sees each message once, in order.
Transactions arrive whole and only when they are committed.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windsock.events import SourceError

__all__ = ["Change", "Decoder", "lsn_text"]

_EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_DECODED = (
    *("bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "json", "jsonb", "bytea", "uuid"),
    *("date", "time", "timestamp", "timestamptz", "text", "varchar", "bpchar"),
)
"""Types whose values become more than text, as do their arrays. All others are as PostgreSQL writes them."""


def lsn_text(lsn: int) -> str:
    """A position in the write-ahead log the way PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row, or the truncation of one table."""

    operation: str
    table: str
    key: dict[str, Any] | None
    old: dict[str, Any] | None
    """The row before, as much as the table's replica identity tells."""
    new: dict[str, Any] | None
    unchanged: list[str]
    """Columns that are large, were not changed, and so were not sent."""
    transaction: int
    lsn: int
    """Where the transaction's commit is in the log."""
    index: int
    """Which change of the transaction it is."""
    time: dt.datetime


@dataclass(frozen=True, slots=True)
class _Relation:
    table: str
    columns: list[tuple[str, int]]
    key: Sequence[str]


@dataclass
class Decoder:
    """Messages in, changes out."""

    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Primary keys by ``schema.table``; a table that is not there goes by its replica identity."""
    end: int = 0
    """Where the last complete transaction ended."""
    inside: bool = False
    """Whether a transaction is not complete yet."""

    def __post_init__(self) -> None:
        self._relations: dict[int, _Relation] = {}
        self._values = _Values()
        self._lsn = self._transaction = self._index = 0
        self._time = _EPOCH

    def decode(self, message: bytes) -> list[Change]:
        """The changes that a message tells; raises SourceError if it is none."""
        try:
            return self._decode(message[:1], _Reader(message, 1))
        except (struct.error, IndexError, KeyError, UnicodeDecodeError, OverflowError) as error:
            raise SourceError(
                f"a message of PostgreSQL's logical decoding cannot be read ({type(error).__name__}): check "
                "that the slot's plugin is pgoutput; reading begins again behind the last transaction"
            ) from error

    def _decode(self, kind: bytes, read: _Reader) -> list[Change]:
        match kind:
            case b"B":
                self._lsn, stamp, self._transaction = read.take("qqI")
                self._time = _EPOCH + dt.timedelta(microseconds=stamp)
                self._index, self.inside = 0, True
            case b"C":
                _, _, self.end, _ = read.take("bqqq")
                self.inside = False
            case b"R":
                self._describe(read)
            case b"I":
                relation = self._relations[read.take("I")[0]]
                read.take("c")
                new, unchanged = self._row(relation, read)
                return [self._change("insert", relation, None, new, unchanged)]
            case b"U":
                relation = self._relations[read.take("I")[0]]
                (part,) = read.take("c")
                old = None
                if part in b"KO":
                    old, _ = self._row(relation, read, only_key=part == b"K")
                    read.take("c")
                new, unchanged = self._row(relation, read)
                return [self._change("update", relation, old, new, unchanged)]
            case b"D":
                relation = self._relations[read.take("I")[0]]
                (part,) = read.take("c")
                old, _ = self._row(relation, read, only_key=part == b"K")
                return [self._change("delete", relation, old, None, [])]
            case b"T":
                count, _ = read.take("IB")
                relations = [self._relations[read.take("I")[0]] for _ in range(count)]
                return [self._change("truncate", relation, None, None, []) for relation in relations]
        return []

    def _describe(self, read: _Reader) -> None:
        (number,) = read.take("I")
        table = f"{read.text()}.{read.text()}"
        identity, count = read.take("cH")
        columns: list[tuple[str, int]] = []
        marked: list[str] = []
        for _ in range(count):
            (flags,) = read.take("B")
            name = read.text()
            kind, _ = read.take("Ii")
            columns.append((name, kind))
            if flags & 1 and identity != b"f":  # a full identity marks every column
                marked.append(name)
        self._relations[number] = _Relation(table, columns, self.keys.get(table) or marked)

    def _row(
        self, relation: _Relation, read: _Reader, *, only_key: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        (count,) = read.take("H")
        row: dict[str, Any] = {}
        unchanged: list[str] = []
        for name, kind in relation.columns[:count]:
            (form,) = read.take("c")
            if form == b"u":
                unchanged.append(name)
            elif form != b"n":
                row[name] = self._values.load(kind, read.bytes())
            elif not only_key or name in relation.key:
                row[name] = None
        return row, unchanged

    def _change(
        self,
        operation: str,
        relation: _Relation,
        old: dict[str, Any] | None,
        new: dict[str, Any] | None,
        unchanged: list[str],
    ) -> Change:
        if new is not None and old is not None:
            new |= {name: old[name] for name in unchanged if name in old}
            unchanged = [name for name in unchanged if name not in old]
        row = new if new is not None else old
        key = {name: row[name] for name in relation.key if name in row} if row else None
        self._index += 1
        return Change(
            operation=operation,
            table=relation.table,
            key=key or None,
            old=old,
            new=new,
            unchanged=unchanged,
            transaction=self._transaction,
            lsn=self._lsn,
            index=self._index,
            time=self._time,
        )


class _Reader:
    """Goes through a message."""

    def __init__(self, message: bytes, at: int) -> None:
        self._message = message
        self._at = at

    def take(self, form: str) -> tuple[Any, ...]:
        """Numbers and characters, as ``struct`` names them."""
        values = struct.unpack_from(f">{form}", self._message, self._at)
        self._at += struct.calcsize(f">{form}")
        return values

    def text(self) -> str:
        """Text up to the next NUL."""
        end = self._message.find(b"\0", self._at)
        if end < 0:
            raise IndexError("text has no end")
        found = self._message[self._at : end].decode()
        self._at = end + 1
        return found

    def bytes(self) -> bytes:
        """Bytes that are counted."""
        (length,) = self.take("I")
        found = self._message[self._at : self._at + length]
        if len(found) < length:
            raise IndexError("value is cut")
        self._at += length
        return found


class _Values:
    """PostgreSQL's text form of a value, by the type's number, as Python knows it."""

    def __init__(self) -> None:
        from psycopg.adapt import Transformer
        from psycopg.postgres import types
        from psycopg.pq import Format

        transformer = Transformer()
        self._loaders = {
            oid: transformer.get_loader(oid, Format.TEXT).load
            for name in _DECODED
            for oid in (types[name].oid, types[name].array_oid)
        }

    def load(self, kind: int, value: bytes) -> Any:
        """The value; as text if it is of another type, or one that Python has no value for."""
        load = self._loaders.get(kind)
        if load is None:
            return value.decode()
        try:
            return load(value)
        except Exception:  # noqa: BLE001 - infinity, the year 10000: whatever the loaders make of it
            return value.decode()
