"""The HTTP source without a server: its options, its Connection, its memory, its items, its limits."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.connections import Connection
from windsock.events import DeadLetter, Event, SourceError, WindsockError
from windsock.sources import make_source
from windsock.sources._http_client import Answer, HttpClient, retry_after, shown
from windsock.sources._http_items import ItemsPoll
from windsock.sources._http_memory import Feed, Item, Listing, Watermark, digest
from windsock.sources.base import Source
from windsock.sources.http import HttpConfig, HttpSource

NOW = 1_800_000_000.0


def connection(**fields: Any) -> Connection:
    return Connection(conn_id="shop", conn_type="http", **({"host": "api.example.com"} | fields))


async def client(**fields: Any) -> HttpClient:
    made = await HttpClient.open(connection(**fields), {})
    await made.aclose()
    return made


def item(id: str, mark: Any = None) -> Item:
    return Item(digest(id), Event.make(source="s", type="t", id=id), mark)


def ids(items: list[Item]) -> list[str]:
    return [found.made.id for found in items if isinstance(found.made, Event)]


def test_every_option_is_described() -> None:
    """The reference can be generated, because no option lacks its sentence."""
    properties = msgspec.json.schema(HttpConfig)["$defs"]["HttpConfig"]["properties"]
    assert [name for name, field in properties.items() if not field.get("description")] == []


def test_it_is_a_source() -> None:
    """The kind resolves to a source with its guarantees."""
    source = make_source("http", {"conn_id": "shop"})
    assert isinstance(source, Source)
    assert isinstance(source, HttpSource)
    assert not source.guarantees.lag


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "version"}, "value belongs to mode='version'"),
        ({"value": "a"}, "value belongs to mode='version'"),
        ({"mode": "change", "paging": "link"}, "paging belongs to mode='items'"),
        ({"paging": "cursor"}, "next belongs to paging='cursor'"),
        ({"next": "a"}, "next belongs to paging='cursor'"),
        ({"resume": True}, "resume belongs to paging='cursor'"),
        ({"watermark_param": "since"}, "watermark_param needs watermark"),
        ({"items": "a[x"}, "cannot be read"),
        ({"id": ["a", ""]}, "the path is empty"),
        ({"interval": 0.01}, "interval"),
        ({"page_size": 0}, "page_size"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    """Options that contradict each other or cannot work are refused when the source is made."""
    with pytest.raises(WindsockError, match=message.replace("[", r"\[")):
        make_source("http", {"conn_id": "shop", **options})


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "http://api.example.com/v1/orders"),
        ({"schema": "https", "port": 8443}, "https://api.example.com:8443/v1/orders"),
        ({"conn_type": "https"}, "https://api.example.com/v1/orders"),
        ({"host": "https://api.example.com/base/"}, "https://api.example.com/base/v1/orders"),
        ({"extra": {"params": {"key": "k"}}}, "http://api.example.com/v1/orders?key=k"),
    ],
)
async def test_the_connection_is_read_as_airflow_reads_it(fields: dict[str, Any], url: str) -> None:
    """Host, port and schema make the address; the endpoint is joined to it."""
    made = await HttpClient.open(Connection(**({"conn_id": "shop", "host": "api.example.com"} | fields)), {})
    await made.aclose()
    assert str(made.url("/v1/orders")) == url


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": None}, "has no host"),
        ({"host": "ftp://x"}, "no http:// or https:// address"),
        ({"host": "http://a:b@x"}, "no http:// or https:// address"),
        ({"host": "http://x:port"}, "no http:// or https:// address"),
        ({"extra": {"headers": "X-Key: 1"}}, "extra 'headers' must be an object"),
        ({"extra": {"headers": {"X-Key": "line\nbreak"}}}, "header 'X-Key' must be"),
        ({"password": "tökén"}, "header 'Authorization' must be"),
    ],
)
async def test_a_wrong_connection_is_told(fields: dict[str, Any], message: str) -> None:
    """What cannot be used of a Connection is named, and no secret with it."""
    with pytest.raises(SourceError, match=message) as told:
        await client(**fields)
    assert "tökén" not in str(told.value)


async def test_another_host_is_refused() -> None:
    """Neither the endpoint nor a link leads to another host, port or a lesser scheme."""
    made = await client(schema="https")
    assert str(made.url("https://api.example.com/x")) == "https://api.example.com/x"
    for other in ("https://evil.example.com/x", "http://api.example.com/x", "https://api.example.com:444/x"):
        with pytest.raises(SourceError, match="its credentials are sent nowhere else"):
            made.url(other)
        with pytest.raises(SourceError, match="its credentials are sent nowhere else"):
            made.follow(made.url("x"), other)
    with pytest.raises(SourceError, match="not an address"):
        made.url("http://x:port")
    with pytest.raises(SourceError, match="not an address"):
        made.follow(made.url("x"), "http://x:port")


async def test_https_may_be_asked_for_by_the_server() -> None:
    """A redirect from http to https on the same host is an improvement and followed."""
    made = await client()
    assert str(made.follow(made.url("x"), "https://api.example.com/x")) == "https://api.example.com/x"


def test_an_address_is_shown_without_secrets() -> None:
    """Login, password, query and fragment do not appear in errors and events."""
    assert shown("https://me:secret@api.example.com/v1?key=secret#x") == "https://api.example.com/v1"


@pytest.mark.parametrize(
    ("headers", "status", "wait"),
    [
        ({"retry-after": "7"}, 429, 7),
        ({"retry-after": "7"}, 503, 7),
        ({"retry-after": "7"}, 200, 0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 503, 90),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 503, 0),
        ({"retry-after": "soon"}, 429, 1),
        ({"retry-after": "86400"}, 429, 3600),
        ({"retry-after": "nan"}, 429, 1),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(NOW + 30)}, 200, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((NOW + 30) * 1000)}, 200, 30),
        ({"x-ratelimit-remaining": "1", "x-ratelimit-reset": str(NOW + 30)}, 200, 0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 200, 12),
        ({"ratelimit": '"burst";r=5;t=9, "daily";r=0;t=60'}, 200, 60),
        ({"ratelimit": "limit=10, remaining=0, reset=4"}, 200, 0),
        ({}, 200, 0),
    ],
)
def test_what_servers_ask_for(headers: dict[str, str], status: int, wait: float) -> None:
    """Every usual way to ask for patience is understood, and none is obeyed for more than an hour."""
    assert retry_after(headers, status, NOW) == wait


LIMITS = st.sampled_from(["retry-after", "ratelimit", "x-ratelimit-remaining", "x-ratelimit-reset"])


@given(st.dictionaries(LIMITS, st.text() | st.just("0")))
def test_nonsense_in_limits_is_harmless(headers: dict[str, str]) -> None:
    """Whatever a server writes into these headers, the wait is a number between nothing and an hour."""
    assert 0 <= retry_after(headers, 429, NOW) <= 3600


def test_a_listing_forgets_what_is_gone() -> None:
    """Only what stands on the list is remembered, through the cursor as well."""
    memory = Listing(None)
    for one in memory.new([item("a"), item("b"), item("a")]):
        memory.add(one)
    again = Listing(json.loads(json.dumps(memory.cursor())))
    assert ids(again.new([item("a"), item("c")])) == ["c"]
    again.end({digest("a")})
    assert ids(again.new([item("b")])) == ["b"]


def test_a_watermark_orders_and_tells_equals_apart() -> None:
    """Items come by their mark; of those at the highest one each is known by itself."""
    memory = Watermark(None)
    assert ids(memory.new([item("c", 3), item("a", 1), item("b", 3)])) == ["a", "c", "b"]
    for one in memory.new([item("c", 3), item("a", 1)]):
        memory.add(one)
    again = Watermark(json.loads(json.dumps(memory.cursor())))
    assert ids(again.new([item("b", 3), item("late", 2), item("c", 3), item("d", 4)])) == ["b", "d"]
    assert (memory.mark, again.mark) == (3, 3)


def test_large_marks_keep_their_order() -> None:
    """Numbers past what a float can tell apart are compared as they are."""
    memory = Watermark({"mark": 2**60, "at": ""})
    assert ids(memory.new([item("below", 2**60 - 1), item("above", 2**60 + 1)])) == ["above"]


def test_items_without_a_mark_come_once() -> None:
    """They cannot be ordered, so each is remembered while the API still shows it."""
    memory = Watermark(None)
    [one] = memory.new([item("odd")])
    memory.add(one)
    assert memory.new([item("odd")]) == []
    memory.end(set())
    assert ids(memory.new([item("odd")])) == ["odd"]


def test_a_feed_turns_its_pages() -> None:
    """What was read on a page is forgotten when the next one begins."""
    memory = Feed(None)
    memory.add(item("a"))
    again = Feed(json.loads(json.dumps(memory.cursor())))
    assert again.new([item("a")]) == []
    again.turn("p2")
    assert again.cursor() == {"place": "p2", "seen": ""}


async def _read(body: bytes, **options: Any) -> list[Item]:
    made = await client()
    poll = ItemsPoll(HttpConfig(conn_id="shop", **options), made, None)
    answer = Answer(200, httpx.Headers(), body, made.url("v1/orders"))
    return poll._read(answer)[1]


NAMES = st.sampled_from("idnt") | st.text(max_size=3)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.binary(max_size=100)
    | JSON_VALUES.map(json.dumps).map(str.encode)
    | st.lists(JSON_VALUES).map(json.dumps).map(str.encode)
    | st.lists(st.dictionaries(st.sampled_from("int"), JSON_VALUES)).map(json.dumps).map(str.encode)
    | st.integers(1, 2000).map(lambda depth: b"[" * depth + b"]" * depth)
)
def test_any_answer_is_items_or_an_error(body: bytes) -> None:
    """Whatever an API answers becomes events, dead letters or a SourceError; nothing else is raised."""
    for options in ({}, {"id": "i", "watermark": "n", "time": "t"}):
        items: list[Item] = []
        with suppress(SourceError):
            items = asyncio.run(_read(body, **options))
        for found in items:
            assert isinstance(found.made, Event | DeadLetter)
            if isinstance(found.made, Event):
                found.made.encode()
            msgspec.json.encode(found.mark)
