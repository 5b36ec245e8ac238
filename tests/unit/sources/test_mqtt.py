"""MQTT without a broker: options, and messages that are none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiomqtt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from windsock.events import WindsockError
from windsock.sources import make_source
from windsock.sources.base import Delivery
from windsock.sources.mqtt import MqttConfig, MqttSource, _Inbox

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def message(payload: bytes, qos: int = 1, retain: bool = False, **values: Any) -> aiomqtt.Message:
    """A message as the client library hands it over."""
    properties = Properties(PacketTypes.PUBLISH)
    for name, value in values.items():
        if value is not None:
            setattr(properties, name, value)
    return aiomqtt.Message("site/1", payload, qos, retain, 1, properties)


def deliver(*messages: aiomqtt.Message, **options: Any) -> Delivery:
    """What a source makes of messages."""
    source = MqttSource(MqttConfig(conn_id="broker", topics=("#",), **options))
    return source._delivery(None, messages)  # type: ignore[arg-type]


@given(
    st.lists(
        st.builds(
            message,
            st.binary() | st.text().map(str.encode),
            retain=st.booleans(),
            UserProperty=st.lists(
                st.tuples(st.sampled_from(["id", "source", "type", "specversion", "time"]) | TEXT, TEXT),
                max_size=6,
            ),
            ContentType=st.none()
            | TEXT
            | st.sampled_from(["application/json", "application/cloudevents+json"]),
            CorrelationData=st.none() | st.binary(max_size=20),
            ResponseTopic=st.none() | TEXT.filter(lambda text: not set(text) & set("#+")),
        ),
        max_size=5,
    ),
    st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]),
    st.sampled_from(["property", "content"]),
)
def test_every_message_is_an_event_or_a_dead_letter(
    messages: list[aiomqtt.Message], format: str, identity: str
) -> None:
    """Whatever a message holds, it becomes one of both, and nothing else is raised."""
    delivery = deliver(*messages, format=format, identity=identity)
    assert len(delivery.events) + len(delivery.dead) == len(messages)
    assert all(event.encode() for event in delivery.events)


@given(st.integers(0, 200), st.data())
def test_cut_and_mistyped_cloudevents(end: int, data: st.DataObject) -> None:
    """A CloudEvent that is cut short or has attributes of the wrong kind is a dead letter or an event."""
    document = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": [1, 2]}}
    wrong = data.draw(st.none() | st.integers() | TEXT | st.lists(TEXT, max_size=2))
    mistyped = {**document, data.draw(st.sampled_from(sorted(document))): wrong}
    properties = [(name, str(value)) for name, value in mistyped.items() if name != "data"]
    delivery = deliver(
        message(json.dumps(mistyped).encode()[:end], ContentType="application/cloudevents+json"),
        message(b"{}", UserProperty=properties),
    )
    assert len(delivery.events) + len(delivery.dead) == 2


def test_unknown_properties_are_kept() -> None:
    """User properties that mean nothing to us are headers, and extensions of a CloudEvent."""
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "shard": "7"}
    plain, cloud = deliver(
        message(b"1", UserProperty=[("shard", "7"), ("X-Shard", "8")]),
        message(b"1", UserProperty=[*attributes.items(), ("X-Shard", "8")]),
    ).events
    assert plain.headers == {"shard": "7", "X-Shard": "8"}
    assert cloud.extensions == {"shard": "7"}
    assert cloud.headers["X-Shard"] == "8"


def test_the_session_follows_from_the_options() -> None:
    """Equal options are one session whatever their tuning; others are another one."""

    def session(**options: Any) -> str:
        return MqttSource(MqttConfig(conn_id="broker", topics=("a", "b"), **options))._session_name()

    assert session() == session(receive_maximum=5, session_expiry=1, buffer=1)
    assert len({session(), session(share="x"), session(format="text"), session(qos=0)}) == 4


async def test_only_qos_0_overflows() -> None:
    """The inbox is full for messages of QoS 0; those of QoS 1 are bounded by the broker."""
    inbox = _Inbox(maxsize=1)
    inbox.put_nowait(message(b"1", qos=0))
    with pytest.raises(asyncio.QueueFull):
        inbox.put_nowait(message(b"2", qos=0))
    inbox.put_nowait(message(b"3", qos=1))
    assert [inbox.get_nowait().payload for _ in range(2)] == [b"1", b"3"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": []},
        {"topics": [""]},
        {"qos": 2},
        {"share": "a/b"},
        {"client_id": ""},
        {"receive_maximum": 0},
        {"session_expiry": 0},
        {"retained": "sometimes"},
        {"unknown": 1},
    ],
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    """An option that is out of its bounds, or unknown, is refused by name."""
    with pytest.raises(WindsockError, match="mqtt"):
        make_source("mqtt", {"conn_id": "broker", "topics": ["a"], **wrong})
