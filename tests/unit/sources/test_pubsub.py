"""Pub/Sub without a server: options, messages that are none, and acks that are refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import FailedPrecondition, GoogleAPICallError, ServiceUnavailable
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from windsock.connections import Connection, fixed
from windsock.events import SourceError, WindsockError
from windsock.sources import make_source, source_key
from windsock.sources._pubsub_subscription import Held, Subscription
from windsock.sources.base import Delivery
from windsock.sources.pubsub import PubSubConfig, PubSubSource

CORPUS = Path(__file__).parents[2] / "corpora" / "gcp"
PATH = "projects/shop/subscriptions/orders"


class Client:
    """Stands in for Pub/Sub's client: refuses what it is told to, in turn, and notes the rest."""

    def __init__(self, *answers: GoogleAPICallError | None) -> None:
        self.answers = list(answers)
        self.acked: list[list[str]] = []

    async def acknowledge(self, request: Any, **_: Any) -> None:
        self.acked.append(list(request.ack_ids))
        error = self.answers.pop(0) if self.answers else None
        if error is not None:
            raise error


def received(body: bytes = b"{}", **fields: Any) -> Any:
    """A message as the client hands it over."""
    message = PubsubMessage(data=body, message_id="1", **fields)
    return ReceivedMessage.pb(ReceivedMessage(ack_id="a", message=message))


def refused(**reasons: str) -> GoogleAPICallError:
    """What a subscription with exactly-once delivery says about ack ids."""
    info = error_details_pb2.ErrorInfo(reason="EXACTLY_ONCE_ACKID_FAILURE", metadata=reasons)
    return FailedPrecondition("some acks failed", details=[info], error_info=info)


def subscription(client: Any) -> Subscription:
    return Subscription(client, PATH, "gcp", lease=10, deadline=60, receivers=1, most=10)


def held(*handles: str) -> list[Held]:
    return [Held(received(), handle, 0.0) for handle in handles]


def deliver(*messages: Any, **options: Any) -> Delivery:
    source = PubSubSource(PubSubConfig(conn_id="gcp", subscription="orders", **options))
    return source._delivery(subscription(None), [Held(each, each.ack_id, 0.0) for each in messages])


@pytest.mark.parametrize("name", ["text", "binary"])
def test_published_messages_of_the_corpus(name: str) -> None:
    """Google's own samples of messages become events with their bytes, attributes and time."""
    sample = json.loads((CORPUS / f"MessagePublishedData-{name}.json").read_text())["message"]
    sample.pop("@type", None)
    message = PubsubMessage.from_json(json.dumps(sample))
    pulled = ReceivedMessage.pb(ReceivedMessage(ack_id="a", message=message))
    (event,) = deliver(pulled, format="bytes").events
    assert (event.id, event.data) == (sample["messageId"], message.data)
    assert event.headers == sample.get("attributes", {})
    assert event.time is not None
    assert event.time.isoformat(timespec="milliseconds") == sample["publishTime"].replace("Z", "+00:00")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "subscription"),
        ({"subscription": ""}, "length"),
        ({"subscription": "orders", "deadline": 5}, "deadline"),
        ({"subscription": "orders", "outstanding": 0}, "outstanding"),
        ({"subscription": "orders", "topic": "orders"}, "topic"),
    ],
)
def test_wrong_options(options: dict[str, Any], problem: str) -> None:
    """An option that is missing, unknown or out of range is named."""
    with pytest.raises(WindsockError, match=problem):
        make_source("pubsub", {"conn_id": "gcp", **options})


def test_tuning_keeps_the_position() -> None:
    """Deadline and limits may differ between watchers that share a reader."""
    options = {"conn_id": "gcp", "subscription": "orders"}
    tuned = {**options, "deadline": 600, "outstanding": 1, "receivers": 1}
    assert source_key("pubsub", options) == source_key("pubsub", tuned)


async def test_a_project_that_nobody_names() -> None:
    """A subscription without a project is refused, with the places where to set it."""
    known = Connection(conn_id="gcp", extra={"pubsub_endpoint": "http://127.0.0.1:1"})
    source = make_source("pubsub", {"conn_id": "gcp", "subscription": "orders"}, fixed(known))
    with pytest.raises(SourceError, match=r"the project is not known: set project"):
        await source.connect(None)
    await source.close()


async def test_a_key_that_is_none() -> None:
    """A key that cannot be read is refused without being quoted."""
    known = Connection(conn_id="gcp", extra={"keyfile_dict": '{"private_key": "hush"}', "project": "shop"})
    source = make_source("pubsub", {"conn_id": "gcp", "subscription": "orders"}, fixed(known))
    with pytest.raises(SourceError, match=r"'gcp'.*: .*keyfile_dict") as error:
        await source.connect(None)
    assert "hush" not in str(error.value)
    await source.close()


async def test_an_authority_that_is_not_there() -> None:
    """A file of authorities that cannot be read is named."""
    extra = {"is_anonymous": True, "project": "shop", "ssl_ca_certs": "/not/there.pem"}
    source = make_source(
        "pubsub", {"conn_id": "gcp", "subscription": "orders"}, fixed(Connection(conn_id="gcp", extra=extra))
    )
    with pytest.raises(SourceError, match=r"ssl_ca_certs cannot be read .*: correct"):
        await source.connect(None)
    await source.close()


@given(
    body=st.binary() | st.text().map(str.encode) | st.just(b'{"specversion": "1.0", "id": 1}'),
    attributes=st.dictionaries(
        st.text(max_size=10) | st.sampled_from(["ce-specversion", "ce-id", "content-type", "traceparent"]),
        st.text(max_size=10) | st.sampled_from(["1.0", "application/json", "application/cloudevents+json"]),
        max_size=4,
    ),
    key=st.text(max_size=10),
    format=st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]),
)
def test_any_message_is_an_event_or_a_dead_letter(
    body: bytes, attributes: dict[str, str], key: str, format: str
) -> None:
    """Whatever a message holds, it becomes one event or one dead letter, and raises nothing."""
    message = received(body, attributes=attributes, ordering_key=key)
    delivery = deliver(message, format=format)
    assert len(delivery.events) + len(delivery.dead) == 1


async def test_acks_that_are_refused_for_the_moment() -> None:
    """Exactly-once delivery: what could not be acked for the moment is tried again, alone."""
    client = Client(refused(b="TRANSIENT_FAILURE_UNORDERED_ACK_ID"))
    await subscription(client).ack(held("a", "b", "c"))
    assert client.acked == [["a", "b", "c"], ["b"]]


async def test_acks_that_are_refused_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """Exactly-once delivery: an ack that came too late is logged, because its message comes again."""
    client = Client(refused(a="PERMANENT_FAILURE_INVALID_ACK_ID"))
    with caplog.at_level(logging.WARNING):
        await subscription(client).ack(held("a", "b"))
    assert client.acked == [["a", "b"]]
    assert "windsock.pubsub.not_acked" in caplog.text


async def test_acks_that_fail() -> None:
    """A server that is away during an ack is a SourceError, so that the runner connects again."""
    client = Client(ServiceUnavailable("gone"))
    with pytest.raises(SourceError, match=r"cannot be reached \(gone\): check"):
        await subscription(client).ack(held("a"))
