"""Kinesis records as events, the order of shards, and what the reader does when Kinesis says no."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import SourceError, WindsockError
from windsock.messages import events_of
from windsock.sources import _kinesis_aggregate as aggregate
from windsock.sources import kinesis as module
from windsock.sources import make_source, source_key
from windsock.sources._kinesis_shards import END, HORIZON, LATEST, Shards, at_time, iterator_of
from windsock.sources.base import MAX_DELIVERY
from windsock.sources.kinesis import KinesisConfig, KinesisSource, _messages, _Stream

CORPUS = Path(__file__).parents[2] / "corpora" / "aws"
OPTIONS = KinesisConfig(conn_id="aws", stream="clicks", start="earliest", interval=0.2, idle=0.2)


def shard(name: str, *parents: str, closed: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"ShardId": name, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
    if closed:
        made["SequenceNumberRange"]["EndingSequenceNumber"] = "9"
    made |= dict(zip(("ParentShardId", "AdjacentParentShardId"), parents, strict=False))
    return made


def shards(*listed: dict[str, Any], cursor: Any = None, start: str = HORIZON) -> Shards:
    made = Shards(cursor, start, 100.0)
    made.listed(listed)
    return made


def test_children_wait_for_their_parents() -> None:
    """A shard is read when both of its parents were read to the end."""
    known = shards(shard("a", closed=True), shard("b", closed=True), shard("c", "a", "b"))
    assert dict(known.readable()) == {"a": HORIZON, "b": HORIZON}
    known.read("a", END)
    assert dict(known.readable()) == {"b": HORIZON}
    known.read("b", END)
    assert dict(known.readable()) == {"c": HORIZON}


def test_a_parent_that_is_gone_is_not_waited_for() -> None:
    """A parent whose records have all expired is not listed any more, and holds nobody up."""
    assert dict(shards(shard("c", "a", "b")).readable()) == {"c": HORIZON}


def test_latest_leaves_out_what_is_closed() -> None:
    """From the latest on, only open shards are read, and the cursor says when that was."""
    known = shards(shard("a", closed=True), shard("c", "a"), start=LATEST)
    assert dict(known.readable()) == {"c": LATEST}
    assert known.cursor() == {"shards": {"a": END, "c": at_time(100.0)}}


def test_a_shard_that_was_born_since_is_read_whole() -> None:
    """Whatever the start option says, a shard that a cursor does not know is all news."""
    cursor = {"shards": {"a": "7", "gone": END}}
    known = shards(shard("a", closed=True), shard("c", "a"), cursor=cursor, start=LATEST)
    assert dict(known.readable()) == {"a": "7"}
    known.read("a", END)
    assert dict(known.readable()) == {"c": HORIZON}
    assert known.cursor() == {"shards": {"a": END, "c": HORIZON}}


def test_positions_as_iterators() -> None:
    """Each kind of position asks Kinesis for its kind of iterator."""
    assert iterator_of(HORIZON) == {"ShardIteratorType": "TRIM_HORIZON"}
    assert iterator_of(LATEST) == {"ShardIteratorType": "LATEST"}
    after = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": "7"}
    assert iterator_of("7") == after
    moment = dt.datetime(1970, 1, 1, 0, 1, 40, tzinfo=dt.UTC)
    assert iterator_of(at_time(100.0)) == {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}


def test_real_records() -> None:
    """The records that AWS publishes as an example, with their ids as AWS Lambda names them."""
    records = json.loads((CORPUS / "kinesisStreamEvent.json").read_bytes())["Records"]
    options = KinesisConfig(conn_id="aws", stream="lambda-stream", format="text")
    for record in records:
        given = record["kinesis"]
        raw = {
            "SequenceNumber": given["sequenceNumber"],
            "PartitionKey": given["partitionKey"],
            "Data": base64.b64decode(given["data"]),
            "ApproximateArrivalTimestamp": given["approximateArrivalTimestamp"],
        }
        name, _, _ = record["eventID"].partition(":")
        messages = _messages(name, raw, shards(shard(name)))
        (event,), dead = events_of(messages, options, source=record["eventSourceARN"], kind="kinesis")
        assert (event.id, event.key, dead) == (record["eventID"], "1", [])
        assert (event.sequence, event.data) == (given["sequenceNumber"], raw["Data"].decode())


@given(data=st.binary(max_size=60))
def test_any_bytes_in_a_record(data: bytes) -> None:
    """Whatever a record holds, plain or as if it were packed, it is read or becomes a dead letter."""
    body = hashlib.md5(data, usedforsecurity=False).digest()
    for variant in (data, b"\xf3\x89\x9a\xc2" + data, b"\xf3\x89\x9a\xc2" + data + body):
        raw = {"SequenceNumber": "1", "PartitionKey": "k", "Data": variant}
        events_of(_messages("s", raw, shards(shard("s"))), OPTIONS, source="x", kind="kinesis")


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def packed(body: bytes) -> bytes:
    return b"\xf3\x89\x9a\xc2" + body + hashlib.md5(body, usedforsecurity=False).digest()


def test_unpacks_an_aggregated_record() -> None:
    """Keys, explicit hash keys and data come out, and fields that are not known are passed over."""
    body = field(1, b"a") + field(1, b"b") + field(2, b"42")
    body += field(3, b"\x08\x00" + field(3, b"one") + field(4, b"tag"))
    body += field(3, b"\x08\x01\x10\x00" + field(3, b"two")) + b"\x48\x07"
    one, two = aggregate.unpack(packed(body)) or []
    assert (one.key, one.data, one.hash) == ("a", b"one", aggregate.hash_key("a"))
    assert (two.key, two.data, two.hash) == ("b", b"two", 42)


@pytest.mark.parametrize(
    "body",
    [
        field(3, b"\x08\x05" + field(3, b"no such key")),
        field(3, field(3, b"no key at all")),
        field(1, b"\xff"),
        field(2, b"no number"),
        b"\x0b",
        b"\x0a\x7fcut",
        b"\xff" * 12,
    ],
)
def test_a_record_that_only_looks_aggregated(body: bytes) -> None:
    """What has the mark and the digest but not the form is taken as a plain record."""
    assert aggregate.unpack(packed(body)) is None
    assert aggregate.unpack(packed(body)[:-1] + b"?") is None


@pytest.mark.parametrize("start", ["newest", "", "2026-13-45"])
def test_wrong_start(start: str) -> None:
    """A start that is no position is refused with the remedy."""
    with pytest.raises(WindsockError, match="neither 'latest', 'earliest' nor a time"):
        make_source("kinesis", {"conn_id": "aws", "stream": "clicks", "start": start})


def test_tuning_keeps_the_reader() -> None:
    """Another interval keeps the position, another start does not."""
    plain = {"conn_id": "aws", "stream": "clicks"}
    assert source_key("kinesis", {**plain, "interval": 5, "idle": 9}) == source_key("kinesis", plain)
    assert source_key("kinesis", {**plain, "start": "earliest"}) != source_key("kinesis", plain)


class Kinesis:
    """One shard with answers that are given to it; waits when it has none left."""

    def __init__(self, *answers: Any) -> None:
        self.answers = deque(answers)
        self.iterators: list[dict[str, Any]] = []
        self.listed = [shard("s")]

    async def describe_stream_summary(self, **_: Any) -> dict[str, Any]:
        return {
            "StreamDescriptionSummary": {"StreamARN": "arn:aws:kinesis:eu-west-1:1:stream/clicks"},
            "ResponseMetadata": {"HTTPHeaders": {"date": "Sun, 15 Nov 2026 12:00:00 GMT"}},
        }

    async def list_shards(self, **page: Any) -> dict[str, Any]:
        first, *rest = self.listed
        if "NextToken" in page:
            return {"Shards": rest}
        return {"Shards": [first], **({"NextToken": "more"} if rest else {})}

    async def get_shard_iterator(self, **asked: Any) -> dict[str, Any]:
        self.iterators.append(asked)
        return {"ShardIterator": f"it-{len(self.iterators)}"}

    async def get_records(self, **_: Any) -> dict[str, Any]:
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if isinstance(answer, str):
            raise ClientError({"Error": {"Code": answer, "Message": "no"}}, "GetRecords")
        return dict(answer)


def records(*numbers: int, data: bytes = b"{}", **more: Any) -> dict[str, Any]:
    made = [{"SequenceNumber": str(n), "PartitionKey": "k", "Data": data} for n in numbers]
    return {"Records": made, "NextShardIterator": "next", "MillisBehindLatest": 0, **more}


@asynccontextmanager
async def opened(kinesis: Kinesis, options: KinesisConfig = OPTIONS) -> AsyncIterator[KinesisSource]:
    source = KinesisSource(options)
    stream = _Stream(kinesis, {"StreamName": "clicks"}, options)
    async with asyncio.timeout(20):
        await stream.open(None)
        source._stream = stream
        try:
            yield source
        finally:
            await source.close()


async def ids(source: KinesisSource, count: int) -> list[str]:
    found: list[str] = []
    async for delivery in source.read():
        found += [event.id for event in delivery.events]
        if len(found) >= count:
            break
    return found


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the reader makes, which take no time."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return pauses


async def test_throttling_only_slows_it_down(unhurried: Sequence[float]) -> None:
    """A reader that is throttled waits longer each time, and goes on where it was."""
    no = "ProvisionedThroughputExceededException"
    async with opened(Kinesis(records(1), no, no, no, no, records(2))) as source:
        assert await ids(source, 2) == ["s:1", "s:2"]
    assert list(unhurried[:5]) == [0.2, 2.0, 4.0, 8.0, 10.0]


async def test_reads_at_most_five_times_a_second(unhurried: Sequence[float]) -> None:
    """Behind the end of a shard it reads as often as Kinesis allows, and never more often."""
    answers = [records(n, MillisBehindLatest=5) for n in range(5)]
    async with opened(Kinesis(*answers, records(5))) as source:
        await ids(source, 6)
    assert list(unhurried[:5]) == [0.2] * 5


async def test_an_expired_iterator_is_renewed(unhurried: Sequence[float]) -> None:
    """After an iterator has expired, reading goes on behind the last record that came."""
    kinesis = Kinesis(records(7), "ExpiredIteratorException", records(8))
    async with opened(kinesis) as source:
        assert await ids(source, 2) == ["s:7", "s:8"]
    assert [asked.get("StartingSequenceNumber") for asked in kinesis.iterators] == [None, "7"]


async def test_a_shard_that_is_gone_has_ended(unhurried: Sequence[float]) -> None:
    """A shard that is not listed any more is done with; if it is still listed, the error is raised."""
    kinesis = Kinesis("ResourceNotFoundException", records(1))
    async with opened(kinesis) as source:
        kinesis.listed = [shard("t", "s")]
        assert await ids(source, 1) == ["t:1"]
    async with opened(Kinesis("ResourceNotFoundException")) as source:
        with pytest.raises(SourceError, match="Kinesis stream 'clicks' does not exist"):
            await ids(source, 1)


async def test_a_quiet_shard_is_asked_less_often(unhurried: Sequence[float]) -> None:
    """The interval grows while nothing comes, up to the idle time, and falls back when something does."""
    options = KinesisConfig(conn_id="aws", stream="clicks", start="earliest", interval=1, idle=3)
    async with opened(Kinesis(*[records()] * 4, records(1), records(2)), options=options) as source:
        await ids(source, 2)
    assert list(unhurried[:5]) == [1.5, 2.25, 3, 3, 1]


async def test_pages_of_shards(unhurried: Sequence[float]) -> None:
    """Every page of the list of shards is read."""
    kinesis = Kinesis()
    kinesis.listed = [shard("a"), shard("b"), shard("c")]
    async with opened(kinesis):
        assert [asked["ShardId"] for asked in kinesis.iterators] == ["a", "b", "c"]


async def test_a_record_with_more_than_fits(unhurried: Sequence[float]) -> None:
    """Parts of one record have no cursor, so that it comes again whole unless its last part was stored."""
    inner = field(3, b"\x08\x00" + field(3, b"{}"))
    many = packed(field(1, b"k") + inner * (MAX_DELIVERY * 2 + 5))
    async with opened(Kinesis(records(1), records(2, data=many), records(3))) as source:
        stream = source.read()
        deliveries = [await anext(stream) for _ in range(5)]
    assert [len(each.events) for each in deliveries] == [1, MAX_DELIVERY, MAX_DELIVERY, 5, 1]
    places = [each.cursor and each.cursor["shards"]["s"] for each in deliveries]
    assert places == ["1", None, None, "2", "3"]
