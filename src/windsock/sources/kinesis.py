"""Records of an Amazon Kinesis data stream, from all of its shards.

::

    source = KinesisSource(KinesisConfig(conn_id="aws_default", stream="clicks", start="earliest"))
    await source.connect(cursor)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()                     # the position is the delivery's cursor

**Events.** The data is read as ``format`` says. The id is ``<shard>:<sequence number>``, the source the
stream's ARN, the key the partition key, the sequence the sequence number, the time its arrival; the header
``aws.ShardId`` names the shard. Records that the Kinesis Producer Library packed into one are unpacked:
each gets its own key, and its place in the record as the end of its id.

**Guarantee.** At least once, in order for each partition key, also over a reshard: a shard is read when its
parents were read to their end. Everything comes again under the same id.

**Where it resumes.** The cursor in the log has the position in each shard. Where there is none yet,
``start`` decides. With ``start='latest'`` the place where reading began is stored at once, so that a
restart misses nothing. A reader that was away for longer than the stream keeps its records goes on with the
oldest.

**Rate.** Kinesis allows five reads per second and shard, shared by all that read the stream; a shard that
has more is read at most that often, a quiet one less and less often up to ``idle`` seconds. Being throttled
only makes it slower. Enhanced fan-out is not used: the asyncio client cannot subscribe to a shard.

**Lag.** Kinesis tells how many milliseconds a reader is behind, but not how many records; so the lag is
unknown.

**Connection.** Type ``aws``; see :mod:`windsock.sources._aws` for its fields. The user or role needs
``kinesis:DescribeStreamSummary``, ``ListShards``, ``GetShardIterator`` and ``GetRecords``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, parse_time
from windsock.messages import Message, MessageOptions, events_of
from windsock.sources._aws import client, error_code, explained
from windsock.sources._kinesis_aggregate import unpack
from windsock.sources._kinesis_shards import END, HORIZON, LATEST, Shards, at_time, iterator_of
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

__all__ = ["KinesisConfig", "KinesisSource"]

_ARN = re.compile(r"arn:[\w-]+:kinesis:(?P<region>[\w-]+):\d+:stream/(?P<name>[\w.-]+)")
_THROTTLED = frozenset(
    {"ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException"}
)
_FASTEST = 0.2
"""Seconds between two reads of one shard: Kinesis allows five in a second."""
_LONGEST_PAUSE = 10.0
"""Seconds that a throttled reader waits at most."""


class KinesisConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stream to read."""

    stream: Annotated[str, Meta(description="Name or ARN of the data stream.", min_length=1)]
    region: Annotated[
        str | None, Meta(description="Region of the stream; by default that of its ARN or the Connection.")
    ] = None
    start: Annotated[
        str,
        Meta(
            description="Where to begin when nothing was read yet: 'latest', 'earliest' (Kinesis calls it "
            "'trim_horizon'), or a time such as '2026-01-31T00:00:00Z'."
        ),
    ] = "latest"
    interval: Annotated[
        float, Meta(description="Seconds between two reads of a shard that has been read to its end.", ge=0.2)
    ] = 1.0
    idle: Annotated[
        float, Meta(description="Seconds to which that interval grows while a shard stays empty.", ge=0.2)
    ] = 10.0

    def __post_init__(self) -> None:
        _position(self.start)


class KinesisSource(UsesConnection):
    """Reads all shards of one stream."""

    kind: ClassVar[str] = "kinesis"
    config: ClassVar[type[KinesisConfig]] = KinesisConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        position="log",
        lag=False,
        tested="MiniStack and kinesalite (emulators)",
        notes="Kinesis tells the milliseconds that a reader is behind, not the records.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"interval", "idle"})

    def __init__(self, config: KinesisConfig) -> None:
        self.options = config
        self._stack = AsyncExitStack()
        self._stream: _Stream | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        arn = _ARN.fullmatch(self.options.stream)
        region = self.options.region or (arn["region"] if arn else None)
        kinesis = await self._stack.enter_async_context(
            client("kinesis", await self.connection(), region=region)
        )
        name = {"StreamARN": self.options.stream} if arn else {"StreamName": self.options.stream}
        stream = _Stream(kinesis, name, self.options)
        await stream.open(cursor)
        self._stream = stream

    async def read(self) -> AsyncIterator[Delivery]:
        stream = self._stream
        if stream is None:
            raise SourceError(f"Kinesis stream {self.options.stream!r} is not connected: call connect first")
        if stream.waiting_for_news:
            yield Delivery([], cursor=stream.shards.cursor())
        stream.start()
        while (got := await stream.take()) is not None:
            for delivery in self._deliveries(stream, *got):
                yield delivery

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()
        await self._stack.aclose()

    def _deliveries(
        self, stream: _Stream, shard: str, records: Sequence[Mapping[str, Any]]
    ) -> Iterator[Delivery]:
        """What one read of a shard brought, in parts of the allowed size.

        A part has a cursor if it ends with a whole record; one record may have more than fits.
        """
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for record in records:
            messages = _messages(shard, record, stream.shards)
            more, unread = events_of(messages, self.options, source=stream.arn, kind=self.kind)
            if events and len(events) + len(more) > MAX_DELIVERY:
                yield Delivery(events, cursor=stream.shards.cursor(), dead=dead)
                events, dead = [], []
            events, dead = events + more, dead + unread
            while len(events) > MAX_DELIVERY:
                yield Delivery(events[:MAX_DELIVERY], dead=dead)
                events, dead = events[MAX_DELIVERY:], []
            stream.shards.read(shard, record["SequenceNumber"])
        if events or dead:
            yield Delivery(events, cursor=stream.shards.cursor(), dead=dead)


class _Stream:
    """One connection to a stream: from ``connect`` to ``close``."""

    def __init__(self, client: Any, name: Mapping[str, str], options: KinesisConfig) -> None:
        self._client, self._name, self._options = client, name, options
        self._arrived: asyncio.Queue[_Arrival | Exception | None] = asyncio.Queue(2)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._iterators: dict[str, str] = {}
        self._closed = False
        self.shards = Shards(None, LATEST, 0.0)
        self.arn = ""
        self.waiting_for_news = False
        """Whether it has just begun at the latest record, a place that no cursor names yet."""

    async def open(self, cursor: Cursor | None) -> None:
        """Find the shards and take position in those that can be read."""
        with self._explained():
            about = await self._client.describe_stream_summary(**self._name)
            self.arn = about["StreamDescriptionSummary"]["StreamARN"]
            now = parsedate_to_datetime(about["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
            start = _position(self._options.start)
            self.shards = Shards(cursor, start, now)
            self.waiting_for_news = cursor is None and start == LATEST
            self.shards.listed(await self._list())
            waiting = dict(self.shards.readable())
            found = await asyncio.gather(*(self._iterator(*each) for each in waiting.items()))
        self._iterators = dict(zip(waiting, found, strict=True))

    def start(self) -> None:
        """Follow every shard whose turn it is and that is not followed yet."""
        positions = self.shards.cursor()["shards"]
        for shard, _ in self.shards.readable():
            if shard not in self._tasks:
                work = self._follow(shard, positions[shard], self._iterators.pop(shard, None))
                self._tasks[shard] = asyncio.create_task(self._report(work), name=f"windsock-{shard}")

    async def take(self) -> tuple[str, list[Any]] | None:
        """A shard and the records that came from it; None, once it is closed."""
        while not self._closed:
            arrived = await self._arrived.get()
            if isinstance(arrived, Exception):
                raise arrived
            if arrived is not None and arrived.records:
                return arrived.shard, arrived.records
            if arrived is not None:
                self.shards.read(arrived.shard, END)
                with self._explained():
                    self.shards.listed(await self._list())
                self.start()
        return None

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        while not self._arrived.empty():
            self._arrived.get_nowait()
        self._arrived.put_nowait(None)

    async def _report(self, work: Awaitable[None]) -> None:
        """Hand the error that ended the work to whoever takes."""
        try:
            with self._explained():
                await work
        except Exception as error:  # noqa: BLE001 - a shard that is left unheard is a reader that hangs
            await self._arrived.put(error)

    async def _follow(self, shard: str, position: str, iterator: str | None) -> None:
        """Read one shard to its end, if it has one."""
        pause = self._options.interval
        while True:
            try:
                iterator = iterator or await self._iterator(shard, position)
                answer = await self._client.get_records(ShardIterator=iterator, Limit=MAX_DELIVERY)
            except Exception as error:
                code = error_code(error)
                if code == "ResourceNotFoundException" and not await self._listed(shard):
                    break
                if code in _THROTTLED:
                    pause = min(max(pause, 1.0) * 2, _LONGEST_PAUSE)
                elif code == "ExpiredIteratorException":
                    iterator, pause = None, _FASTEST
                else:
                    raise
            else:
                records, iterator = answer["Records"], answer.get("NextShardIterator")
                if records:
                    position = records[-1]["SequenceNumber"]
                    await self._arrived.put(_Arrival(shard, records))
                if iterator is None:
                    break
                pause = self._pause(pause, bool(records), answer.get("MillisBehindLatest") or 0)
            await asyncio.sleep(pause)
        await self._arrived.put(_Arrival(shard, []))

    def _pause(self, last: float, found: bool, behind: int) -> float:
        """Seconds until the next read of a shard."""
        if behind:
            return _FASTEST
        return self._options.interval if found else min(last * 1.5, self._options.idle)

    async def _iterator(self, shard: str, position: str) -> str:
        answer = await self._client.get_shard_iterator(**self._name, ShardId=shard, **iterator_of(position))
        return str(answer["ShardIterator"])

    async def _list(self) -> list[Mapping[str, Any]]:
        shards: list[Mapping[str, Any]] = []
        page: Mapping[str, str] = self._name
        while page:
            answer = await self._client.list_shards(**page)
            shards += answer["Shards"]
            page = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
        return shards

    async def _listed(self, shard: str) -> bool:
        return any(each["ShardId"] == shard for each in await self._list())

    def _explained(self) -> Any:
        return explained(f"Kinesis stream {self._options.stream!r}", self._options.conn_id)


class _Arrival(msgspec.Struct, frozen=True):
    """Records of one shard; none, when it has come to its end."""

    shard: str
    records: list[Any]


def _messages(shard: str, record: Mapping[str, Any], shards: Shards) -> list[Message]:
    """The message of a record, or those that were packed into it."""
    number, arrival = record["SequenceNumber"], record.get("ApproximateArrivalTimestamp")

    def message(body: bytes, key: str, place: str = "") -> Message:
        return Message(
            body=body,
            id=f"{shard}:{number}{place}",
            headers={"aws.ShardId": shard},
            key=key,
            time=arrival,
            sequence=f"{number}{place}",
        )

    packed = unpack(record["Data"])
    if packed is None:
        return [message(record["Data"], record["PartitionKey"])]
    # After a reshard the producer sends again what belongs to another shard than its record went to.
    return [
        message(each.data, each.key, f".{place}")
        for place, each in enumerate(packed)
        if shards.owns(shard, each.hash)
    ]


def _position(start: str) -> str:
    """The position that an option names."""
    if start in (LATEST, "LATEST"):
        return LATEST
    if start.lower() in ("earliest", "trim_horizon"):
        return HORIZON
    try:
        moment = parse_time(start)
    except InvalidEvent:
        moment = None
    if moment is None:
        raise ValueError(f"start {start!r} is neither 'latest', 'earliest' nor a time: correct it")
    return at_time(moment.timestamp())
