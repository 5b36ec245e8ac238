"""Server-sent events: a stream over HTTP that a server keeps open (``text/event-stream``).

::

    source = SseSource(SseConfig(conn_id="shop_api", endpoint="v1/stream", events=("order.created",)))
    await source.connect(None)                           # a refused or wrong stream is told here
    async for delivery in source.read():
        print([(event.type, event.data) for event in delivery.events])
        await delivery.ack()

**Events.** The name of a server's event is the type (``windsock.sse`` for those without one), its data the
data, read as ``format`` says; CloudEvents are recognised. Comments and keepalives are only signs of life.

**Guarantee.** At least once, in order, as far as the server keeps what it has sent: after a break it is asked
to go on behind the last id (``Last-Event-ID``). What a server without ids sends while nobody listens is lost.

**Where it resumes.** The cursor is the last event id. **Id.** The server's id of the event; an event without
one after another that has is counted from there; in a stream without ids every event is new.

**Reconnects.** When the server ends the stream, after the time that it asked for (``retry:``) or
``reconnect``; when the connection breaks or nothing at all comes for ``silence``, as an error, with backoff.

**The Connection** is described in :mod:`windsock.sources._http_client`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, ClassVar

import httpx
import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources._http_client import FAILURES, Closed, HttpClient, shown, unless_closed
from windsock.sources._sse_stream import EventStream, ServerEvent
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

__all__ = ["SseConfig", "SseSource"]

logger = logging.getLogger(__name__)

_MEDIA_TYPE = "text/event-stream"
_LONGEST_RETRY = 300.0


class SseConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stream to read."""

    endpoint: Annotated[str, Meta(description="Path on the Connection's host, such as `v1/stream`.")] = ""
    params: Annotated[
        dict[str, str], Meta(description="Query parameters. Secret ones belong into the Connection.")
    ] = {}
    headers: Annotated[
        dict[str, str], Meta(description="Headers to send. Secret ones belong into the Connection.")
    ] = {}
    events: Annotated[
        tuple[str, ...],
        Meta(description="Names of the server's events that are wanted; all when empty."),
    ] = ()
    start_id: Annotated[
        str | None,
        Meta(
            description="The id to begin behind the very first time. Without one the server decides, mostly "
            "for what comes from now on."
        ),
    ] = None
    reconnect: Annotated[
        float,
        Meta(description="Seconds before a stream that ended is opened again, unless the server says.", ge=0),
    ] = 3.0
    silence: Annotated[
        float,
        Meta(
            description="Seconds without a sign of life, keepalives included, after which the connection is "
            "taken for dead.",
            gt=0,
        ),
    ] = 300.0
    max_body: Annotated[
        int, Meta(description="Largest event in bytes; a larger one becomes a dead letter.", ge=1)
    ] = 20_000_000


class SseSource(UsesConnection):
    """Reads a stream of server-sent events."""

    kind: ClassVar[str] = "sse"
    config: ClassVar[type[SseConfig]] = SseConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        position="log",
        once="with id",
        lag=False,
        tested="an HTTP server that keeps its events",
        notes="Needs a server that gives ids and goes on behind the Last-Event-ID; else what it sends while "
        "nobody listens is lost.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"reconnect", "silence", "max_body"})

    def __init__(self, config: SseConfig) -> None:
        self.options = config
        self._stream: _Stream | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        client = await HttpClient.open(await self.connection(), self.options.headers)
        stream = _Stream(self.options, client, cursor)
        try:
            await stream.open()
        except BaseException:
            await stream.close()
            raise
        self._stream = stream

    async def read(self) -> AsyncIterator[Delivery]:
        stream = self._stream
        if stream is None:
            raise SourceError("the stream is not open: call connect first")
        try:
            while True:
                async for delivery in stream.deliveries():
                    yield delivery
                await stream.reopen()
        except Closed:
            return

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream:
            await stream.close()


class _Stream:
    """From ``connect`` to ``close``: one open response at a time."""

    def __init__(self, options: SseConfig, client: HttpClient, cursor: Cursor | None) -> None:
        self._options = options
        self._client = client
        self._url = client.url(options.endpoint, options.params)
        self._source = shown(self._url)
        known = cursor or {}
        self._last_id: str = known.get("id") or options.start_id or ""
        self._since = 0
        """Events that came without an id of their own since the last id."""
        self._retry = options.reconnect
        self._named: dict[str, SseConfig] = {}
        self._closed = asyncio.Event()
        self._open = AsyncExitStack()
        self._response: httpx.Response | None = None

    async def open(self) -> None:
        """Ask for the stream, behind the last id; raises SourceError if it is none."""
        headers = {"Accept": _MEDIA_TYPE, "Cache-Control": "no-store"}
        if self._last_id and self._last_id.isprintable():
            headers["Last-Event-ID"] = self._last_id
        self._since = 0
        response = await self._open.enter_async_context(
            self._client.stream(self._url, headers, read_timeout=self._options.silence)
        )
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != httpx.codes.OK or kind != _MEDIA_TYPE:
            what = f"HTTP {response.status_code}" if not kind else f"HTTP {response.status_code}, {kind}"
            raise SourceError(
                f"{self._source} is no event stream now ({what}): check the endpoint, and that the server "
                f"answers with {_MEDIA_TYPE}"
            )
        self._response = response

    async def reopen(self) -> None:
        """The server ended the stream: open it again after a while."""
        await self._open.aclose()
        logger.info("windsock.sse.ended url=%s retry_in=%.1fs", self._source, self._retry)
        try:
            async with asyncio.timeout(self._retry):
                await self._closed.wait()
        except TimeoutError:
            await unless_closed(self._closed, self.open())
        else:
            raise Closed

    async def close(self) -> None:
        self._closed.set()
        await self._open.aclose()
        await self._client.aclose()

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """What comes until the server ends the stream; raises :class:`Closed`."""
        if self._response is None:
            return
        stream = EventStream(last_id=self._last_id, max_bytes=self._options.max_body)
        pieces = self._response.aiter_bytes()
        while True:
            try:
                piece = await unless_closed(self._closed, _next(pieces))
            except FAILURES as error:
                raise self._client.unreadable(self._url, error) from None
            if piece is None:
                return
            found = stream.feed(piece)
            if stream.retry is not None:
                self._retry = min(stream.retry, _LONGEST_RETRY)
            for start in range(0, len(found), MAX_DELIVERY):
                yield self._delivery(found[start : start + MAX_DELIVERY])
            # An id can come without an event, to move the position on.
            if stream.last_id != self._last_id:
                self._last_id, self._since = stream.last_id, 0

    def _delivery(self, found: list[ServerEvent]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for one in found:
            id = self._id(one)
            if self._options.events and one.name not in self._options.events:
                continue
            try:
                events.append(self._event(one, id))
            except InvalidEvent as error:
                dead.append(unreadable(one.data, error, where=id))
        return Delivery(events, cursor={"id": self._last_id} if self._last_id else None, dead=dead)

    def _id(self, one: ServerEvent) -> str | None:
        if one.own:
            self._last_id, self._since = one.last_id, 0
            return one.last_id or None
        self._since += 1
        return f"{one.last_id}/{self._since}" if one.last_id else None

    def _event(self, one: ServerEvent, id: str | None) -> Event:
        if one.cut:
            raise InvalidEvent(f"larger than {self._options.max_body} bytes: raise max_body")
        options = self._named.get(one.name)
        if options is None:
            plain = one.name == "message"
            options = self._options if plain else msgspec.structs.replace(self._options, type=one.name)
            if len(self._named) < 100:
                self._named[one.name] = options
        return event_of(Message(body=one.data, id=id), options, source=self._source, kind="sse")


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
