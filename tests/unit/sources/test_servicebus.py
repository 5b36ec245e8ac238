"""Service Bus without a server: options, Connections, and messages that are none."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpMessageBodyType
from hypothesis import given
from hypothesis import strategies as st

from windsock.connections import Connection, fixed
from windsock.events import SourceError, WindsockError
from windsock.sources import make_source, source_key
from windsock.sources._servicebus_receivers import Held, Receivers, _Worker
from windsock.sources.base import Delivery
from windsock.sources.servicebus import ServiceBusConfig, ServiceBusSource, message_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.binary(), inner, max_size=3),
    max_leaves=5,
)


def received(body: Any = b"{}", body_type: str = "data", **fields: Any) -> Any:
    """A message with the fields that Azure's client gives it."""
    names = (
        "message_id",
        "session_id",
        "subject",
        "correlation_id",
        "content_type",
        "application_properties",
    )
    known = dict.fromkeys(names) | {
        "body": [body] if body_type == "data" else body,
        "body_type": AmqpMessageBodyType(body_type),
        "sequence_number": 7,
        "enqueued_time_utc": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    }
    return SimpleNamespace(**(known | fields))


def deliver(*messages: Any, **options: Any) -> tuple[Delivery, list[Held]]:
    """What a source makes of messages, and the messages as they will be settled."""
    source = ServiceBusSource(ServiceBusConfig(conn_id="bus", queue="orders", **options))
    source._source = "servicebus://bus/orders"
    held = [Held(message, _Worker(None)) for message in messages]
    receivers = Receivers(lambda _: None, "orders", "bus", sessions=False, receivers=1, most=10)
    return source._delivery(receivers, held), held


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "either a queue, or a topic"),
        ({"queue": "a", "topic": "b", "subscription": "c"}, "either a queue, or a topic"),
        ({"topic": "b"}, "name both"),
        ({"queue": "a", "subscription": "c"}, "name both"),
        ({"queue": "a", "sessions": True, "dead_letters": True}, "has no sessions"),
        ({"queue": "a", "dead_letters": True, "malformed": "queue"}, "leave out malformed"),
        ({"queue": "a", "receivers": 0}, "receivers"),
        ({"queue": "a", "exchange": "b"}, "exchange"),
    ],
)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    """Options that do not go together, or are unknown or out of range, are refused with the reason."""
    with pytest.raises(WindsockError, match=problem):
        make_source("servicebus", {"conn_id": "bus", **options})


def test_tuning_keeps_the_position() -> None:
    """Limits may differ between watchers that share a reader."""
    options = {"conn_id": "bus", "queue": "orders"}
    tuned = {**options, "outstanding": 1, "receivers": 1}
    assert source_key("servicebus", options) == source_key("servicebus", tuned)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "names no namespace: set"),
        ({"schema": "Endpoint=sb://hush"}, "cannot be read: copy"),
        ({"schema": "hush"}, "cannot be read: copy"),
        ({"host": "bus.example.com", "password": "hush", "login": ""}, "cannot be read: copy"),
        (
            {"host": "b", "login": "a", "password": "hush", "extra": {"transport_type": "Mail"}},
            "cannot be read",
        ),
    ],
)
async def test_connections_that_cannot_be_used(fields: dict[str, Any], problem: str) -> None:
    """A Connection that says too little or nonsense is a SourceError without the secret."""
    source = make_source(
        "servicebus", {"conn_id": "bus", "queue": "orders"}, fixed(Connection(conn_id="bus", **fields))
    )
    with pytest.raises(SourceError, match=problem) as error:
        await source.connect(None)
    assert "hush" not in str(error.value)
    await source.close()


def test_the_id_of_a_message() -> None:
    """The sender's id, or on wish and for want of one the number that Service Bus gave it."""
    named = received(message_id="order-17")
    assert message_of(named).id == "order-17"
    assert message_of(named, "sequence_number").id == "7"
    assert message_of(received()).id == "7"


def test_parts_of_a_body() -> None:
    """A body that came in several data sections is one."""
    message = received()
    message.body = iter([b'{"n"', b": 1}"])
    assert message_of(message).body == b'{"n": 1}'


@pytest.mark.parametrize("malformed", ["log", "queue", "both"])
def test_what_cannot_be_read(malformed: str) -> None:
    """A message that cannot be read is a dead letter of the log, of Service Bus, or of both."""
    delivery, (bad, good) = deliver(received(b'{"cut": '), received(), malformed=malformed)
    assert len(delivery.events) == 1
    assert bool(delivery.dead) == (malformed != "queue")
    assert (bad.reason is not None) == (malformed != "log")
    assert good.reason is None


@given(
    body=VALUES,
    body_type=st.sampled_from(["value", "sequence"]),
    properties=st.none() | st.dictionaries(st.binary() | st.text(), VALUES, max_size=3),
    content_type=st.none()
    | st.text(max_size=10)
    | st.sampled_from(["application/cloudevents+json", "text/plain"]),
    names=st.tuples(*[st.none() | st.text(max_size=10)] * 4),
)
def test_any_value_is_an_event_or_a_dead_letter(
    body: Any, body_type: str, properties: Any, content_type: str | None, names: tuple[str | None, ...]
) -> None:
    """Whatever a body that is a value of AMQP holds, it becomes one event or one dead letter."""
    fields = dict(zip(("message_id", "session_id", "subject", "correlation_id"), names, strict=True))
    message = received(
        [body] if body_type == "sequence" else body,
        body_type,
        application_properties=properties,
        content_type=content_type,
        **fields,
    )
    delivery, _ = deliver(message)
    assert len(delivery.events) + len(delivery.dead) == 1


@given(body=st.binary(), format=st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]))
def test_any_bytes_are_an_event_or_a_dead_letter(body: bytes, format: str) -> None:
    """Whatever bytes a body has, it becomes one event or one dead letter."""
    delivery, _ = deliver(received(body), format=format)
    assert len(delivery.events) + len(delivery.dead) == 1
