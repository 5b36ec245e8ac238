"""SQS messages as events, and what the reader does when SQS fails in part."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import DeadLetter, Event, SourceError, WindsockError
from windsock.sources import make_source, source_key
from windsock.sources._sqs_queue import Held, Queue
from windsock.sources.sqs import SqsConfig, SqsSource

CORPUS = Path(__file__).parents[2] / "corpora" / "aws"
ARN = "arn:aws:sqs:us-east-2:123456789012:my-queue"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def messages(corpus: str) -> list[dict[str, Any]]:
    """Messages as the API hands them over, out of events as AWS Lambda gets them."""
    records = json.loads((CORPUS / corpus).read_bytes())["Records"]
    return [
        {
            "MessageId": record["messageId"],
            "ReceiptHandle": record["receiptHandle"],
            "Body": record["body"],
            "Attributes": record["attributes"],
            "MessageAttributes": {
                name: {"DataType": value["dataType"], "StringValue": value["stringValue"]}
                for name, value in record["messageAttributes"].items()
            },
        }
        for record in records
    ]


def message(body: str, **attributes: str) -> dict[str, Any]:
    return {"MessageId": "m-1", "ReceiptHandle": "r-1", "Body": body, "Attributes": attributes}


def read(raw: list[dict[str, Any]], **options: Any) -> tuple[list[Event], list[DeadLetter]]:
    """What the source makes of messages."""
    source = SqsSource(SqsConfig(conn_id="aws", queue="my-queue", **options))
    source._arn = ARN
    queue = Queue(None, "url", "my-queue", "aws", visibility=60, wait=20, receivers=1)
    delivery = source._delivery(queue, [Held(each, each["ReceiptHandle"], 0.0) for each in raw])
    return list(delivery.events), list(delivery.dead)


def test_real_messages() -> None:
    """The messages that AWS publishes as an example: one is text and no JSON, one is an event."""
    (event,), (dead,) = read(messages("sqsEvent.json"))
    assert (event.id, event.data) == ("2e1424d4-f796-459a-8184-9c92662be6da", {"message": "foo1"})
    assert (event.source, event.type) == (ARN, "windsock.sqs")
    assert event.time is not None
    assert event.time.isoformat() == "2018-12-17T21:37:30.636000+00:00"
    assert event.headers == {"aws.ApproximateReceiveCount": "1", "aws.SenderId": "AIDAIENQZJOLO23YVJ4VO"}
    assert (dead.body, "059f36b4-87a3-44ab-83d2-661975830a7d" in dead.reason) == (b"Test message.", True)
    texts, none = read(messages("sqsEvent.json"), format="text")
    assert ([event.data for event in texts], none) == (["Test message.", '{"message": "foo1"}'], [])
    assert texts[0].headers["testAttr"] == "100"


def test_a_real_notification_of_sns() -> None:
    """SNS in SQS: the publication is the event, the topic its source."""
    (event,), dead = read(messages("snsSqsEvent.json"))
    assert (event.data, dead) == ({"message": "hello world", "username": "lessa"}, [])
    assert event.source == "arn:aws:sns:eu-west-1:231436140809:powertools265"
    assert event.id == "d88d4479-6ec0-54fe-b63f-1cf9df4bb16e"


def test_an_envelope_that_is_left_alone() -> None:
    """With envelope='none' a notification stays what it is."""
    (event,), _ = read(messages("snsSqsEvent.json"), envelope="none")
    assert (event.data["Type"], event.source) == ("Notification", ARN)


def test_eventbridge_inside_sns() -> None:
    """An event that went through EventBridge and SNS comes out as itself."""
    inner = (CORPUS / "eventBridgeEvent.json").read_text()
    outer = {"Type": "Notification", "MessageId": "n", "TopicArn": "arn:aws:sns:x:1:t", "Message": inner}
    (event,), _ = read([message(json.dumps(outer))])
    assert (event.source, event.data["state"]) == ("aws.ec2", "terminated")


@pytest.mark.parametrize("envelope", ["sns", "eventbridge"])
def test_an_envelope_that_is_missing(envelope: str) -> None:
    """Where an envelope is demanded, a message without one is set aside with the remedy."""
    events, (dead,) = read([message('{"n": 1}')], envelope=envelope)
    assert events == []
    assert "set envelope='auto'" in dead.reason


def test_a_confirmation_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """SNS's request to confirm a subscription is logged with its topic, without its token, and left out."""
    asked = {
        "Type": "SubscriptionConfirmation",
        "MessageId": "n",
        "TopicArn": "arn:aws:sns:x:1:t",
        "Message": "You have chosen to subscribe",
        "Token": "a-token",
        "SubscribeURL": "https://x/a-token",
    }
    with caplog.at_level(logging.WARNING):
        assert read([message(json.dumps(asked))]) == ([], [])
    assert "topic=arn:aws:sns:x:1:t: " in caplog.text
    assert "a-token" not in caplog.text


def test_fifo_and_dead_letter_attributes() -> None:
    """Message group, sequence number and the queue where a message died have their places."""
    attributes = {
        "MessageGroupId": "shop-1",
        "SequenceNumber": "18849496460467696128",
        "MessageDeduplicationId": "d-1",
        "DeadLetterQueueSourceArn": "arn:aws:sqs:us-east-2:123456789012:orders",
    }
    (event,), _ = read([message("{}", **attributes)])
    assert (event.key, event.sequence) == ("shop-1", "18849496460467696128")
    assert (event.type, event.subject) == ("windsock.sqs.dead_letter", attributes["DeadLetterQueueSourceArn"])
    assert event.headers["aws.MessageDeduplicationId"] == "d-1"


@given(
    body=PLAIN.map(json.dumps) | st.text(),
    attributes=st.dictionaries(
        st.sampled_from(["SentTimestamp", "MessageGroupId", "SequenceNumber", "SenderId"]), st.text()
    ),
    envelope=st.sampled_from(["auto", "sns", "eventbridge", "none"]),
    format=st.sampled_from(["auto", "json", "text", "bytes", "cloudevents"]),
)
def test_malformed_messages(body: str, attributes: dict[str, str], envelope: str, format: str) -> None:
    """Whatever a message holds, it becomes one event or one dead letter."""
    events, dead = read([message(body, **attributes)], envelope=envelope, format=format)
    assert len(events) + len(dead) == 1


@pytest.mark.parametrize(
    "options",
    [{"visibility": 1}, {"wait": 0}, {"wait": 21}, {"receivers": 0}, {"envelope": "xml"}, {"queue": ""}],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    """Options that SQS would refuse are refused at once."""
    with pytest.raises(WindsockError):
        make_source("sqs", {"conn_id": "aws", "queue": "orders", **options})


def test_tuning_keeps_the_reader() -> None:
    """Watchers that differ only in times and receivers share one reader; another envelope is another one."""
    plain = {"conn_id": "aws", "queue": "orders"}
    assert source_key("sqs", {**plain, "visibility": 5, "receivers": 9}) == source_key("sqs", plain)
    assert source_key("sqs", {**plain, "envelope": "none"}) != source_key("sqs", plain)


class Sqs:
    """SQS with answers that are given to it; waits when it has none left."""

    def __init__(self) -> None:
        self.received: deque[list[dict[str, Any]] | Exception] = deque()
        self.failures: deque[list[dict[str, Any]]] = deque()
        self.deleted: list[list[str]] = []
        self.hidden: list[tuple[str, int]] = []
        self.changed = asyncio.Condition()

    async def receive_message(self, **_: Any) -> dict[str, Any]:
        if not self.received:
            await asyncio.Event().wait()
        answer = self.received.popleft()
        if isinstance(answer, Exception):
            raise answer
        return {"Messages": answer}

    async def delete_message_batch(self, Entries: list[dict[str, Any]], **_: Any) -> dict[str, Any]:  # noqa: N803
        self.deleted.append([entry["ReceiptHandle"] for entry in Entries])
        return {"Failed": self.failures.popleft() if self.failures else []}

    async def change_message_visibility_batch(
        self,
        Entries: list[dict[str, Any]],  # noqa: N803 - so it is called
        **_: Any,
    ) -> dict[str, Any]:
        async with self.changed:
            self.hidden += [(entry["ReceiptHandle"], entry["VisibilityTimeout"]) for entry in Entries]
            self.changed.notify_all()
        return {"Failed": self.failures.popleft() if self.failures else []}


def numbered(*numbers: int, receipt: str = "r") -> list[dict[str, Any]]:
    return [
        {"MessageId": f"m-{n}", "ReceiptHandle": f"{receipt}-{n}", "Body": "{}", "Attributes": {}}
        for n in numbers
    ]


@asynccontextmanager
async def queue_of(sqs: Sqs, *, visibility: int = 60, receivers: int = 1) -> AsyncIterator[Queue]:
    queue = Queue(sqs, "url", "orders", "aws", visibility=visibility, wait=20, receivers=receivers)
    queue.start()
    async with asyncio.timeout(10):
        try:
            yield queue
        finally:
            await queue.close()


async def test_deletes_in_tens() -> None:
    """More than ten messages are deleted in batches of at most ten."""
    sqs = Sqs()
    sqs.received += [numbered(*range(10)), numbered(*range(10, 20)), numbered(20, 21)]
    async with queue_of(sqs) as queue:
        held: list[Held] = []
        while len(held) < 22:
            held += await queue.take()
        await queue.delete(held)
    assert sorted(map(len, sqs.deleted)) == [2, 10, 10]
    assert sorted(handle for batch in sqs.deleted for handle in batch) == sorted(f"r-{n}" for n in range(22))


async def test_deletes_again_what_failed() -> None:
    """Of a batch that was deleted in part, only the failed ones are tried again."""
    sqs = Sqs()
    sqs.received.append(numbered(0, 1, 2))
    sqs.failures.append([{"Id": "1", "Code": "InternalError", "SenderFault": False}])
    async with queue_of(sqs) as queue:
        await queue.delete(await queue.take())
    assert sqs.deleted == [["r-0", "r-1", "r-2"], ["r-1"]]


async def test_gives_up_on_what_cannot_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """A receipt that SQS does not take any more is logged and not tried again: the message comes again."""
    sqs = Sqs()
    sqs.received.append(numbered(0, 1))
    sqs.failures.append([{"Id": "0", "Code": "ReceiptHandleIsInvalid", "SenderFault": True}])
    async with queue_of(sqs) as queue:
        await queue.delete(await queue.take())
    assert sqs.deleted == [["r-0", "r-1"]]
    assert "windsock.sqs.not_deleted queue=orders messages=1 code=ReceiptHandleIsInvalid" in caplog.text


async def test_what_is_held_is_not_delivered_twice() -> None:
    """A message that SQS hands out again while it is held is deleted by its newest receipt."""
    sqs = Sqs()
    sqs.received += [numbered(0), numbered(0, 1, receipt="again")]
    async with queue_of(sqs) as queue:
        held: list[Held] = []
        while len(held) < 2:
            held += await queue.take()
        assert [each.id for each in held] == ["m-0", "m-1"]
        await queue.delete(held)
    assert sqs.deleted == [["again-0", "again-1"]]


async def test_hides_what_is_held_and_gives_it_back() -> None:
    """What is held is hidden again before its time is over, and given back at close; the deleted is not."""
    sqs = Sqs()
    sqs.received.append(numbered(0, 1))
    async with queue_of(sqs, visibility=2) as queue:
        first, _ = await queue.take()
        async with sqs.changed:
            await sqs.changed.wait()
        assert set(sqs.hidden) == {("r-0", 2), ("r-1", 2)}
        await queue.delete([first])
        sqs.hidden.clear()
    assert [entry for entry in sqs.hidden if entry[1] == 0] == [("r-1", 0)]


async def test_a_failed_receive_is_raised() -> None:
    """An error of the client reaches the reader as a SourceError; a bug as what it is."""
    from botocore.exceptions import EndpointConnectionError

    for error, expected in (
        (EndpointConnectionError(endpoint_url="http://x"), SourceError),
        (KeyError("bug"), KeyError),
    ):
        sqs = Sqs()
        sqs.received.append(error)
        async with queue_of(sqs) as queue:
            with pytest.raises(expected):
                await queue.take()


async def test_other_receivers_wake_when_it_is_busy() -> None:
    """One receiver waits in a quiet queue; a full answer wakes the others."""
    sqs = Sqs()
    asked = 0
    more = asyncio.Event()
    real = sqs.receive_message

    async def receive(**arguments: Any) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 5:
            more.set()
        return await real(**arguments)

    sqs.receive_message = receive  # type: ignore[method-assign]
    sqs.received.append(numbered(0))
    async with queue_of(sqs, receivers=4) as queue:
        await queue.take()
        await asyncio.sleep(0)
        assert asked == 2  # the one that brought the message, and the next by the same receiver
    asked = 0
    sqs.received.append(numbered(*range(10)))
    async with queue_of(sqs, receivers=4) as queue:
        await queue.take()
        await more.wait()  # the full answer, and then all four
