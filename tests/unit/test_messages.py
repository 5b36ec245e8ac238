"""Messages: bodies by their format, CloudEvents in every binding, headers kept, bad ones set aside."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import Event, InvalidEvent
from windsock.messages import Message, MessageOptions, event_of, events_of

CLOUD = {"specversion": "1.0", "id": "42", "source": "/shop", "type": "order.created"}


def made(message: Message, **options: Any) -> Event:
    """The message's event with these options."""
    return event_of(message, MessageOptions(conn_id="x", **options), source="test://q", kind="test")


def test_json_by_default() -> None:
    """Without a content type a body is JSON, and the message's own facts become attributes."""
    event = made(Message(body=b'{"n": 1}', id="q/1", key=b"k", subject="s", time=0, headers={"tenant": b"a"}))
    assert (event.id, event.source, event.type, event.data) == ("q/1", "test://q", "windsock.test", {"n": 1})
    assert (event.key, event.subject, event.headers) == ("k", "s", {"tenant": "a"})
    assert event.time is not None
    assert event.time.year == 1970


@pytest.mark.parametrize(
    ("options", "content_type", "body", "data"),
    [
        ({}, "text/plain", b"hello", "hello"),
        ({}, "application/octet-stream", b"\x00\xff", b"\x00\xff"),
        ({}, "application/vnd.shop+json", b"[1]", [1]),
        ({"format": "text"}, None, "grün".encode(), "grün"),
        ({"format": "bytes"}, "application/json", b"{", b"{"),
        ({"format": "json"}, "text/plain", b"1", 1),
        ({}, None, b"", None),
    ],
)
def test_formats(options: dict[str, Any], content_type: str | None, body: bytes, data: Any) -> None:
    """A body is read as the option says, else as its content type says."""
    assert made(Message(body=body, content_type=content_type), **options).data == data


@pytest.mark.parametrize(
    "headers",
    [
        {f"ce_{name}": value.encode() for name, value in CLOUD.items()},
        {f"ce-{name}": value for name, value in CLOUD.items()},
        {f"cloudEvents:{name}": value for name, value in CLOUD.items()},
        {f"cloudEvents_{name}": value for name, value in CLOUD.items()},
        CLOUD,
    ],
    ids=["kafka", "nats", "amqp", "amqp, underscore", "mqtt"],
)
def test_cloudevents_in_binary_mode(headers: dict[str, Any]) -> None:
    """The attributes come from the headers of each binding, the data from the body."""
    event = made(
        Message(body=b'{"n": 1}', id="q/1", key="k", headers=headers, content_type="application/json")
    )
    assert (event.id, event.source, event.type, event.data) == ("42", "/shop", "order.created", {"n": 1})
    assert event.key == "k"


@pytest.mark.parametrize("content_type", ["application/cloudevents+json; charset=utf-8", None])
def test_cloudevents_in_structured_mode(content_type: str | None) -> None:
    """A structured CloudEvent is known by its content type, or by its required attributes alone."""
    body = json.dumps({**CLOUD, "data": {"n": 1}, "partitionkey": "own"}).encode()
    event = made(Message(body=body, id="q/1", key="k", content_type=content_type, headers={"tenant": "a"}))
    assert (event.id, event.data, event.key, event.headers) == ("42", {"n": 1}, "own", {"tenant": "a"})


def test_percent_encoded_headers() -> None:
    """The ce- headers of NATS and HTTP are percent-decoded, those of Kafka are not."""
    headers = {**{f"ce-{name}": value for name, value in CLOUD.items()}, "ce-subject": "a%20b"}
    assert made(Message(body=b"", headers=headers)).subject == "a b"
    headers = {**{f"ce_{name}": value for name, value in CLOUD.items()}, "ce_subject": "a%20b"}
    assert made(Message(body=b"", headers=headers)).subject == "a%20b"


def test_only_cloudevents() -> None:
    """With format 'cloudevents' anything else is refused, with what to do."""
    with pytest.raises(InvalidEvent, match="format='auto'"):
        made(Message(body=b'{"n": 1}'), format="cloudevents")


def test_a_broken_body_names_the_remedy() -> None:
    """Cut JSON is invalid, and the error says which option would take it."""
    with pytest.raises(InvalidEvent, match="set format='text' or 'bytes'"):
        made(Message(body=b'{"n": '))


def test_an_unsupported_cloudevents_format() -> None:
    """Avro CloudEvents are refused, not taken for something else."""
    with pytest.raises(InvalidEvent, match="only 'application/cloudevents"):
        made(Message(body=b"x", content_type="application/cloudevents+avro"))


def test_repeated_headers_are_joined() -> None:
    """A header that occurs twice keeps both values."""
    assert made(Message(body=b"1", headers=[("a", b"1"), ("a", "2"), ("b", None)])).headers == {"a": "1, 2"}


def test_one_bad_message_costs_one() -> None:
    """Of many messages the bad ones become dead letters that say where they were."""
    messages = [Message(body=b"1", id="q/1"), Message(body=b"{", id="q/2"), Message(body=b"3", id="q/3")]
    events, dead = events_of(messages, MessageOptions(conn_id="x"), source="test://q", kind="test")
    assert [event.id for event in events] == ["q/1", "q/3"]
    assert dead[0].body == b"{"
    assert dead[0].reason.startswith("q/2: ")


@given(
    body=st.binary(max_size=60) | st.sampled_from([json.dumps(CLOUD).encode(), b'{"specversion": 1}', b"[]"]),
    headers=st.dictionaries(
        st.sampled_from([*CLOUD, *(f"ce_{n}" for n in CLOUD), "ce-specversion", "content-type", "x"]),
        st.none() | st.text(max_size=20) | st.binary(max_size=20) | st.integers(),
        max_size=8,
    ),
    content_type=st.none()
    | st.text(max_size=30)
    | st.sampled_from(["application/cloudevents+json", "text/x"]),
    format=st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]),
)
def test_garbage_is_an_event_or_a_dead_letter(
    body: bytes, headers: dict[str, Any], content_type: str | None, format: str
) -> None:
    """Whatever a broker hands over, reading it never raises anything else."""
    message = Message(body=body, headers=headers, content_type=content_type, id="q/1")
    options = MessageOptions(conn_id="x", format=format)  # type: ignore[arg-type]
    events, dead = events_of([message], options, source="test://q", kind="test")
    assert len(events) + len(dead) == 1
    for event in events:
        assert Event.decode(event.encode()) == event
