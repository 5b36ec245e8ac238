"""The SQS source over two emulators of AWS, standard and FIFO, plain and in envelopes.

Neither emulator is AWS: MiniStack keeps its state over an orderly restart only and moto over none, so that
moto's queue is made again after a restart. Moto can be told to check credentials, MiniStack takes all.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.log.records import EventQuery
from windsock.log.sqlite import SqliteLog
from windsock.runner import Runner
from windsock.sources import make_source, source_key
from windsock.sources._aws import client
from windsock.sources.base import Guarantees
from windsock.spec import WatcherSpec
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.moto import Moto
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceHooks,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.sources.hooks import QUICK
from windsock.testing.wire import Wire


class Queues(SourceHooks):
    """A fresh queue for each test on one of the emulators, reached through a wire."""

    kind = "sqs"
    server: ClassVar[str] = "ministack"
    fifo: ClassVar[bool] = False
    wait = 20

    @pytest.fixture(autouse=True)
    async def system(
        self, serve: Callable[[str], Service], request: pytest.FixtureRequest
    ) -> AsyncIterator[None]:
        self.service = serve(self.server)
        # How long the messages of a killed reader stay away; elsewhere more than a slow machine needs.
        self.visibility = 3 if isinstance(self, ReaderProcesses) and "killed" in request.node.name else 8
        self.name = f"windsock-{uuid.uuid4()}" + (".fifo" if self.fifo else "")
        with Wire(LOOPBACK, self.service.port) as self.wire:
            await self.create()
            yield

    async def create(self, name: str = "", **attributes: str) -> str:
        """Make a queue; its URL."""
        if self.fifo:
            attributes |= {"FifoQueue": "true"}
        async with self.sqs() as sqs:
            made = await sqs.create_queue(QueueName=name or self.name, Attributes=attributes)
        return str(made["QueueUrl"])

    @asynccontextmanager
    async def sqs(self) -> AsyncIterator[Any]:
        """A client that does not go through the wire."""
        async with client("sqs", self.service.connection("aws")) as sqs:
            yield sqs

    def options(self) -> dict[str, Any]:
        return {"conn_id": "aws", "queue": self.name, "visibility": self.visibility, "wait": self.wait}

    def connections(self) -> list[Connection]:
        return [self.at(self.wire.port)]

    def at(self, port: int, **fields: Any) -> Connection:
        connection = self.service.connection("aws")
        extra = {**connection.extra, "endpoint_url": f"http://{LOOPBACK}:{port}"}
        return msgspec.structs.replace(connection, extra=extra, **fields)

    async def send(
        self, bodies: Sequence[str], *, queue: str = "", groups: Sequence[str] = (), **fields: Any
    ) -> list[str]:
        """Send messages, in a FIFO queue to these groups; their ids."""
        unordered = not self.fifo
        async with self.sqs() as sqs:
            url = (await sqs.get_queue_url(QueueName=queue or self.name))["QueueUrl"]

            async def batch(at: int) -> list[str]:
                entries: list[dict[str, Any]] = []
                for n, body in enumerate(bodies[at : at + 10], at):
                    entries.append({"Id": str(n), "MessageBody": body, **fields})
                    if self.fifo:
                        group = groups[n] if groups else f"group-{n % 100}"
                        entries[-1] |= {"MessageGroupId": group, "MessageDeduplicationId": str(uuid.uuid4())}
                answer = await sqs.send_message_batch(QueueUrl=url, Entries=entries)
                assert not answer.get("Failed"), answer
                made = sorted(answer["Successful"], key=lambda entry: int(entry["Id"]))
                return [entry["MessageId"] for entry in made]

            sent: list[list[str]] = []
            for at in range(0, len(bodies), 40):
                batches = [batch(n) for n in range(at, min(at + 40, len(bodies)), 10)]
                sent += await asyncio.gather(*batches) if unordered else [await each for each in batches]
        return [message for batch_of_ids in sent for message in batch_of_ids]

    async def produce(self, count: int) -> list[str]:
        return await self.send([json.dumps({"n": n}) for n in range(count)])

    @asynccontextmanager
    async def reads(self, **options: Any) -> AsyncIterator[Callable[[int], Awaitable[list[Event]]]]:
        """A source with more options, connected inside; call it with how many events to read."""
        async with asyncio.timeout(self.patience):
            source = make_source(self.kind, {**self.options(), **options}, fixed(*self.connections()))
            await source.connect(None)
            stream = source.read()

            async def read(count: int) -> list[Event]:
                events: list[Event] = []
                while len(events) < count:
                    delivery = await anext(stream)
                    events += delivery.events
                    await delivery.ack()
                return events

            try:
                yield read
            finally:
                await source.close()


class Suite(Queues, MessageContract, ReaderProcesses, ServerFaults, Unreachable, Missing):
    """The whole contract."""

    large = 250_000  # of the 256 KiB that a message may have in MiniStack; AWS allows 1 MiB by now

    async def produce_malformed(self) -> bytes:
        await self.send(['{"n": '])
        return b'{"n": '

    async def produce_large(self, size: int) -> str:
        (made,) = await self.send([json.dumps("x" * size)])
        return made

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.send(["{}"] * len(keys), groups=keys)

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.service.restart)

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.at(free_port())]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "queue": f"not-there-{uuid.uuid4()}"}, self.connections()


class MotoRestart(Queues):
    """Moto forgets everything when it ends, and its time grows with the square of a queue's length."""

    server = "moto"
    burst = 100

    async def restart_server(self) -> None:
        """The queue is made anew: what is proved is that reading goes on, not that messages are kept."""
        await asyncio.to_thread(self.service.restart)
        await self.create()


class TestSqsOnMiniStack(Suite):
    """A standard queue of MiniStack."""


class TestSqsOnMoto(MotoRestart, Suite, WrongCredentials):
    """A standard queue of moto, which also checks credentials when asked to."""

    @pytest.fixture
    def strict(self) -> Iterator[None]:
        assert isinstance(self.service, Moto)
        with self.service.asking_for_credentials():
            yield

    @pytest.mark.usefixtures("strict")
    async def test_wrong_credentials(self) -> None:
        """An unknown access key is a SourceError with the remedy and without the secret, shown in health."""
        await super().test_wrong_credentials()

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.at(self.wire.port, login="AKIAIOSFODNN7EXAMPLE", password="not-the-one")]


class Fifo(Queues):
    """A FIFO queue, which promises the order of each message group."""

    fifo = True

    @property
    def guarantees(self) -> Guarantees:
        return msgspec.structs.replace(super().guarantees, order="key")


class TestFifoOnMiniStack(Fifo, Suite):
    """A FIFO queue of MiniStack."""


class TestFifoOnMoto(Fifo, MotoRestart, Suite):
    """A FIFO queue of moto, whose long polls do not see that a message group became free."""

    def options(self) -> dict[str, Any]:
        return {**super().options(), "wait": 1}


class Features(Queues):
    """What the source does beyond the contract, on each emulator."""

    async def test_keeps_attributes_as_headers(self) -> None:
        """Message attributes of every type become headers, those of SQS with the prefix 'aws.'."""
        attributes = {
            "shop": {"DataType": "String", "StringValue": "north"},
            "total": {"DataType": "Number", "StringValue": "12.5"},
            "mark": {"DataType": "Binary", "BinaryValue": b"abc"},
        }
        (made,) = await self.send(['{"n": 1}'], MessageAttributes=attributes)
        async with self.reads() as read:
            (event,) = await read(1)
        assert (event.headers["shop"], event.headers["total"], event.headers["mark"]) == (
            "north",
            "12.5",
            "abc",
        )
        assert event.headers["aws.ApproximateReceiveCount"] == "1"
        assert (event.id, event.source.rpartition(":")[2]) == (made, self.name)
        assert (event.type, event.time is not None) == ("windsock.sqs", True)

    async def test_counts_receipts(self) -> None:
        """A message that is given back at close comes again at once, with its receipts counted."""
        await self.produce(1)
        async with self.reading() as reader:
            await reader.read(1, ack=False)
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert int(event.headers["aws.ApproximateReceiveCount"]) >= 2

    async def test_extends_the_visibility_of_what_waits(self) -> None:
        """A message that waits to be committed for longer than its visibility is given to nobody else."""
        self.visibility = 2
        await self.produce(25)
        async with self.reading() as reader, self.sqs() as sqs:
            await reader.read(25, ack=False)
            url = (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"]
            answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=6)
            assert "Messages" not in answer
            for delivery in reader.deliveries:
                await delivery.ack()
            await self.gone(sqs, url)

    async def test_closing_ends_the_extension(self) -> None:
        """After close another consumer gets at once what was held."""
        self.visibility, self.wait = 600, 1
        produced = await self.produce(3)
        async with self.reading() as reader:
            await reader.read(3, ack=False)
        async with asyncio.timeout(self.patience), self.sqs() as sqs:
            url = (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"]
            got: set[str] = set()
            while len(got) < 3:
                answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
                got |= {message["MessageId"] for message in answer.get("Messages", [])}
        assert got == set(produced)

    async def gone(self, sqs: Any, url: str) -> None:
        """Return when the queue is empty."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = 1
        while left:
            answer = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
            left = sum(int(count) for count in answer["Attributes"].values())

    async def test_reads_a_queue_by_url_and_by_arn(self) -> None:
        """A queue can be named by its URL or its ARN as well."""
        async with self.sqs() as sqs:
            url = (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"]
            about = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        for name in (url, about["Attributes"]["QueueArn"]):
            produced = await self.produce(2)
            async with self.reads(queue=name) as read:
                self.check(await read(2), produced)

    async def test_watches_a_dead_letter_queue(self) -> None:
        """With dead_letters=True the queue's dead letters come as events that name the queue they died in."""
        origin, (made,) = await self.die()
        async with self.reads(dead_letters=True) as read:
            (event,) = await read(1)
        assert (event.id, event.type) == (made, "windsock.sqs.dead_letter")
        assert event.subject == event.headers["aws.DeadLetterQueueSourceArn"] == origin
        assert event.source.endswith(f"{self.name}-dead")

    async def die(self) -> tuple[str, list[str]]:
        """Let one message be received once too often; the queue's ARN, and the message's id."""
        async with asyncio.timeout(self.patience), self.sqs() as sqs:
            dead = await self.create(f"{self.name}-dead")
            url = (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"]
            arns = [
                (await sqs.get_queue_attributes(QueueUrl=each, AttributeNames=["QueueArn"]))["Attributes"]
                for each in (url, dead)
            ]
            policy = json.dumps({"deadLetterTargetArn": arns[1]["QueueArn"], "maxReceiveCount": 1})
            await sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
            produced = await self.produce(1)
            moved = 0
            while not moved:
                await sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
                answer = await sqs.get_queue_attributes(
                    QueueUrl=dead, AttributeNames=["ApproximateNumberOfMessages"]
                )
                moved = int(answer["Attributes"]["ApproximateNumberOfMessages"])
        return arns[0]["QueueArn"], produced

    async def test_warns_of_a_small_redrive_policy(self, caplog: pytest.LogCaptureFixture) -> None:
        """A queue that gives up on a message after few receipts is named in the log, with the remedy."""
        await self.die()
        with caplog.at_level(logging.WARNING, "windsock.sources.sqs"):
            async with self.reads():
                pass
        (line,) = [r.getMessage() for r in caplog.records if "few_receipts" in r.getMessage()]
        assert f"queue={self.name} maxReceiveCount=1: " in line

    async def test_a_queue_without_dead_letters(self) -> None:
        """Asking for the dead letters of a queue that has no such queue is an error with the remedy."""
        with pytest.raises(SourceError, match="has no dead-letter queue: give it a redrive policy"):
            async with self.reads(dead_letters=True):
                pass

    async def test_unwraps_what_sns_sends(self) -> None:
        """A publication arrives as itself: its text, id, subject, attributes and topic."""
        async with self.topic(raw=False) as (sns, topic):
            sent = await sns.publish(
                TopicArn=topic,
                Message='{"total": 12}',
                Subject="paid",
                MessageAttributes={"shop": {"DataType": "String", "StringValue": "north"}},
            )
            async with self.reads() as read:
                (event,) = await read(1)
        assert (event.data, event.subject, event.headers["shop"]) == ({"total": 12}, "paid", "north")
        assert (event.id, event.source) == (sent["MessageId"], topic)

    async def test_takes_raw_delivery_of_sns(self) -> None:
        """With raw delivery the message is the publication, and its attributes are headers."""
        async with self.topic(raw=True) as (sns, topic):
            await sns.publish(
                TopicArn=topic,
                Message='{"total": 12}',
                MessageAttributes={"shop": {"DataType": "String", "StringValue": "north"}},
            )
            async with self.reads() as read:
                (event,) = await read(1)
        assert (event.data, event.headers["shop"]) == ({"total": 12}, "north")
        assert event.source.endswith(f":{self.name}")

    @asynccontextmanager
    async def topic(self, *, raw: bool) -> AsyncIterator[tuple[Any, str]]:
        """A topic to which the queue is subscribed."""
        async with client("sns", self.service.connection("aws")) as sns, self.sqs() as sqs:
            url = (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"]
            about = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            topic = (await sns.create_topic(Name=f"windsock-{uuid.uuid4()}"))["TopicArn"]
            await sns.subscribe(
                TopicArn=topic,
                Protocol="sqs",
                Endpoint=about["Attributes"]["QueueArn"],
                Attributes={"RawMessageDelivery": "true"} if raw else {},
            )
            yield sns, topic

    async def test_unwraps_what_eventbridge_sends(self) -> None:
        """An event that a rule puts into the queue arrives with its own id, type, source and detail."""
        async with client("events", self.service.connection("aws")) as events, self.sqs() as sqs:
            url = (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"]
            about = await sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            rule = f"windsock-{uuid.uuid4()}"
            await events.put_rule(Name=rule, EventPattern=json.dumps({"source": [rule]}))
            await events.put_targets(Rule=rule, Targets=[{"Id": "1", "Arn": about["Attributes"]["QueueArn"]}])
            entry = {"Source": rule, "DetailType": "order paid", "Detail": '{"total": 12}'}
            sent = await events.put_events(Entries=[entry])
            async with self.reads() as read:
                (event,) = await read(1)
        assert (event.data, event.type, event.source) == ({"total": 12}, "order paid", rule)
        assert event.id == sent["Entries"][0]["EventId"]
        assert event.headers["eventbridge.region"] == "us-east-1"

    async def test_watchers_of_one_queue_share_one_reader(self) -> None:
        """Two watchers with different filters on one queue: one reader, and each gets what it asked for."""
        options = self.options()
        key = source_key(self.kind, options)
        log = SqliteLog(self.directory_of_log / "log.db")
        for name, where in (("even", "data.n % 2 == 0"), ("odd", "data.n % 2 == 1")):
            spec = WatcherSpec(name=name, kind=self.kind, options=options, where=where)
            log.register(spec, source=key)
            log.subscribe(name, f"{name}_dag")
        produced = await self.produce(20)
        runner = Runner(
            source=key, kind=self.kind, options=options, log=log, owner="test", settings=QUICK,
            connections=fixed(*self.connections()),
        )  # fmt: skip
        task = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(self.patience), self.sqs() as sqs:
                await self.gone(sqs, (await sqs.get_queue_url(QueueName=self.name))["QueueUrl"])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for name, remainder in (("even", 0), ("odd", 1)):
            stored = [record.event for record in log.events(EventQuery(watcher=name, limit=100))]
            assert sorted(event.data["n"] for event in stored) == list(range(remainder, 20, 2))
            assert {event.id for event in stored} == set(produced[remainder::2])
        log.close()


class TestFeaturesOnMiniStack(Features):
    """On MiniStack."""


class TestFeaturesOnMoto(Features):
    """On moto."""

    server = "moto"


class TestFifoFeatures(Fifo):
    """What only a FIFO queue has, on MiniStack."""

    async def test_group_and_sequence(self) -> None:
        """The message group is the key, and SQS's sequence numbers grow within it."""
        produced = await self.send(['{"n": 1}', '{"n": 2}'], groups=["a", "a"])
        async with self.reads() as read:
            events = await read(2)
        assert [event.id for event in events] == produced
        assert [event.key for event in events] == ["a", "a"]
        first, second = (int(event.sequence or 0) for event in events)
        assert 0 < first < second
        assert events[0].headers["aws.MessageDeduplicationId"]
