"""RabbitMQ without a server: options, real messages, and messages that are none."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from aiormq.abc import DeliveredMessage
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from windsock.events import SourceError, WindsockError
from windsock.sources import make_source, source_key
from windsock.sources.base import Delivery
from windsock.sources.rabbitmq import RabbitMQConfig, RabbitMQSource

CORPUS = Path(__file__).parents[2] / "corpora" / "aws" / "rabbitMQEvent.json"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


class Acks:
    """Stands in for a channel and notes what is acknowledged and rejected."""

    is_closed = False

    def __init__(self) -> None:
        self.rejected: list[int] = []

    async def basic_nack(self, tag: int, *, requeue: bool) -> None:
        assert not requeue
        self.rejected.append(tag)


def message(body: bytes, tag: int = 1, **properties: Any) -> DeliveredMessage:
    """A message as the client library hands it over."""
    delivery = Basic.Deliver("consumer", tag, redelivered=False, exchange="", routing_key="orders")
    header = ContentHeader(body_size=len(body), properties=Basic.Properties())
    for name, value in properties.items():
        setattr(header.properties, name, value)
    return DeliveredMessage(delivery=delivery, header=header, body=body, channel=None)  # type: ignore[arg-type]


def deliver(*messages: DeliveredMessage, channel: Any = None, **options: Any) -> Delivery:
    """What a source makes of messages."""
    source = RabbitMQSource(RabbitMQConfig(conn_id="rabbit", queue="orders", **options))
    source._channel = channel
    return source._delivery(channel, messages)


def test_a_real_message() -> None:
    """A message out of a real queue keeps its body, time, headers and the properties that events lack."""
    (sample,) = json.loads(CORPUS.read_text())["rmqMessagesByQueue"]["pizzaQueue::/"]
    properties = sample["basicProperties"]
    headers = {
        name: bytes(value["bytes"]) if isinstance(value, dict) else value
        for name, value in properties["headers"].items()
    }
    sent = dt.datetime(1970, 1, 1, 0, 33, 41, tzinfo=dt.UTC)
    body = base64.b64decode(sample["data"])
    (event,) = deliver(
        message(
            body,
            content_type="application/json",
            headers=headers,
            priority=properties["priority"],
            expiration=properties["expiration"],
            user_id=properties["userId"],
            timestamp=sent,
        )
    ).events
    assert (event.data, event.time) == (json.loads(body), sent)
    assert event.headers == {
        "header1": "value1",
        "header2": "value2",
        "numberInHeader": "10",
        "amqp-priority": "34",
        "amqp-expiration": "60000",
        "amqp-user-id": "AIDACKCEVSQ6C2EXAMPLE",
    }


def test_the_type_of_a_message_wins_over_the_option() -> None:
    """The option names the type of messages that name none."""
    named, unnamed = deliver(message(b"1", message_type="paid"), message(b"2"), type="order").events
    assert (named.type, unnamed.type) == ("paid", "order")


def test_content_ids_do_not_run_into_each_other() -> None:
    """What is hashed is told apart: a body that starts like a timestamp is not a timestamp."""
    sent = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    first, second = deliver(
        message(b'"x"', timestamp=sent), message(f'"{sent}x"'.encode()), identity="content"
    ).events
    assert first.id != second.id


async def test_rejects_one_by_one_and_acknowledges_the_rest() -> None:
    """Malformed messages go to the exchange each for itself; the last good one stands for all before it."""
    channel = Acks()
    source = RabbitMQSource(RabbitMQConfig(conn_id="rabbit", queue="orders", malformed="exchange"))
    source._channel = channel  # type: ignore[assignment]
    bodies = [b"{", b"1", b"[", b"2", b'"']
    messages = [message(body, tag) for tag, body in enumerate(bodies, start=1)]
    await source._delivery(channel, messages).ack()  # type: ignore[arg-type]
    assert (channel.rejected, source._due_tag) == ([1, 3, 5], 4)


async def test_an_ack_on_a_lost_connection_is_an_error() -> None:
    """Messages of a channel that is gone cannot be acknowledged: they come again, and the runner is told."""
    source = RabbitMQSource(RabbitMQConfig(conn_id="rabbit", queue="orders"))
    delivery = source._delivery(Acks(), [message(b"1")])  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="come again"):
        await delivery.ack()


@given(
    st.lists(
        st.builds(
            message,
            st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: repr(value).encode()),
            headers=st.none() | st.dictionaries(st.text(), VALUES, max_size=4),
            message_id=st.none() | st.text(),
            message_type=st.none() | st.text(),
            content_type=st.none()
            | st.text()
            | st.sampled_from(["application/json", "text/plain; charset=x"]),
            correlation_id=st.none() | st.text(),
            timestamp=st.none() | st.datetimes(timezones=st.just(dt.UTC)),
        ),
        max_size=5,
    ),
    st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]),
    st.sampled_from(["message_id", "content"]),
)
def test_every_message_is_an_event_or_a_dead_letter(
    messages: list[DeliveredMessage], format: str, identity: str
) -> None:
    """Whatever a message holds, it becomes one of both, and nothing else is raised."""
    delivery = deliver(*messages, format=format, identity=identity)
    assert len(delivery.events) + len(delivery.dead) == len(messages)
    assert all(event.encode() for event in delivery.events)


@given(st.integers(0, 200), st.sampled_from(["cloudEvents:", "cloudEvents_"]), st.data())
def test_cut_and_mistyped_cloudevents(end: int, prefix: str, data: st.DataObject) -> None:
    """A CloudEvent that is cut short or has attributes of the wrong kind is a dead letter or an event."""
    document = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": [1, 2]}}
    mistyped = {**document, data.draw(st.sampled_from(sorted(document))): data.draw(VALUES)}
    structured = json.dumps(mistyped, default=str).encode()[:end]
    headers = {prefix + name: value for name, value in mistyped.items() if name != "data"}
    delivery = deliver(
        message(structured, content_type="application/cloudevents+json"), message(b"{}", headers=headers)
    )
    assert len(delivery.events) + len(delivery.dead) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": ""},
        {"prefetch": 0},
        {"hold": 0},
        {"routing_keys": []},
        {"queue_type": "stream"},
        {"identity": "body"},
        {"malformed": "drop"},
        {"unknown": 1},
    ],
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    """An option that is out of its bounds, or unknown, is refused by name."""
    with pytest.raises(WindsockError, match="rabbitmq"):
        make_source("rabbitmq", {"conn_id": "rabbit", "queue": "orders", **wrong})


def test_tuning_keeps_the_source() -> None:
    """Changing prefetch or hold leaves the reader the same one."""
    plain = {"conn_id": "rabbit", "queue": "orders"}
    assert source_key("rabbitmq", plain) == source_key("rabbitmq", {**plain, "prefetch": 5, "hold": 1})
    assert source_key("rabbitmq", plain) != source_key("rabbitmq", {**plain, "identity": "content"})
