"""Event streams without a server: the text format, however it is cut into pieces, and the options."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import WindsockError
from windsock.sources import make_source
from windsock.sources._sse_stream import EventStream, ServerEvent
from windsock.sources.base import Source
from windsock.sources.sse import SseConfig


def read(text: bytes, **options: Any) -> list[ServerEvent]:
    return EventStream(**options).feed(text)


def told(text: bytes) -> list[tuple[str, bytes, str]]:
    return [(event.name, event.data, event.last_id) for event in read(text)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        # The examples of the specification.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("message", b"YHOO\n+2\n10", "")]),
        (
            b": test stream\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third\n\n",
            [("message", b"first", "1"), ("message", b"second", ""), ("message", b" third", "")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [("message", b"", ""), ("message", b"\n", "")]),
        (b"data:test\n\ndata: test\n\n", [("message", b"test", ""), ("message", b"test", "")]),
        # The rest of its rules.
        (b"event: add\ndata: 1\n\nevent: no\n\ndata: 2\n\n", [("add", b"1", ""), ("message", b"2", "")]),
        (b"data: a\r\ndata: b\r\rdata: c\n\r\n", [("message", b"a\nb", ""), ("message", b"c", "")]),
        (b"id: 1\x00\ndata: a\n\n", [("message", b"a", "")]),
        (b"id: 7\n\ndata: a\n\n", [("message", b"a", "7")]),
        (b"\xef\xbb\xbfdata: bom\n\n", [("message", b"bom", "")]),
        (b"unknown: x\ndata : x\ndata: y\n\n", [("message", b"y", "")]),
        (b"data: not ended\n", []),
        (b"", []),
    ],
)  # fmt: skip
def test_the_text_format(text: bytes, events: list[tuple[str, bytes, str]]) -> None:
    """Fields, comments, line ends, ids and the byte order mark are read as the specification says."""
    assert told(text) == events


def test_an_id_without_data_moves_the_position() -> None:
    """The last id counts from the blank line on, not before."""
    stream = EventStream(last_id="1")
    stream.feed(b"id: 2\n")
    assert stream.last_id == "1"
    stream.feed(b"\n")
    assert stream.last_id == "2"


@pytest.mark.parametrize(
    ("text", "seconds"), [(b"1500", 1.5), (b"0", 0), (b"-1", None), (b"1.5", None), (b"9" * 50, None)]
)
def test_the_time_to_wait(text: bytes, seconds: float | None) -> None:
    """retry is taken in milliseconds, and only if it is a number of digits that makes sense."""
    stream = EventStream()
    stream.feed(b"retry: " + text + b"\n\n")
    assert stream.retry == seconds


def test_an_event_that_is_too_large_is_cut() -> None:
    """Long lines and long events lose their end and are marked; the next event is whole."""
    long_line, many_lines, small = read(
        b"data: " + b"x" * 500 + b"\n\n" + b"data: 0123456789\n" * 50 + b"\ndata: small\n\n", max_bytes=100
    )
    assert long_line.cut
    assert many_lines.cut
    assert max(len(long_line.data), len(many_lines.data)) <= 100
    assert (small.data, small.cut) == (b"small", False)


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:b", b"id: 1", b"id", b"event: e", b": c", b"", b"\xff", b"x"])
        | st.binary(max_size=10),
        max_size=20,
    ),
    st.sampled_from([b"\n", b"\r", b"\r\n"]),
    st.lists(st.integers(0, 200), max_size=12),
)  # fmt: skip
def test_pieces_do_not_matter(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    """However the stream is cut into pieces on its way, the same events come out of it."""
    text = end.join(lines) + end + end
    stream = EventStream()
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [event for start, stop in pairwise(places) for event in stream.feed(text[start:stop])]
    assert pieces == read(text)


def test_every_option_is_described() -> None:
    """The reference can be generated, because no option lacks its sentence."""
    properties = msgspec.json.schema(SseConfig)["$defs"]["SseConfig"]["properties"]
    assert [name for name, field in properties.items() if not field.get("description")] == []


def test_it_is_a_source() -> None:
    """The kind resolves to a source; unknown options are refused."""
    assert isinstance(make_source("sse", {"conn_id": "shop"}), Source)
    with pytest.raises(WindsockError, match="silence"):
        make_source("sse", {"conn_id": "shop", "silence": 0})
