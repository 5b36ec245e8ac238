"""Redis channels over the contract suite, which holds them to what at most once means."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis as Client

from windsock.connections import Connection
from windsock.events import Event, SourceError
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.redis import Redis
from windsock.testing.sources import (
    MessageContract,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


class TestRedisPubSub(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials):
    """A channel on Redis 6.2."""

    kind = "redis_pubsub"
    service = "redis"

    @pytest.fixture(autouse=True)
    def system(self, serve: Callable[[str], Service]) -> Iterator[None]:
        self.server = cast(Redis, serve(self.service))
        self.channel = f"orders-{uuid.uuid4()}"
        self.numbers = count()
        self.more: dict[str, Any] = {}
        with Wire(LOOPBACK, self.server.port) as self.wire:
            self.known = msgspec.structs.replace(self.server.connection("events"), port=self.wire.port)
            yield

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with Client(port=self.server.port, password=self.server.password) as client:
            yield client

    def options(self) -> dict[str, Any]:
        return {"conn_id": "events", "channel": self.channel, **self.more}

    def connections(self) -> list[Connection]:
        return [self.known]

    def identity(self, event: Event) -> str:
        return str(event.data["n"])

    async def publish(self, *bodies: dict[str, Any], channel: str | None = None) -> list[str]:
        """Publish messages, numbered; their numbers."""
        numbered = [{"n": str(next(self.numbers)), **body} for body in bodies]
        async with self.client() as client:
            for start in range(0, len(bodies), 1000):
                async with client.pipeline(transaction=False) as pipeline:
                    for body in numbered[start : start + 1000]:
                        pipeline.publish(channel or self.channel, json.dumps(body))
                    await pipeline.execute()
        return [body["n"] for body in numbered]

    async def produce(self, count: int) -> list[str]:
        return await self.publish(*({} for _ in range(count)))

    async def produce_large(self, size: int) -> str:
        return (await self.publish({"text": "x" * size}))[0]

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.publish(*({"key": key} for key in keys))

    async def produce_malformed(self) -> bytes:
        async with self.client() as client:
            await client.publish(self.channel, b'{"cut": ')
        return b'{"cut": '

    async def restart_server(self) -> None:
        self.server.restart()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, password="not-the-password")]

    async def test_channels_and_patterns(self) -> None:
        """Several channels and patterns are listened to at once, and the subject says which it was."""
        base = self.channel
        self.more = {"channel": [f"{base}.a", f"{base}.b"], "pattern": f"{base}.x.*"}
        async with self.reading() as reader:
            for name in ("a", "c", "x.1", "b", "x"):
                await self.publish({}, channel=f"{base}.{name}")
            events = await reader.read(3)
        assert [event.subject for event in events] == [f"{base}.a", f"{base}.x.1", f"{base}.b"]

    async def test_equal_messages_are_two_events(self) -> None:
        """The same text published twice is two events, since nothing tells a repetition from a new one."""
        async with self.reading() as reader:
            async with self.client() as client:
                await client.publish(self.channel, "1")
                await client.publish(self.channel, "1")
            first, second = await reader.read(2)
        assert first.id != second.id

    async def test_a_channel_that_is_not_permitted(self) -> None:
        """What the ACL does not permit is a SourceError that says so."""
        async with self.client() as client:
            rights = ["resetchannels", "&other", "+subscribe", "+client"]
            await client.execute_command("ACL", "SETUSER", "listener", "reset", "on", ">opensesame", *rights)
        self.known = msgspec.structs.replace(self.known, login="listener", password="opensesame")
        with pytest.raises(SourceError, match=r"does not permit this .*: extend the ACL"):
            async with self.reading():
                pass

    async def test_notices_a_server_that_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A server that stopped answering without closing the connection is an error after some time."""
        from windsock.sources import redis_pubsub

        monkeypatch.setattr(redis_pubsub, "_QUIET", 0.05)
        monkeypatch.setattr(redis_pubsub, "SILENCE", 0.2)
        async with self.reading() as reader:
            async with self.client() as client:
                waiting = asyncio.create_task(reader.next())
                await client.execute_command("CLIENT", "PAUSE", "2000")
                with pytest.raises(SourceError, match="does not answer any more"):
                    await waiting
            async with self.client() as client:
                await client.ping()  # the pause is over, so that the next test finds a server


class TestRedis7PubSub(TestRedisPubSub):
    """A channel on Redis 7.0."""

    service = "redis7"
