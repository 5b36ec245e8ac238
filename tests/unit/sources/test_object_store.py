"""What the object stores have in common: which mode needs what, and notifications through any queue."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from windsock.events import Event, WindsockError
from windsock.sources import make_source
from windsock.sources._object_store import Notifications
from windsock.sources.azure_queue import decoded
from windsock.sources.base import Delivery
from windsock.sources.gcs import GcsConfig, GcsSource
from windsock.sources.memory import channel
from windsock.values import InvalidEvent


@pytest.mark.parametrize(
    ("kind", "options", "needed"),
    [
        ("s3", {}, "bucket"),
        ("s3", {"mode": "notifications"}, "queue"),
        ("gcs", {}, "bucket"),
        ("gcs", {"mode": "notifications"}, "subscription"),
        ("azure_blob", {}, "container"),
        ("azure_blob", {"mode": "notifications"}, "queue"),
    ],
)
def test_each_mode_needs_its_options(kind: str, options: dict[str, Any], needed: str) -> None:
    """An option that the mode needs and that is missing is named."""
    with pytest.raises(WindsockError, match=f"needs the option '{needed}'"):
        make_source(kind, {"conn_id": "c", **options})


def notification(key: str, generation: int, **attributes: str) -> Event:
    """A notification of GCS as the Pub/Sub source hands it over."""
    headers = {
        "eventType": "OBJECT_FINALIZE",
        "bucketId": "shop",
        "objectId": key,
        "objectGeneration": str(generation),
        "payloadFormat": "JSON_API_V1",
        **attributes,
    }
    body = json.dumps({"size": "1", "metageneration": "1"}).encode()
    return Event.make(body, source="pubsub://shop", type="windsock.pubsub", headers=headers)


class ThroughMemory(GcsSource):
    """GCS with an in-process channel in the place of Pub/Sub."""

    name = ""

    def notifications(self) -> Notifications:
        made = super().notifications()
        kind, options = made.inner()
        assert kind == "pubsub"
        assert options == {"conn_id": "gcp", "subscription": "shop-in", "format": "bytes"}
        made._inner = ("memory", {"channel": self.name})
        return made


async def read(*notifications: Event, count: int, **options: Any) -> tuple[list[Event], list[Delivery]]:
    """What a GCS source makes of these messages, each delivery acked."""
    source = ThroughMemory(GcsConfig(conn_id="gcp", mode="notifications", subscription="shop-in", **options))
    source.name = str(uuid.uuid4())
    messages = channel(source.name)
    events: list[Event] = []
    deliveries: list[Delivery] = []
    await source.connect(None)
    messages.put(*notifications)
    async with asyncio.timeout(10):
        async for delivery in source.read():
            events += delivery.events
            deliveries.append(delivery)
            await delivery.ack()
            if len(events) >= count:
                break
    await source.close()
    return events, deliveries


async def test_notifications_through_a_queue() -> None:
    """Messages become events of objects."""
    events, _ = await read(notification("a", 1), notification("b", 2), count=2)
    assert [event.id for event in events] == ["a#1", "b#2"]
    assert {event.source for event in events} == {"gs://shop"}


async def test_notifications_come_in_the_order_of_their_generations() -> None:
    """What arrives together is sorted for each object, at the places that its events have."""
    sent = [notification("a", 3), notification("b", 9), notification("a", 1), notification("a", 2)]
    events, _ = await read(*sent, count=4)
    assert [event.id for event in events] == ["a#1", "b#9", "a#2", "a#3"]
    assert not [event for event in events if "stale" in event.data]


async def test_notifications_are_filtered() -> None:
    """Bucket, prefix, pattern and kind of change leave out what is not wanted."""
    sent = [
        notification("in/a.csv", 1),
        notification("in/a.csv", 1, eventType="OBJECT_DELETE"),
        notification("in/a.log", 2),
        notification("out/a.csv", 3),
        notification("in/b.csv", 4, bucketId="other"),
        notification("in/c.csv", 5, overwroteGeneration="4"),
    ]
    events, _ = await read(*sent, count=2, bucket="shop", prefix="in/", pattern="*.csv")
    assert [(event.type, event.subject) for event in events] == [
        ("windsock.object.created", "in/a.csv"),
        ("windsock.object.overwritten", "in/c.csv"),
    ]


async def test_what_is_no_notification() -> None:
    """A message of somebody else becomes a dead letter with its bytes, and its neighbours go on."""
    other = Event.make(b"hello", source="pubsub://shop", type="windsock.pubsub", id="m-1")
    events, deliveries = await read(other, notification("a", 1), count=1)
    assert [event.id for event in events] == ["a#1"]
    (dead,) = [letter for delivery in deliveries for letter in delivery.dead]
    assert dead.body == b"hello"
    assert "m-1" in dead.reason


@pytest.mark.parametrize(
    ("text", "encoding", "body"),
    [
        ("eyJuIjogMX0=", "auto", b'{"n": 1}'),
        ('{"n": 1}', "auto", b'{"n": 1}'),
        ("test", "auto", b"test"),
        ("/w==", "auto", b"/w=="),
        ("/w==", "base64", b"\xff"),
        ("eyJuIjogMX0=", "plain", b"eyJuIjogMX0="),
        ("", "auto", b""),
    ],
)
def test_the_encoding_of_a_storage_queue(text: str, encoding: str, body: bytes) -> None:
    """Base64 is recognised when it holds text, and read or left alone as the option says."""
    assert decoded(text, encoding) == body


def test_what_must_be_base64() -> None:
    """With encoding='base64' anything else is refused with the remedy."""
    with pytest.raises(InvalidEvent, match="set encoding='plain'"):
        decoded("{}", "base64")
