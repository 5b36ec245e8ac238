"""The NATS source without a server: its options, its addresses, and what it makes of messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from windsock.connections import Connection, fixed
from windsock.events import SourceError, WindsockError
from windsock.messages import events_of
from windsock.sources import make_source, source_key
from windsock.sources._nats import servers_of
from windsock.sources.nats import NatsConfig, NatsSource, message_of

OPTIONS: dict[str, Any] = {"conn_id": "nats_default", "stream": "ORDERS"}
REPLY = "$JS.ACK.ORDERS.windsock.1.17.3.1731672000000000000.0"
NAMES = st.sampled_from(
    ["ce-specversion", "ce-id", "ce-source", "ce-type", "Content-Type", "Nats-Msg-Id", "x"]
)
VALUES = st.sampled_from(["1.0", "0.3", "", "%", "%zz", "text/plain", "application/cloudevents+json", "a b"])
BODIES = st.binary(max_size=60) | st.sampled_from(
    [b'{"specversion":"1.0","id":"1","source":"/s","type":"t"', b'{"cut": ', b"[" * 3000, b"\xff\xfe", b"{}"]
)


def received(body: bytes, headers: dict[str, str] | None = None) -> Msg:
    return Msg(_client=Client(), subject="orders.new", reply=REPLY, data=body, headers=headers)


def test_a_message_says_where_it_is() -> None:
    """The stream sequence is the id, the time is when it was stored, the subject its own."""
    message = message_of(received(b"{}"), message_id=False)
    assert (message.id, message.subject) == ("17", "orders.new")
    assert getattr(message.time, "timestamp", float)() == 1_731_672_000


@pytest.mark.parametrize(
    ("headers", "expected"), [({"Nats-Msg-Id": "a"}, "a"), ({"x": "y"}, "17"), (None, "17")]
)
def test_the_senders_id(headers: dict[str, str] | None, expected: str) -> None:
    """With message_id, the sender's id wins where there is one."""
    assert message_of(received(b"{}", headers), message_id=True).id == expected


@given(BODIES, st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_message_is_an_event_or_a_dead_letter(body: bytes, headers: dict[str, str]) -> None:
    """Whatever comes, each message ends up in exactly one of the two, and the body is kept."""
    messages = [message_of(received(body, headers), message_id=True)]
    events, dead = events_of(messages, NatsConfig(**OPTIONS), source="nats://c/ORDERS", kind="nats")
    assert len(events) + len(dead) == 1
    assert all(letter.body == body and letter.reason for letter in dead)


@pytest.mark.parametrize("start", ["earliest", "latest", "1200", "2026-01-31T08:00:00Z"])
def test_known_starts(start: str) -> None:
    """A consumer begins at either end, at a sequence or at a time."""
    assert make_source("nats", {**OPTIONS, "start": start})


@pytest.mark.parametrize(
    "wrong", [{"start": "yesterday"}, {"stream": "a.b"}, {"consumer": "a b"}, {"ack_wait": 0}, {"stream": ""}]
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    """What NATS would refuse is refused where the watcher is defined."""
    with pytest.raises(WindsockError):
        make_source("nats", {**OPTIONS, **wrong})


def test_what_only_a_new_consumer_gets_does_not_change_the_position() -> None:
    """Watchers that differ in tuning share a reader; those on other consumers do not."""
    key = source_key("nats", OPTIONS)
    assert key == source_key("nats", {**OPTIONS, "ack_wait": 5, "create": True})
    assert key != source_key("nats", {**OPTIONS, "consumer": "other"})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["nats://localhost:4222"]),
        ({"host": "a", "port": 4333}, ["nats://a:4333"]),
        ({"host": "nats://a:1, b", "port": 2}, ["nats://a:1", "nats://b:2"]),
        ({"host": "tls://a"}, ["tls://a:4222"]),
        ({"host": "[::1]", "extra": {"tls": "true"}}, ["tls://[::1]:4222"]),
    ],
)
def test_addresses(fields: dict[str, Any], expected: list[str]) -> None:
    """One host or several, with or without port and scheme."""
    assert servers_of(Connection(conn_id="c", **fields)) == expected


async def test_reading_before_connecting() -> None:
    """A source that is not connected says so."""
    source = make_source("nats", OPTIONS, fixed())
    assert isinstance(source, NatsSource)
    with pytest.raises(SourceError, match="call connect first"):
        await anext(source.read())
