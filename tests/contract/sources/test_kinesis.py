"""The Kinesis source over two emulators of AWS.

MiniStack has the whole contract; its streams outlive an orderly restart. It drops a shard's records when the
shard is split or merged, as AWS does not, so that resharding is proved over kinesalite. Neither checks
credentials: what AWS says to wrong ones is tested in ``tests/unit/sources/test_aws.py``.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from windsock.connections import Connection
from windsock.events import Event
from windsock.sources._aws import client
from windsock.sources._kinesis_aggregate import hash_key
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.kinesalite import Kinesalite
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceHooks,
    Unreachable,
)
from windsock.testing.wire import Wire

SHARDS = 2


class Streams(SourceHooks):
    """A fresh stream of two shards for each test, reached through a wire."""

    kind = "kinesis"
    service: Service

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[None]:
        self.name = f"windsock-{uuid.uuid4()}"
        with Wire(LOOPBACK, self.service.port) as self.wire:
            async with self.kinesis() as kinesis:
                await kinesis.create_stream(StreamName=self.name, ShardCount=SHARDS)
                await kinesis.get_waiter("stream_exists").wait(
                    StreamName=self.name, WaiterConfig={"Delay": 1}
                )
            yield

    @asynccontextmanager
    async def kinesis(self) -> AsyncIterator[Any]:
        """A client that does not go through the wire."""
        async with client("kinesis", self.service.connection("aws")) as kinesis:
            yield kinesis

    def options(self) -> dict[str, Any]:
        return {"conn_id": "aws", "stream": self.name, "start": "earliest", "interval": 0.2, "idle": 0.2}

    def connections(self) -> list[Connection]:
        return [self.at(self.wire.port)]

    def at(self, port: int) -> Connection:
        connection = self.service.connection("aws")
        extra = {**connection.extra, "endpoint_url": f"http://{LOOPBACK}:{port}"}
        return msgspec.structs.replace(connection, extra=extra)

    async def put(self, bodies: Sequence[bytes], keys: Sequence[str]) -> list[str]:
        """Put records; the ids of their events."""
        ids: list[str] = []
        async with self.kinesis() as kinesis:
            for at in range(0, len(bodies), 500):
                records = [
                    {"Data": body, "PartitionKey": key}
                    for body, key in zip(bodies[at : at + 500], keys[at : at + 500], strict=True)
                ]
                answer = await kinesis.put_records(StreamName=self.name, Records=records)
                assert not answer["FailedRecordCount"], answer
                ids += [f"{made['ShardId']}:{made['SequenceNumber']}" for made in answer["Records"]]
        return ids

    async def produce(self, count: int) -> list[str]:
        bodies = [json.dumps({"n": n}).encode() for n in range(count)]
        return await self.put(bodies, [f"key-{n % 20}" for n in range(count)])


class TestKinesis(Streams, MessageContract, ReaderProcesses, ServerFaults, Unreachable, Missing):
    """A stream of MiniStack."""

    large = 700_000  # of the 1 MB that a record may have; the client warns of larger requests

    @pytest.fixture(autouse=True)
    async def system(self, serve: Callable[[str], Service]) -> AsyncIterator[None]:
        self.service = serve("ministack")
        async with self.stream():
            yield

    async def produce_malformed(self) -> bytes:
        await self.put([b'{"n": '], ["a"])
        return b'{"n": '

    async def produce_large(self, size: int) -> str:
        (made,) = await self.put([json.dumps("x" * size).encode()], ["a"])
        return made

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.put([b"{}"] * len(keys), keys)

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.service.restart)

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [self.at(free_port())]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "stream": f"not-there-{uuid.uuid4()}"}, self.connections()

    async def test_reads_a_stream_by_its_arn(self) -> None:
        """A stream can be named by its ARN."""
        produced = await self.produce(5)
        async with self.kinesis() as kinesis:
            about = await kinesis.describe_stream_summary(StreamName=self.name)
        self.name = about["StreamDescriptionSummary"]["StreamARN"]
        async with self.reading() as reader:
            events = await reader.read(5)
        self.check(events, produced)
        assert {event.source for event in events} == {self.name}


@pytest.fixture(scope="module")
def kinesalite(serve: Callable[[str], Service]) -> Service:
    """One kinesalite for the features that only it has."""
    return serve("kinesalite")


class TestShards(Streams):
    """What happens to shards, over kinesalite."""

    @pytest.fixture(autouse=True)
    async def system(self, kinesalite: Kinesalite) -> AsyncIterator[None]:
        self.service = kinesalite
        self.start = "earliest"
        async with self.stream():
            yield

    def options(self) -> dict[str, Any]:
        return {**super().options(), "start": self.start}

    async def shards(self, *, open_only: bool = True) -> list[dict[str, Any]]:
        """The shards, in the order of their hash keys."""
        async with self.kinesis() as kinesis:
            listed = (await kinesis.list_shards(StreamName=self.name))["Shards"]
        chosen = [
            s for s in listed if not open_only or "EndingSequenceNumber" not in s["SequenceNumberRange"]
        ]
        return sorted(chosen, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    async def split(self, shard: dict[str, Any]) -> None:
        low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        async with self.kinesis() as kinesis:
            middle = str((low + high) // 2)
            await kinesis.split_shard(
                StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle
            )
            await self.active(kinesis)

    async def merge(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        async with self.kinesis() as kinesis:
            await kinesis.merge_shards(
                StreamName=self.name,
                ShardToMerge=first["ShardId"],
                AdjacentShardToMerge=second["ShardId"],
            )
            await self.active(kinesis)

    async def active(self, kinesis: Any) -> None:
        await kinesis.get_waiter("stream_exists").wait(StreamName=self.name, WaiterConfig={"Delay": 1})

    def in_order(self, events: Sequence[Event], key: str) -> list[int]:
        return [event.data["n"] for event in events if event.key == key]

    async def number(self, numbers: range) -> None:
        """Put a record with each number for each of five keys."""
        bodies = [json.dumps({"n": n}).encode() for n in numbers for _ in range(5)]
        await self.put(bodies, [f"key-{k}" for _ in numbers for k in range(5)])

    async def test_reads_children_after_their_parents(self) -> None:
        """Over a split and a merge that happened while nobody read, each key keeps its order."""
        await self.number(range(10))
        for shard in await self.shards():
            await self.split(shard)
        await self.number(range(10, 20))
        first, second, *_ = await self.shards()
        await self.merge(first, second)
        await self.number(range(20, 30))
        async with self.reading() as reader:
            events = await reader.read(150)
        for key in range(5):
            assert self.in_order(events, f"key-{key}") == list(range(30))
        assert len({event.headers["aws.ShardId"] for event in events}) > SHARDS

    async def test_follows_a_reshard_while_it_reads(self) -> None:
        """Shards that a split and a merge make while the stream is read are found and read in order."""
        async with self.reading() as reader:
            await self.number(range(10))
            await reader.read(50)
            for shard in await self.shards():
                await self.split(shard)
            await self.number(range(10, 20))
            await reader.read(100)
            first, second, *_ = await self.shards()
            await self.merge(first, second)
            await self.number(range(20, 30))
            events = await reader.read(150)
        for key in range(5):
            assert self.in_order(events, f"key-{key}") == list(range(30))

    async def test_resumes_after_a_reshard(self) -> None:
        """A cursor from before a reshard goes on with the rest of the parents and then with the children."""
        async with self.reading() as reader:
            await self.number(range(10))
            await reader.read(50)
            cursor = reader.cursor()
        await self.number(range(10, 20))
        for shard in await self.shards():
            await self.split(shard)
        await self.number(range(20, 30))
        async with self.reading(cursor) as reader:
            events = await reader.read(100)
            cursor = reader.cursor()
        for key in range(5):
            assert self.in_order(events, f"key-{key}") == list(range(10, 30))
        async with self.reading(cursor) as reader:
            await self.number(range(30, 31))
            assert {event.data["n"] for event in await reader.read(5)} == {30}

    async def test_starts_at_the_latest(self) -> None:
        """With start='latest' what was there before is left out, and a restart misses nothing since."""
        self.start = "latest"
        await self.number(range(1))
        await self.later()
        async with self.reading() as reader:
            began = await reader.next()
            assert (list(began.events), list(began.dead)) == ([], [])
            await self.number(range(1, 2))
            assert {event.data["n"] for event in await reader.read(5, ack=False)} == {1}
        async with self.reading(began.cursor) as reader:
            assert {event.data["n"] for event in await reader.read(5)} == {1}

    async def test_the_latest_is_remembered_by_the_runner(self) -> None:
        """Through the runner the place where 'latest' began is in the log before any event came."""
        self.start = "latest"
        async with self.running() as through:
            assert through.runner is not None
            key = through.runner.source
            await through.until(lambda: through.log.cursor(key) is not None)
            assert len((through.log.cursor(key) or {})["shards"]) == SHARDS

    async def test_starts_at_a_time(self) -> None:
        """With a time as start, what arrived before it is left out."""
        await self.number(range(1))
        await self.later()
        async with self.reading() as reader:
            (last, *_) = sorted((e.time for e in await reader.read(5) if e.time), reverse=True)
        await self.number(range(1, 2))
        self.start = (last + dt.timedelta(seconds=0.5)).isoformat()
        async with self.reading() as reader:
            assert {event.data["n"] for event in await reader.read(5)} == {1}

    async def later(self) -> None:
        """Wait until the clock that the emulator shows, in whole seconds, has gone on."""
        async with self.kinesis() as kinesis:
            answer = await kinesis.list_streams()
            began = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
            ticks = 0
            while ticks < 2:
                await asyncio.sleep(0.1)
                now = (await kinesis.list_streams())["ResponseMetadata"]["HTTPHeaders"]["date"]
                ticks, began = (ticks + 1, now) if now != began else (ticks, began)

    async def test_keeps_what_a_record_says(self) -> None:
        """Partition key, sequence number, arrival, shard and stream are in the event."""
        (made,) = await self.put([b'{"total": 12}'], ["customer-7"])
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        shard, _, number = made.partition(":")
        assert (event.id, event.key, event.sequence) == (made, "customer-7", number)
        assert event.source.endswith(f":stream/{self.name}")
        assert (event.type, event.data) == ("windsock.kinesis", {"total": 12})
        assert event.headers == {"aws.ShardId": shard}
        assert event.time is not None

    async def test_unpacks_aggregated_records(self) -> None:
        """What the Kinesis Producer Library packed into one record comes as one event each."""
        shards = await self.shards()
        span = shards[0]["HashKeyRange"]
        keys = [f"key-{n}" for n in range(50)]
        mine = [key for key in keys if hash_key(key) <= int(span["EndingHashKey"])]
        (made,) = await self.put([packed([(key, b'{"k": "%b"}' % key.encode()) for key in keys])], [mine[0]])
        async with self.reading() as reader:
            events = await reader.read(len(mine))
        assert [event.key for event in events] == mine
        assert [event.data["k"] for event in events] == mine
        assert [event.id for event in events] == [f"{made}.{keys.index(key)}" for key in mine]


def packed(records: Sequence[tuple[str, bytes]]) -> bytes:
    """A record as the Kinesis Producer Library writes it."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    body = b"".join(field(1, key.encode()) for key, _ in records)
    for index, (_, data) in enumerate(records):
        body += field(3, bytes([1 << 3]) + varint(index) + field(3, data))
    return b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body, usedforsecurity=False).digest()


def varint(number: int) -> bytes:
    low = b""
    while number > 0x7F:
        low += bytes([number & 0x7F | 0x80])
        number >>= 7
    return low + bytes([number])
