"""Messages that are published to Redis channels while somebody listens.

::

    source = RedisPubSubSource(RedisPubSubConfig(conn_id="redis_default", channel="orders"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.subject for event in delivery.events])   # ['orders', ...]
        await delivery.ack()

**Events.** Type ``windsock.redis_pubsub``, source ``redis://<conn_id>``, subject the channel, a random id.

**Guarantee.** At most once: Redis keeps nothing. What is published while no reader is connected, while the
log is behind for so long that Redis drops the connection (``client-output-buffer-limit``), or between a
crash and the next connect is lost. Use a stream (``redis_stream``) where that matters.

**Where it resumes.** With what is published from then on. The lag cannot be known.

**Connection.** As for ``redis_stream``: type ``redis`` or ``rediss``, host, port, login, password and the
extras of Airflow's Redis provider. The user needs SUBSCRIBE, PSUBSCRIBE and PING on its channels.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import SourceError
from windsock.messages import Message, MessageOptions, events_of
from windsock.sources._ending import Ended, Ending
from windsock.sources._redis import SILENCE, open_client, speaking
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisPubSubConfig", "RedisPubSubSource"]

_QUIET = 10.0
"""Seconds without a message after which the server is asked whether it is there."""


class RedisPubSubConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which channels to listen to."""

    channel: Annotated[str | tuple[str, ...], Meta(description="The channel, or a list of several.")] = ()
    pattern: Annotated[
        str | tuple[str, ...],
        Meta(
            description="Channels by pattern, such as `orders.*`, or a list of several. A message whose "
            "channel is listed as well comes twice."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if not all([*self.channels, *self.patterns]) or not (self.channels or self.patterns):
            raise ValueError("name a channel or a pattern to listen to")

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels' names."""
        return (self.channel,) if isinstance(self.channel, str) else self.channel

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns."""
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern


class RedisPubSubSource(UsesConnection):
    """Listens to channels of a Redis server."""

    kind: ClassVar[str] = "redis_pubsub"
    config: ClassVar[type[RedisPubSubConfig]] = RedisPubSubConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        delivery="at most once",
        position="none",
        once="never",
        lag=False,
        tested="Redis 6.2 and 7.0",
        notes="What is published while nobody is connected is lost; use redis_stream where that matters.",
    )

    def __init__(self, config: RedisPubSubConfig) -> None:
        self.options = config
        self._subscription: _Subscription | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        subscription = _Subscription(self.options, await self.connection())
        try:
            await subscription.ending.first(subscription.open())
        except BaseException:
            await subscription.close()
            raise
        self._subscription = subscription

    async def read(self) -> AsyncIterator[Delivery]:
        subscription = self._subscription
        if subscription is None:
            raise SourceError("Redis channels are not being listened to: call connect first")
        source = f"redis://{self.options.conn_id}"
        try:
            async for messages in subscription.messages():
                events, dead = events_of(messages, self.options, source=source, kind=self.kind)
                yield Delivery(events, dead=dead)
        except Ended:
            return

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription:
            await subscription.close()


class _Subscription:
    """Listening, from ``connect`` to ``close``."""

    def __init__(self, options: RedisPubSubConfig, connection: Connection) -> None:
        self._options = options
        self._connection = connection
        self._client: Redis = open_client(connection)
        self._pubsub = self._client.pubsub()
        self._early: list[Message] = []
        self.ending = Ending()

    async def open(self) -> None:
        """Subscribe, and wait until Redis says that it is so."""
        with speaking(self._connection):
            if self._options.channels:
                await self._pubsub.subscribe(*self._options.channels)
            if self._options.patterns:
                await self._pubsub.psubscribe(*self._options.patterns)
            missing = len(set(self._options.channels)) + len(set(self._options.patterns))
            while missing:
                answer = await self._pubsub.get_message(timeout=SILENCE)
                if answer is None:
                    raise TimeoutError("no answer to SUBSCRIBE")
                missing -= answer["type"] in ("subscribe", "psubscribe")
                self._early += _messages(answer)

    async def messages(self) -> AsyncIterator[list[Message]]:
        """What was published: all that is there, a thousand at most at a time."""
        heard = time.monotonic()
        taken, self._early = self._early, []
        while True:
            answer = await self._next(0 if taken else _QUIET)
            while answer is not None:
                heard = time.monotonic()
                taken += _messages(answer)
                answer = await self._next(0) if len(taken) < MAX_DELIVERY else None
            if taken:
                yield taken
                taken, heard = [], time.monotonic()
            elif time.monotonic() - heard > SILENCE + _QUIET:
                raise SourceError(
                    f"Redis of connection {self._connection.conn_id!r} does not answer any more: check that "
                    "it runs; it is tried again"
                )
            elif time.monotonic() - heard >= _QUIET:
                with speaking(self._connection):
                    await self.ending.first(self._pubsub.ping())

    async def close(self) -> None:
        """Let go of the server."""
        self.ending.end()
        await self._pubsub.aclose()
        await self._client.aclose()

    async def _next(self, wait: float) -> dict[str, Any] | None:
        with speaking(self._connection):
            found: dict[str, Any] | None = await self.ending.first(self._pubsub.get_message(timeout=wait))
        return found


def _messages(answer: dict[str, Any]) -> list[Message]:
    """The message in what Redis sent, unless it sent something else."""
    if answer["type"] not in ("message", "pmessage"):
        return []
    return [Message(body=answer["data"], subject=answer["channel"], time=time.time())]
