"""PostgreSQL's logical replication messages, without a server."""

from __future__ import annotations

import contextlib
import datetime as dt
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import SourceError
from windsock.sources._pgoutput import Decoder, lsn_text

INT, TEXT = 23, 25
BEGIN = b"B" + struct.pack(">qqI", 0x1_0000_0010, 1_000_000, 77)
COMMIT = b"C" + struct.pack(">bqqq", 0, 0x1_0000_0010, 0x1_0000_0020, 1_000_000)
RELATION = (
    b"R"
    + struct.pack(">I", 5)
    + b"public\0orders\0"
    + struct.pack(">cH", b"d", 2)
    + struct.pack(">B", 1)
    + b"id\0"
    + struct.pack(">Ii", INT, -1)
    + struct.pack(">B", 0)
    + b"note\0"
    + struct.pack(">Ii", TEXT, -1)
)


def row(*values: str | None) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        text = b"" if value is None else value.encode()
        parts.append(b"n" if value is None else b"t" + struct.pack(">I", len(text)) + text)
    return b"".join(parts)


INSERT = b"I" + struct.pack(">Ic", 5, b"N") + row("7", "tea")
UPDATE = b"U" + struct.pack(">Ic", 5, b"K") + row("6", None) + b"N" + row("7", None)
DELETE = b"D" + struct.pack(">Ic", 5, b"K") + row("7", None)
TRUNCATE = b"T" + struct.pack(">IBI", 1, 0, 5)
OTHERS = (b"Y" + b"\0" * 6, b"O" + b"\0" * 9, b"M" + b"\0" * 20)


def test_a_transaction() -> None:
    """Changes carry the transaction, its commit's place and time, and their number in it."""
    decoder = Decoder()
    messages = (BEGIN, *OTHERS, RELATION, INSERT, UPDATE, DELETE, TRUNCATE)
    changes = [change for message in messages for change in decoder.decode(message)]
    assert decoder.inside
    assert decoder.decode(COMMIT) == []
    assert (decoder.inside, decoder.end) == (False, 0x1_0000_0020)
    assert [(c.operation, c.key, c.old, c.new, c.index) for c in changes] == [
        ("insert", {"id": 7}, None, {"id": 7, "note": "tea"}, 1),
        ("update", {"id": 7}, {"id": 6}, {"id": 7, "note": None}, 2),
        ("delete", {"id": 7}, {"id": 7}, None, 3),
        ("truncate", None, None, None, 4),
    ]
    assert {(c.table, c.transaction, lsn_text(c.lsn)) for c in changes} == {("public.orders", 77, "1/10")}
    assert changes[0].time == dt.datetime(2000, 1, 1, 0, 0, 1, tzinfo=dt.UTC)


def test_a_relation_that_was_not_described() -> None:
    """A change of an unknown relation is an error that says what to check."""
    with pytest.raises(SourceError, match="cannot be read"):
        Decoder().decode(INSERT)


@given(st.sampled_from([BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE]), st.data())
def test_cut_and_broken_messages(message: bytes, data: st.DataObject) -> None:
    """Whatever is cut off or changed, the decoder returns changes or raises SourceError."""
    decoder = Decoder()
    decoder.decode(RELATION)
    broken = bytearray(message[: data.draw(st.integers(0, len(message)))])
    for at in data.draw(st.lists(st.integers(0, max(len(broken) - 1, 0)), max_size=3)):
        if broken:
            broken[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(SourceError):
        decoder.decode(bytes(broken))


@given(st.binary(max_size=200))
def test_noise(message: bytes) -> None:
    """Any bytes at all give changes or a SourceError."""
    with contextlib.suppress(SourceError):
        Decoder().decode(message)
