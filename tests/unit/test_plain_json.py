"""JSON read straight into plain values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import InvalidEvent, normalise, parse_json, plain_json

NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**18])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_reads_what_the_two_steps_read(value: object, ascii: bool, indent: int | None) -> None:
    """Whatever is in the text, the result is that of parsing and normalising."""
    body = json.dumps(value, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    assert outcome(plain_json, body) == outcome(lambda body: normalise(parse_json(body)), body)


@given(st.binary() | st.text('[]{}",:0123456789eE.+-\\un \0').map(str.encode))
def test_refuses_what_the_two_steps_refuse(body: bytes) -> None:
    """Broken text is refused, or read, in the same way."""
    assert outcome(plain_json, body) == outcome(lambda body: normalise(parse_json(body)), body)


@pytest.mark.parametrize("body", [b"[" * 99 + b"]" * 99, b"[" * 100 + b"]" * 100, b"[" * 101 + b"]" * 101])
def test_nesting(body: bytes) -> None:
    """The limit on nesting is the same on both ways."""
    assert outcome(plain_json, body) == outcome(lambda body: normalise(parse_json(body)), body)


def outcome(read: object, body: bytes) -> object:
    """What is read, as text that tells 1 from 1.0, or that it is refused."""
    try:
        return repr(read(body))  # type: ignore[operator]
    except InvalidEvent:
        return InvalidEvent
