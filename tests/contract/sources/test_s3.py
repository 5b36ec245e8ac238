"""S3 by listing, over SeaweedFS and moto, and by notifications, over MiniStack and moto."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from windsock.connections import Connection, fixed
from windsock.events import Event
from windsock.sources import make_source
from windsock.sources._aws import client
from windsock.testing.services import Service
from windsock.testing.sources import (
    MalformedInput,
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

Serve = Callable[[str], Service]

PARALLEL = 32


class Bucket:
    """A bucket of its own on a server, and a wire to it that can be cut."""

    def __init__(self, service: Any, wire: Wire) -> None:
        self.service, self.wire = service, wire
        self.name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.numbers = count()

    def connection(self) -> Connection:
        """To the server, through the wire."""
        direct = self.service.connection("aws")
        endpoint = f"http://127.0.0.1:{self.wire.port}"
        return replace(direct, extra={**direct.extra, "endpoint_url": endpoint})

    @asynccontextmanager
    async def client(self, name: str = "s3") -> AsyncIterator[Any]:
        """A client that does not go through the wire."""
        async with client(name, self.service.connection("aws")) as made:
            yield made

    async def create(self) -> None:
        async with self.client() as s3:
            await s3.create_bucket(Bucket=self.name)

    async def put(self, *keys: str, body: bytes = b"content") -> list[str]:
        """Objects under these keys, several at a time and never far from their order."""
        async with self.client() as s3:
            for at in range(0, len(keys), PARALLEL):
                together = keys[at : at + PARALLEL]
                await asyncio.gather(
                    *(s3.put_object(Bucket=self.name, Key=key, Body=body) for key in together)
                )
        return list(keys)

    async def produce(self, count: int) -> list[str]:
        return await self.put(*[f"in/{next(self.numbers):06}" for _ in range(count)])


@pytest.fixture(params=["seaweedfs", "moto"])
async def bucket(request: pytest.FixtureRequest, serve: Serve) -> AsyncIterator[Bucket]:
    """A new bucket on each of the servers."""
    service = serve(request.param)
    with Wire("127.0.0.1", service.port) as wire:
        made = Bucket(service, wire)
        await made.create()
        yield made


class Listed(SourceContract, ReaderProcesses, ServerFaults, Unreachable, Missing):
    """A bucket that is listed."""

    kind = "s3"
    patience = 600.0
    server = ""
    more: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    async def system(self, serve: Serve) -> AsyncIterator[None]:
        service = serve(self.server)
        with Wire("127.0.0.1", service.port) as self.wire:
            self.bucket = Bucket(service, self.wire)
            await self.bucket.create()
            yield

    def options(self) -> dict[str, Any]:
        return {"conn_id": "aws", "bucket": self.bucket.name, "prefix": "in/", "interval": 0.2, **self.more}

    def connections(self) -> Sequence[Connection]:
        return [self.bucket.connection()]

    async def produce(self, count: int) -> list[str]:
        return await self.bucket.produce(count)

    def identity(self, event: Event) -> str:
        return event.subject or ""

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.bucket.service.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        self.wire.cut()
        return self.options(), self.connections()

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "bucket": "not-there"}, self.connections()


class TestListing(Listed, WrongCredentials):
    """By time, over SeaweedFS."""

    server = "seaweedfs"

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [replace(self.bucket.connection(), password="not-the-secret")]


class TestListingByKey(Listed):
    """By key, over SeaweedFS: each listing goes on behind the last key."""

    server = "seaweedfs"
    more = {"order": "key"}


class TestListingOnMoto(Listed):
    """By time, over the other store; it keeps nothing over a restart and takes every credential."""

    server = "moto"
    burst = 2_000

    async def restart_server(self) -> None:
        await super().restart_server()
        await self.bucket.create()
        self.bucket.numbers = count(100)


class Notified:
    """A bucket that notifies a queue, directly, through a topic or through EventBridge."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.queue = bucket.name

    async def create(self, *, way: str = "sqs", test_event: bool = False) -> None:
        """The bucket, its queue and what is between; without S3's test event unless it is asked for."""
        await self.bucket.create()
        async with self.bucket.client("sqs") as sqs:
            url = (await sqs.create_queue(QueueName=self.queue))["QueueUrl"]
            attributes = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            await getattr(self, f"_notify_{way}")(attributes["Attributes"]["QueueArn"])
            if not test_event and way != "eventbridge":
                answer = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=2)
                for message in answer.get("Messages", ()):
                    await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def _notify_sqs(self, queue: str) -> None:
        target = {"QueueArn": queue, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        await self._configure({"QueueConfigurations": [target]})

    async def _notify_sns(self, queue: str) -> None:
        async with self.bucket.client("sns") as sns:
            topic = (await sns.create_topic(Name=self.queue))["TopicArn"]
            await sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
        target = {"TopicArn": topic, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        await self._configure({"TopicConfigurations": [target]})

    async def _notify_eventbridge(self, queue: str) -> None:
        pattern = {"source": ["aws.s3"], "detail": {"bucket": {"name": [self.bucket.name]}}}
        async with self.bucket.client("events") as events:
            await events.put_rule(Name=self.queue, EventPattern=json.dumps(pattern))
            await events.put_targets(Rule=self.queue, Targets=[{"Id": "queue", "Arn": queue}])
        await self._configure({"EventBridgeConfiguration": {}})

    async def _configure(self, configuration: dict[str, Any]) -> None:
        async with self.bucket.client() as s3:
            await s3.put_bucket_notification_configuration(
                Bucket=self.bucket.name, NotificationConfiguration=configuration
            )

    async def send(self, *bodies: str) -> None:
        """Messages that no emulator would send."""
        async with self.bucket.client("sqs") as sqs:
            url = (await sqs.get_queue_url(QueueName=self.queue))["QueueUrl"]
            for body in bodies:
                await sqs.send_message(QueueUrl=url, MessageBody=body)


class NotificationSuite(SourceContract, MalformedInput, ReaderProcesses, ServerFaults, Unreachable, Missing):
    """S3's notifications out of a queue."""

    kind = "s3"
    patience = 600.0
    server = ""

    @pytest.fixture(autouse=True)
    async def system(self, serve: Serve) -> AsyncIterator[None]:
        service = serve(self.server)
        with Wire("127.0.0.1", service.port) as self.wire:
            self.bucket = Bucket(service, self.wire)
            self.notified = Notified(self.bucket)
            await self.notified.create()
            yield

    def options(self) -> dict[str, Any]:
        return {
            "conn_id": "aws",
            "mode": "notifications",
            "queue": self.notified.queue,
            "prefix": "in/",
            "visibility": 5,
        }

    def connections(self) -> Sequence[Connection]:
        return [self.bucket.connection()]

    async def produce(self, count: int) -> list[str]:
        return await self.bucket.produce(count)

    def identity(self, event: Event) -> str:
        return event.subject or ""

    async def produce_malformed(self) -> bytes:
        await self.notified.send('{"Records": [{"eventName": "ObjectCreated:Put"}]}')
        return b"ObjectCreated:Put"

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.bucket.service.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        self.wire.cut()
        return self.options(), self.connections()

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "queue": "not-there"}, self.connections()


class TestNotifications(NotificationSuite):
    """Over MiniStack."""

    server = "ministack"


class TestNotificationsOnMoto(NotificationSuite, WrongCredentials):
    """Over moto, which keeps nothing over a restart but can be told to ask for credentials."""

    server = "moto"
    burst = 300  # moto looks through the whole queue for each message that it deletes

    async def restart_server(self) -> None:
        await super().restart_server()
        await self.notified.create()

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return self.options(), [replace(self.bucket.connection(), password="not-the-secret")]

    async def test_wrong_credentials(self) -> None:
        """A refused login is a SourceError with the remedy and without the secret, shown in health."""
        with self.bucket.service.asking_for_credentials():
            await super().test_wrong_credentials()


@asynccontextmanager
async def reading(bucket: Bucket, cursor: Any = None, **options: Any) -> AsyncIterator[Reader]:
    """A source on the bucket, connected inside."""
    chosen = {"conn_id": "aws", "bucket": bucket.name, "interval": 0.1, **options}
    source = make_source("s3", chosen, fixed(bucket.service.connection("aws")))
    async with asyncio.timeout(60):
        await source.connect(cursor)
        try:
            yield Reader(source)
        finally:
            await source.close()


ODD = ["in/a b+ü.csv", "in/100%.csv", "in/a+b%2B.csv", "in/q?&=#;.csv", "in/日本語/😀.csv", "in/it's (1).csv"]


async def test_a_listed_object(bucket: Bucket) -> None:
    """An event has what the listing says of the object."""
    await bucket.put("in/orders.csv", body=b"12345")
    async with reading(bucket, prefix="in/") as reader:
        (event,) = await reader.read(1)
    assert event.type == "windsock.object.created"
    assert event.source == f"s3://{bucket.name}"
    assert event.subject == event.key == "in/orders.csv"
    assert event.data["bucket"] == bucket.name
    assert event.data["uri"] == f"s3://{bucket.name}/in/orders.csv"
    assert event.data["size"] == 5
    assert event.data["etag"] == "827ccb0eea8a706c4c34a16891f84e7b"
    assert event.time is not None
    assert event.data["last_modified"] == event.time.isoformat()


async def test_listed_keys_of_all_kinds(bucket: Bucket) -> None:
    """Keys come as they are, whatever is in them; folders of consoles are left out."""
    await bucket.put(*ODD, "in/folder/", "in/last")
    async with reading(bucket) as reader:
        events = await reader.read(len(ODD) + 1)
    assert sorted(event.subject or "" for event in events) == sorted([*ODD, "in/last"])


async def test_a_pattern_of_listed_keys(bucket: Bucket) -> None:
    """The prefix is the store's to filter, the pattern ours."""
    await bucket.put("in/a.csv", "in/a.log", "in/deep/b.csv", "out/c.csv")
    async with reading(bucket, prefix="in/", pattern="**/*.csv") as reader:
        await reader.read(2)
        await bucket.put("in/last.csv")
        events = await reader.read(3)
    assert sorted(event.subject or "" for event in events) == ["in/a.csv", "in/deep/b.csv", "in/last.csv"]


async def test_a_listed_object_is_overwritten(bucket: Bucket) -> None:
    """New content under an old key is news, with an id of its own, also within the same second."""
    await bucket.put("a", body=b"one")
    async with reading(bucket) as reader:
        await reader.read(1)
        await bucket.put("a", body=b"two")
        first, second = await reader.read(2)
        cursor = reader.cursor()
        await bucket.put("a", body=b"three")
    assert [first.type, second.type] == ["windsock.object.created", "windsock.object.overwritten"]
    assert first.id != second.id
    async with reading(bucket, cursor) as reader:
        (third,) = await reader.read(1)
    assert third.id not in (first.id, second.id)


async def test_a_multipart_upload_is_found(bucket: Bucket) -> None:
    """An upload that began before others and ends after them is found, across a restart."""
    async with bucket.client() as s3:
        name = {"Bucket": bucket.name, "Key": "large"}
        upload = {**name, "UploadId": (await s3.create_multipart_upload(**name))["UploadId"]}
        part = await s3.upload_part(**upload, PartNumber=1, Body=b"x" * 5_242_880)
        await bucket.put("small")
        async with reading(bucket) as reader:
            await reader.read(1)
            cursor = reader.cursor()
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        await s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    async with reading(bucket, cursor) as reader:
        (event,) = await reader.read(1)
    assert (event.subject, event.data["size"]) == ("large", 5_242_880)


async def test_listing_starts_at_the_latest(bucket: Bucket) -> None:
    """With start='latest' only what comes later is announced, also if the reader restarts before."""
    await bucket.put("old")
    async with reading(bucket, start="latest") as reader:
        first = await reader.next()
        assert (list(first.events), first.cursor is None) == ([], False)
    await bucket.put("new")
    async with reading(bucket, first.cursor, start="latest") as reader:
        (event,) = await reader.read(1)
    assert event.subject == "new"


@pytest.fixture(params=["ministack", "moto"])
async def notified(request: pytest.FixtureRequest, serve: Serve) -> AsyncIterator[Notified]:
    """A bucket on each of the emulators, to be set up as the test needs it."""
    service = serve(request.param)
    with Wire("127.0.0.1", service.port) as wire:
        yield Notified(Bucket(service, wire))


def hearing(notified: Notified, **options: Any) -> Any:
    """A source on the bucket's notifications, connected inside."""
    return reading(notified.bucket, mode="notifications", queue=notified.queue, **options)


@pytest.mark.parametrize("way", ["sqs", "sns", "eventbridge"])
async def test_each_way_of_a_notification(notified: Notified, way: str) -> None:
    """Directly, through SNS and through EventBridge the same event arrives, with its key decoded."""
    await notified.create(way=way, test_event=True)
    # MiniStack sends keys as they are, where S3 encodes them: there these would mean something else.
    encodes = notified.bucket.service.name == "moto"
    keys = [key for key in ODD if encodes or not set("+%") & set(key)]
    await notified.bucket.put(*keys)
    async with hearing(notified) as reader:
        events = await reader.read(len(keys))
    assert reader.dead == []
    assert sorted(event.subject or "" for event in events) == sorted(keys)
    assert {event.type for event in events} == {"windsock.object.created"}
    assert {event.source for event in events} == {f"s3://{notified.bucket.name}"}
    assert {event.data["size"] for event in events} == {7}


async def test_the_test_event_is_ignored(notified: Notified) -> None:
    """What S3 sends when notifications are set up is deleted without a trace."""
    await notified.create(test_event=True)
    async with hearing(notified) as reader:
        await notified.bucket.put("a")
        events = await reader.read(1)
        assert await _lag(reader, 0) == 0
    assert [event.subject for event in events] == ["a"]
    assert reader.dead == []


async def test_deletions(notified: Notified) -> None:
    """A deletion is an event of its own kind, if it is asked for."""
    await notified.create()
    await notified.bucket.put("a")
    async with notified.bucket.client() as s3:
        await s3.delete_object(Bucket=notified.bucket.name, Key="a")
    async with hearing(notified, events=["created", "deleted"]) as reader:
        events = await reader.read(2)
    assert {event.type for event in events} == {"windsock.object.created", "windsock.object.deleted"}
    assert {event.subject for event in events} == {"a"}
    assert len({event.id for event in events}) == 2


async def test_versions(notified: Notified) -> None:
    """Two versions and a delete marker, as S3 tells of them, are three events, each with its version."""
    await notified.create()
    names = ["ObjectCreated:Put", "ObjectCreated:Put", "ObjectRemoved:DeleteMarkerCreated"]
    for number, name in enumerate(names):
        await notified.send(
            _record(
                "a", bucket=notified.bucket.name, name=name, versionId=f"v{number}", sequencer=f"0{number}"
            )
        )
    async with hearing(notified, events=["created", "deleted"]) as reader:
        events = await reader.read(3)
    by_version = {event.data["version"]: event for event in events}
    assert sorted(by_version) == ["v0", "v1", "v2"]
    assert len({event.id for event in events}) == 3
    assert by_version["v2"].data["delete_marker"] is True


async def test_filters_of_notifications(notified: Notified) -> None:
    """Prefix, pattern, bucket and kind of change leave out what is not wanted, and delete its message."""
    await notified.create()
    await notified.bucket.put("in/a.csv", "in/a.log", "out/b.csv")
    async with notified.bucket.client() as s3:
        await s3.delete_object(Bucket=notified.bucket.name, Key="in/a.csv")
    await notified.send(_record("in/other.csv", bucket="somebody-elses"))
    async with hearing(notified, prefix="in/", pattern="*.csv") as reader:
        await reader.read(1)
        await notified.bucket.put("in/last.csv")
        events = await reader.read(2)
        assert await _lag(reader, 0) == 0
    assert [event.subject for event in events] == ["in/a.csv", "in/last.csv"]


async def test_the_order_of_sequencers(notified: Notified) -> None:
    """What arrives behind something newer of its object is marked; several records are one message."""
    await notified.create()
    bucket = notified.bucket.name
    together = [
        json.loads(_record("a", bucket=bucket, sequencer=each))["Records"][0] for each in ("02", "01")
    ]
    await notified.send(json.dumps({"Records": together}))
    async with hearing(notified) as reader:
        await reader.read(2)
        await notified.send(_record("a", bucket=bucket, sequencer="0100"))
        events = await reader.read(3)
    assert [event.sequence for event in events] == ["01", "02", "0100"]
    assert [event.data.get("stale", False) for event in events] == [False, False, True]


def _record(key: str, *, bucket: str, name: str = "ObjectCreated:Put", **described: str) -> str:
    s3 = {"bucket": {"name": bucket}, "object": {"key": key, "size": 1, "eTag": "e", **described}}
    return json.dumps({"Records": [{"eventName": name, "s3": s3}]})


async def _lag(reader: Reader, expected: int) -> int | None:
    while (lag := await reader.source.lag()) != expected:
        await asyncio.sleep(0.05)
    return lag
