"""Entries of Redis streams, read as a member of a consumer group.

::

    source = RedisStreamSource(RedisStreamConfig(conn_id="redis_default", stream="orders", field="data"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()

**Events.** Type ``windsock.redis_stream``, source ``redis://<conn_id>/<stream>``, id the entry's id, time
the moment in it, subject the stream. Without ``field`` every field of the entry is a member of ``data``,
as text (in base64 if it is not UTF-8). With ``field`` that one is the body, read as ``format`` says, and
the others become headers; an entry without it is a dead letter.

**Guarantee.** At least once, in the order of the stream. XACK is sent after the log's commit, and with
``delete`` XDEL with it.

**Where it resumes.** The group in Redis keeps the position; it is made if it is missing, at ``start``. All
readers are one consumer of the group, since only the owner of the source's lease reads: the next owner
begins with what the last one took and did not ack. What *another* consumer of the group took and left is
claimed after ``claim_after`` seconds, and comes late. Entries that were deleted or trimmed before they
were read are gone: a warning counts them.

**Connection.** Type ``redis`` as in Airflow's provider: host, port (6379), login (an ACL user), password,
and in the extras ``db``, ``ssl``, ``ssl_cert_reqs``, ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``
and ``ssl_check_hostname``; type ``rediss`` means TLS as well. The user needs XREADGROUP, XACK, XAUTOCLAIM,
XGROUP, XINFO and XRANGE, and for ``delete`` XDEL. Redis 6.2 or newer.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import Event, InvalidEvent, SourceError
from windsock.messages import Message, MessageOptions, events_of, unreadable
from windsock.sources._ending import Ended, Ending
from windsock.sources._redis import open_client, speaking
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisStreamConfig", "RedisStreamSource"]

logger = logging.getLogger(__name__)

Entry = tuple[bytes, dict[bytes, bytes]]

_BLOCK = 10.0
"""Seconds that one read waits for new entries."""
_COUNTED = 2_000
"""The most waiting entries that are counted, where Redis does not know their number: it has no answer to that
but the entries themselves, each as dear as one that is read."""
_STARTS = {"earliest": "0", "latest": "$"}


class RedisStreamConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which streams to read, and as whom."""

    stream: Annotated[
        Annotated[str, Meta(min_length=1)] | Annotated[tuple[str, ...], Meta(min_length=1)],
        Meta(description="The stream's key, or a list of several."),
    ]
    group: Annotated[str, Meta(description="The consumer group, which keeps the position.", min_length=1)] = (
        "windsock"
    )
    consumer: Annotated[
        str,
        Meta(
            description="The name in the group under which every reader of this source works.", min_length=1
        ),
    ] = "windsock"
    start: Annotated[
        str,
        Meta(
            description="Where a new group begins: 'earliest' (what the stream holds), 'latest' (what comes "
            "from now on), or behind the entry of an id such as '1731672000000-0'.",
            pattern=r"^(earliest|latest|\d+(-\d+)?)$",
        ),
    ] = "earliest"
    create: Annotated[
        bool,
        Meta(description="Make a stream that does not exist, empty, instead of reporting an error."),
    ] = False
    field: Annotated[
        str | None,
        Meta(description="The field that holds the message; by default all fields together are the data."),
    ] = None
    claim_after: Annotated[
        float,
        Meta(
            description="Seconds after which entries that a consumer of the group took and never acked are "
            "claimed; 0 to leave them.",
            ge=0,
        ),
    ] = 60.0
    delete: Annotated[
        bool, Meta(description="Delete entries from the stream when they are acked; other groups miss them.")
    ] = False

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams' keys."""
        return (self.stream,) if isinstance(self.stream, str) else self.stream


class RedisStreamSource(UsesConnection):
    """Reads streams of a Redis server."""

    kind: ClassVar[str] = "redis_stream"
    config: ClassVar[type[RedisStreamConfig]] = RedisStreamConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        tested="Redis 6.2 and 7.0",
        notes="Ordered within a stream. Entries claimed from another consumer of the group come late. Where "
        "Redis does not know the lag (6.2, or after deletions), only some 2,000 waiting entries are counted.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"claim_after", "create"})

    def __init__(self, config: RedisStreamConfig) -> None:
        self.options = config
        self._group: _Group | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        group = _Group(self.options, await self.connection())
        try:
            await group.ending.first(group.join())
        except BaseException:
            await group.leave()
            raise
        self._group = group

    async def read(self) -> AsyncIterator[Delivery]:
        group = self._group
        if group is None:
            raise SourceError("Redis streams are not being read: call connect first")
        try:
            async for stream, entries in group.entries():
                yield self.delivery(
                    stream, entries, partial(_acked, group, stream, [entry for entry, _ in entries])
                )
        except Ended:
            return

    async def lag(self) -> int | None:
        group = self._group
        try:
            return await group.ending.first(group.lag()) if group else None
        except Ended:
            return None

    async def close(self) -> None:
        group, self._group = self._group, None
        if group:
            await group.leave()

    def delivery(self, stream: str, entries: Sequence[Entry], ack: Callable[[], Awaitable[None]]) -> Delivery:
        """The events of these entries, and dead letters for those that are none."""
        source = f"redis://{self.options.conn_id}/{stream}"
        # A pending entry that is gone has no fields; an entry that is there has at least one.
        present = [(entry.decode(), fields) for entry, fields in entries if fields]
        if len(present) < len(entries):
            logger.warning(
                "windsock.redis.trimmed stream=%s entries=%d: deleted before they were read; "
                "let the stream keep more than its readers are behind",
                stream,
                len(entries) - len(present),
            )
        if self.options.field is None:
            return Delivery(
                [self._whole(source, stream, entry, fields) for entry, fields in present], ack=ack
            )
        name, messages, dead = self.options.field.encode(), [], []
        for entry, fields in present:
            body = fields.pop(name, None)
            if body is None:
                lacks = InvalidEvent(f"the entry has no field {self.options.field!r}: correct 'field'")
                dead.append(unreadable(repr(fields).encode(), lacks, where=entry))
                continue
            headers = {_text(name): value for name, value in fields.items()}
            messages.append(
                Message(body=body, id=entry, headers=headers, subject=stream, time=_moment(entry))
            )
        events, unread = events_of(messages, self.options, source=source, kind=self.kind)
        return Delivery(events, ack=ack, dead=[*dead, *unread])

    def _whole(self, source: str, stream: str, entry: str, fields: dict[bytes, bytes]) -> Event:
        return Event.make(
            {_text(name): _plain(value) for name, value in fields.items()},
            id=entry,
            source=source,
            type=self.options.type or f"windsock.{self.kind}",
            subject=stream,
            time=_moment(entry),
        )


async def _acked(group: _Group, stream: str, ids: Sequence[bytes]) -> None:
    await group.ending.first(group.ack(stream, ids))


class _Group:
    """Our membership in the consumer group, from ``connect`` to ``close``."""

    def __init__(self, options: RedisStreamConfig, connection: Connection) -> None:
        self._options = options
        self._connection = connection
        self._client: Redis = open_client(connection)
        self.ending = Ending()
        self._held: dict[str, set[bytes]] = {stream: set() for stream in options.streams}

    async def join(self) -> None:
        """Make the group on each stream, unless it is there."""
        from redis.exceptions import ResponseError

        start = _STARTS.get(self._options.start, self._options.start)
        with speaking(self._connection):
            for stream in self._options.streams:
                try:
                    await self._client.xgroup_create(
                        stream, self._options.group, start, mkstream=self._options.create
                    )
                except ResponseError as error:
                    if "requires the key to exist" in str(error):
                        raise SourceError(
                            f"stream {stream!r} does not exist in {self._connection.conn_id!r}: add its "
                            "first entry, correct the name, or set create=True"
                        ) from error
                    if str(error).startswith("WRONGTYPE"):
                        raise SourceError(
                            f"{stream!r} in {self._connection.conn_id!r} is no stream: correct the name"
                        ) from error
                    if not str(error).startswith("BUSYGROUP"):
                        raise

    async def entries(self) -> AsyncIterator[tuple[str, list[Entry]]]:
        """What was taken and not acked before, then what is new, and now and then what others left."""
        for stream in self._options.streams:
            after: bytes | str = "0"
            while took := await self._read({stream: after}):
                entries = took[0][1]
                if not entries:
                    break
                after = entries[-1][0]
                yield self._take(stream, entries)
        due = time.monotonic() if self._options.claim_after else math.inf
        while True:
            if time.monotonic() >= due:
                for stream in self._options.streams:
                    async for entries in self._claim(stream):
                        yield self._take(stream, entries)
                due = time.monotonic() + max(self._options.claim_after / 2, 1.0)
            wait = min(_BLOCK, max(due - time.monotonic(), 0.001))
            for name, entries in await self._read(dict.fromkeys(self._options.streams, ">"), wait):
                yield self._take(_text(name), entries)

    async def ack(self, stream: str, ids: Sequence[bytes]) -> None:
        """Confirm these entries."""
        with speaking(self._connection):
            if self._options.delete:
                async with self._client.pipeline(transaction=True) as pipeline:
                    pipeline.xack(stream, self._options.group, *ids)
                    pipeline.xdel(stream, *ids)
                    await pipeline.execute()
            else:
                await self._client.xack(stream, self._options.group, *ids)
        self._held[stream].difference_update(ids)

    async def lag(self) -> int | None:
        """What waits in the streams for this group, delivered and not acked included."""
        from redis.exceptions import NoPermissionError

        waiting = 0
        with speaking(self._connection):
            try:
                for stream in self._options.streams:
                    for group in await self._client.xinfo_groups(stream):
                        if _text(group["name"]) == self._options.group:
                            unread = group.get("lag")  # Redis 7, if nothing was deleted in between
                            if unread is None:
                                unread = await self._count(stream, _text(group["last-delivered-id"]))
                            waiting += unread + group["pending"]
            except NoPermissionError:
                return None
        return waiting

    async def leave(self) -> None:
        """Let go of the server."""
        self.ending.end()
        await self._client.aclose()

    async def _read(
        self, after: dict[str, Any], wait: float | None = None
    ) -> list[tuple[bytes, list[Entry]]]:
        from redis.exceptions import ResponseError

        group, consumer = self._options.group, self._options.consumer
        block = None if wait is None else max(int(wait * 1000), 1)
        command = self._client.xreadgroup(group, consumer, after, count=MAX_DELIVERY, block=block)
        with speaking(self._connection):
            try:
                found: list[tuple[bytes, list[Entry]]] = await self.ending.first(command)
            except ResponseError as error:
                if str(error).startswith("NOGROUP"):
                    raise SourceError(
                        f"the group {group!r} or its stream was deleted while it was read: it is made "
                        f"again at {self._options.start!r}; check that nothing is missing"
                    ) from error
                raise
        return found

    async def _claim(self, stream: str) -> AsyncIterator[list[Entry]]:
        """Take over what was left for too long, page by page, except for what we still hold ourselves."""
        idle, start = int(self._options.claim_after * 1000), b"0-0"
        while True:
            command = self._client.xautoclaim(
                stream, self._options.group, self._options.consumer, idle, start, count=MAX_DELIVERY
            )
            with speaking(self._connection):
                found = await self.ending.first(command)
            # Redis 6.2 shows a deleted entry as nothing at all.
            entries = [
                entry for entry in found[1] if entry[0] is not None and entry[0] not in self._held[stream]
            ]
            if entries:
                yield entries
            start = found[0]
            if start == b"0-0":
                return

    async def _count(self, stream: str, after: str) -> int:
        """How many entries come after this one, as far as is worth counting."""
        counted = 0
        while counted < _COUNTED:
            found = await self._client.xrange(stream, f"({after}", count=MAX_DELIVERY)
            counted += len(found)
            if len(found) < MAX_DELIVERY:
                break
            after = _text(found[-1][0])
        return counted

    def _take(self, stream: str, entries: list[Entry]) -> tuple[str, list[Entry]]:
        self._held[stream].update(entry for entry, _ in entries)
        return stream, entries


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


def _plain(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _moment(entry: str) -> float:
    """The time in an entry's id, in seconds."""
    return int(entry.partition("-")[0]) / 1000
