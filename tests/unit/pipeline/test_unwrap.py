"""Unwrapping: real envelopes give up their event; another envelope is a dead letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import Event
from windsock.pipeline.unwrap import ENVELOPES, UnwrapStep
from windsock.spec import SpecError

CORPORA = Path(__file__).resolve().parents[2] / "corpora"


def carried(data: Any) -> Event:
    """An event that carries an envelope."""
    return Event.make(data, source="queue", type="message", id="m-1", key="k", headers={"h": "v"})


def opened(envelope: str, data: Any) -> Event:
    """The event inside."""
    result = UnwrapStep(envelope, watcher="w").apply([carried(data)])
    assert result.dead == []
    [event] = result.kept
    return event


def test_sns() -> None:
    """A notification becomes its message, under the notification's id."""
    record = json.loads((CORPORA / "aws" / "snsSqsEvent.json").read_text())["Records"][0]
    event = opened("sns", json.loads(record["body"]))
    assert event.data == {"message": "hello world", "username": "lessa"}
    assert event.id == json.loads(record["body"])["MessageId"]
    assert event.headers["h"] == "v"


def test_sns_confirmations_mean_nothing() -> None:
    """What SNS itself says is filtered, not a dead letter."""
    confirmation = {"Type": "SubscriptionConfirmation", "MessageId": "1", "TopicArn": "arn:t", "Message": "m"}
    result = UnwrapStep("sns", watcher="w").apply([carried(confirmation)])
    assert ([verdict.stage for verdict in result.filtered], result.dead) == (["unwrap"], [])


def test_eventbridge() -> None:
    """The detail is the data; id, source, type and time are the envelope's."""
    envelope = json.loads((CORPORA / "aws" / "eventBridgeEvent.json").read_text())
    event = opened("eventbridge", envelope)
    assert (event.data, event.source, event.id) == (envelope["detail"], "aws.ec2", envelope["id"])


def test_pubsub() -> None:
    """A push request becomes its message."""
    envelope = json.loads((CORPORA / "gcp" / "MessagePublishedData-text.json").read_text())
    envelope["message"]["data"] = "eyJuIjogMX0="
    event = opened("pubsub", envelope)
    assert (event.id, event.data, event.headers) == ("message-id", {"n": 1}, {"attr1": "attr1-value"})


def test_debezium() -> None:
    """A change event becomes a change."""
    line = (CORPORA / "debezium" / "postgres-live.jsonl").read_text().splitlines()[0]
    event = opened("debezium", json.loads(json.loads(line)["value"]))
    assert event.type == "debezium.read"


def test_cloudevents() -> None:
    """A structured CloudEvent becomes itself, with the carrier's key and headers."""
    document = {"specversion": "1.0", "id": "7", "source": "/s", "type": "t", "data": {"n": 1}}
    event = opened("cloudevents", document)
    assert (event.id, event.data, event.key, event.headers) == ("7", {"n": 1}, "k", {"h": "v"})


def test_an_unknown_envelope_is_refused() -> None:
    """The known ones are named."""
    with pytest.raises(SpecError, match="use one of sns, eventbridge"):
        UnwrapStep("paper", watcher="w")


@given(
    envelope=st.sampled_from(sorted(ENVELOPES)),
    data=st.none() | st.text() | st.binary() | st.lists(st.integers()),
)
def test_anything_else_is_a_dead_letter(envelope: str, data: Any) -> None:
    """What is in no envelope never raises, and is kept whole in its letter."""
    result = UnwrapStep(envelope, watcher="w").apply([carried(data)])
    assert result.kept == []
    assert len(result.dead) + len(result.filtered) == 1
