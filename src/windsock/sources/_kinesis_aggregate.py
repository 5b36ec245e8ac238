"""Kinesis records in which a producer has packed many: the format of the Kinesis Producer Library (KPL).

Such a record is four magic bytes, a protobuf message and the MD5 of that message::

    message AggregatedRecord {                       message Record {
      repeated string partition_key_table = 1;         required uint64 partition_key_index = 1;
      repeated string explicit_hash_key_table = 2;     optional uint64 explicit_hash_key_index = 2;
      repeated Record records = 3;                     required bytes data = 3;
    }                                                }
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

__all__ = ["Packed", "hash_key", "unpack"]

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Packed(msgspec.Struct, frozen=True):
    """One of the records in a record."""

    key: str
    """Its partition key."""
    hash: int
    """Where it belongs among the shards."""
    data: bytes


def hash_key(partition_key: str) -> int:
    """The number by which Kinesis chooses the shard of a partition key."""
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest())


def unpack(data: bytes) -> list[Packed] | None:
    """The records that were packed into one; None if it is a plain record."""
    if not data.startswith(_MAGIC) or len(data) <= len(_MAGIC) + _DIGEST:
        return None
    body = data[len(_MAGIC) : -_DIGEST]
    if hashlib.md5(body, usedforsecurity=False).digest() != data[-_DIGEST:]:
        return None
    try:
        return list(_records(body))
    except (ValueError, IndexError):
        return None


def _records(body: bytes) -> Iterator[Packed]:
    keys: list[str] = []
    hashes: list[int] = []
    packed: list[bytes] = []
    for field, value in _fields(body):
        if not isinstance(value, bytes):
            continue
        if field == 1:
            keys.append(value.decode())
        elif field == 2:
            hashes.append(int(value.decode()))
        elif field == 3:
            packed.append(value)
    for record in packed:
        fields = dict(_fields(record))
        index, explicit, data = fields.get(1), fields.get(2), fields.get(3, b"")
        if not isinstance(index, int) or not isinstance(data, bytes):
            raise ValueError("a packed record without key or data")
        key = keys[index]
        yield Packed(key, hashes[explicit] if isinstance(explicit, int) else hash_key(key), data)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers for varints, bytes for the rest."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("cut off")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("number too long")
