"""Redis streams over the contract suite, on real servers of two generations."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis as Client

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.redis import Redis, Redis7
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

Serve = Callable[[str], Service]


class TestRedisStream(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """A stream on Redis 6.2."""

    kind = "redis_stream"
    service = "redis"

    @pytest.fixture(autouse=True)
    def system(self, serve: Serve) -> Iterator[None]:
        self.server = cast(Redis, serve(self.service))
        self.stream = f"orders-{uuid.uuid4()}"
        self.more: dict[str, Any] = {}
        with Wire(LOOPBACK, self.server.port) as self.wire:
            self.known = msgspec.structs.replace(self.server.connection("events"), port=self.wire.port)
            yield

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with Client(port=self.server.port, password=self.server.password, protocol=2) as client:
            yield client

    def options(self) -> dict[str, Any]:
        return {"conn_id": "events", "stream": self.stream, "create": True, "field": "data", **self.more}

    def connections(self) -> list[Connection]:
        return [self.known]

    async def add(self, *entries: dict[str, Any], stream: str | None = None) -> list[str]:
        """Add entries to the stream; their ids."""
        ids: list[bytes] = []
        async with self.client() as client:
            for start in range(0, len(entries), 1000):
                async with client.pipeline(transaction=False) as pipeline:
                    for entry in entries[start : start + 1000]:
                        pipeline.xadd(stream or self.stream, entry)
                    ids += await pipeline.execute()
        return [entry.decode() for entry in ids]

    async def produce(self, count: int) -> list[str]:
        return await self.add(*({"data": f'{{"n": {n}}}'} for n in range(count)))

    async def produce_large(self, size: int) -> str:
        return (await self.add({"data": f'"{"x" * size}"'}))[0]

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.add(*({"data": f'{{"key": "{key}"}}'} for key in keys))

    async def produce_malformed(self) -> bytes:
        await self.add({"data": b'{"cut": '})
        return b'{"cut": '

    async def restart_server(self) -> None:
        self.server.restart()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, password="not-the-password")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "create": False}, self.connections()

    async def test_starts_with_what_comes_from_now_on(self) -> None:
        """A group that is made with start='latest' leaves out what the stream held before."""
        await self.produce(3)
        self.more = {"start": "latest"}
        async with self.reading() as reader:
            produced = await self.produce(2)
            events = await reader.read(2)
        self.check(events, produced)

    async def test_starts_behind_an_entry(self) -> None:
        """A group that is made with an id begins with the entry after it."""
        produced = await self.produce(5)
        self.more = {"start": produced[1]}
        async with self.reading() as reader:
            events = await reader.read(3)
        self.check(events, produced[2:])

    async def test_claims_what_another_consumer_left(self) -> None:
        """Entries that a consumer of the group took and never acked come to us when they are old enough."""
        async with self.client() as client:
            await client.xgroup_create(self.stream, "windsock", "0", mkstream=True)
            left = await self.produce(1200)
            await client.xreadgroup("windsock", "somebody", {self.stream: ">"}, count=2000)
        self.more = {"claim_after": 0.05}
        async with self.reading() as reader:
            events = await reader.read(1200)
            assert await self._lag(reader.source, 0) == 0
        self.check(events, left)

    async def test_does_not_claim_what_it_holds_itself(self) -> None:
        """A delivery that waits long for its ack is not delivered a second time meanwhile."""
        self.more = {"claim_after": 0.01}
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.read(3, ack=False)
            produced += await self.produce(1)
            await reader.read(4, ack=False)
            async with self.client() as client:
                while (await self._pending(client))[0]["times_delivered"] < 2:  # until a claim came by
                    produced += await self.produce(1)
                    await reader.read(len(produced), ack=False)
        self.check(reader.events, produced)

    async def test_leaves_what_another_consumer_works_on(self) -> None:
        """With claim_after=0 nothing is taken from the group's other consumers."""
        async with self.client() as client:
            await client.xgroup_create(self.stream, "windsock", "0", mkstream=True)
            await self.produce(2)
            await client.xreadgroup("windsock", "somebody", {self.stream: ">"})
            self.more = {"claim_after": 0}
            async with self.reading() as reader:
                produced = await self.produce(1)
                events = await reader.read(1)
            assert {p["consumer"] for p in await self._pending(client)} == {b"somebody"}
        self.check(events, produced)

    async def test_deletes_what_is_acked(self) -> None:
        """With delete=True an acked entry leaves the stream, an unacked one stays."""
        self.more = {"delete": True}
        async with self.reading() as reader:
            await self.produce(3)
            await reader.read(3)
            await self.produce(2)
            await reader.read(5, ack=False)
        async with self.client() as client:
            assert await client.xlen(self.stream) == 2

    async def test_counts_what_was_trimmed_before_it_was_read(self, caplog: pytest.LogCaptureFixture) -> None:
        """An entry that was taken, not acked, and trimmed since is warned about, and the others come."""
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.read(3, ack=False)
        async with self.client() as client:
            await client.xdel(self.stream, produced[0])
            with caplog.at_level(logging.WARNING):
                async with self.reading() as reader:
                    events = await reader.read(2)
            assert await self._pending(client) == []
        self.check(events, produced[1:])
        assert "windsock.redis.trimmed" in caplog.text

    async def test_reads_several_streams(self) -> None:
        """Each stream keeps its own order and position, and events say which one they came from."""
        other = f"{self.stream}-other"
        self.more = {"stream": [self.stream, other]}
        async with self.reading() as reader:
            first = await self.produce(3)
            second = await self.add({"data": "1"}, {"data": "2"}, stream=other)
            events = await reader.read(5)
            assert await self._lag(reader.source, 0) == 0
        assert [event.id for event in events if event.subject == self.stream] == first
        assert [event.id for event in events if event.subject == other] == second
        assert {event.source for event in events} == {
            f"redis://events/{self.stream}",
            f"redis://events/{other}",
        }

    async def test_fields_become_data(self) -> None:
        """Without a field to look in, all fields are the data, as text where they are text."""
        self.more = {"field": None}
        async with self.reading() as reader:
            (entry,) = await self.add({"order": "17", "name": "Zoë", "raw": b"\xff\x00"})
            (event,) = await reader.read(1)
        assert event.data == {"order": "17", "name": "Zoë", "raw": "/wA="}
        assert event.time is not None
        assert int(event.time.timestamp() * 1000) == int(entry.partition("-")[0])

    async def test_other_fields_become_headers(self) -> None:
        """With a field that holds the body, the others are headers, a CloudEvent's attributes among them."""
        async with self.reading() as reader:
            await self.add({"data": '{"n": 1}', "tenant": "blue"})
            await self.add(
                {"data": "{}", "ce-specversion": "1.0", "ce-id": "a", "ce-source": "/s", "ce-type": "t"}
            )
            plain, cloud = await reader.read(2)
        assert (plain.data, plain.headers) == ({"n": 1}, {"tenant": "blue"})
        assert (cloud.id, cloud.source, cloud.type) == ("a", "/s", "t")

    async def test_an_entry_without_the_field(self) -> None:
        """An entry that lacks the named field is a dead letter, and the next one goes through."""
        async with self.reading() as reader:
            await self.add({"body": "{}"})
            produced = await self.produce(1)
            events = await reader.read(1)
        self.check(events, produced)
        assert "has no field 'data'" in reader.dead[0].reason

    async def test_an_acl_user_in_another_database(self) -> None:
        """Login, password and database number come from the Connection."""
        async with self.client() as client:
            rights = ["~orders-*", "resetchannels", "+@stream", "+ping", "+select", "+client"]
            await client.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">opensesame", *rights)
        self.known = msgspec.structs.replace(
            self.known, login="reader", password="opensesame", extra={"db": 3}
        )
        async with self.reading() as reader:
            async with Client(port=self.server.port, password=self.server.password, db=3) as client:
                added = await client.xadd(self.stream, {"data": "1"})
            (event,) = await reader.read(1)
        assert event.id == added.decode()

    async def test_a_user_without_the_right(self) -> None:
        """What the ACL does not permit is a SourceError that says so."""
        async with self.client() as client:
            await client.execute_command("ACL", "SETUSER", "nobody", "reset", "on", ">opensesame", "+client")
        self.known = msgspec.structs.replace(self.known, login="nobody", password="opensesame")
        with pytest.raises(SourceError, match=r"does not permit this .*: extend the ACL"):
            async with self.reading():
                pass

    async def test_a_key_that_is_no_stream(self) -> None:
        """A key of another type is a SourceError that says so."""
        async with self.client() as client:
            await client.set(self.stream, "text")
        with pytest.raises(SourceError, match="is no stream: correct the name"):
            async with self.reading():
                pass

    async def test_a_group_that_is_deleted(self) -> None:
        """A group that goes away while it is read is an error, not a silent wait."""
        async with self.reading() as reader:
            async with self.client() as client:
                await self.produce(1)
                await reader.read(1)
                await client.xgroup_destroy(self.stream, "windsock")
                await self.produce(1)
            with pytest.raises(SourceError, match="was deleted while it was read"):
                await reader.read(2)

    async def _pending(self, client: Client) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await client.xpending_range(self.stream, "windsock", "-", "+", 1000)
        return found


class TestRedis7Stream(TestRedisStream):
    """A stream on Redis 7.0, which counts a group's lag by itself."""

    service = "redis7"

    async def test_lag_after_deletions(self) -> None:
        """Where deleted entries keep Redis from knowing the lag, the entries are counted."""
        async with self.reading() as reader:
            produced = await self.produce(1500)
            async with self.client() as client:
                await client.xdel(self.stream, produced[700])
                (group,) = await client.xinfo_groups(self.stream)
                assert group["lag"] is None
            assert await self._lag(reader.source, 1499) == 1499

    @pytest.mark.parametrize("conn_type", ["redis", "rediss"])
    async def test_tls_with_a_client_certificate(self, conn_type: str) -> None:
        """A server that asks for a certificate lets us in with ours, and is checked against the authority."""
        server = cast(Redis7, self.server)
        files = server.certificates
        extra = {
            "ssl": conn_type == "redis",
            "ssl_ca_certs": str(files.authority),
            "ssl_certfile": str(files.client),
            "ssl_keyfile": str(files.client_key),
            "ssl_check_hostname": True,
        }
        self.known = msgspec.structs.replace(
            server.connection("events"), conn_type=conn_type, port=server.tls_port, extra=extra
        )
        async with self.reading() as reader:
            produced = await self.produce(1)
            events = await reader.read(1)
        self.check(events, produced)

    async def test_tls_with_an_unknown_authority(self) -> None:
        """A server whose certificate nobody vouches for is refused."""
        server = cast(Redis7, self.server)
        self.known = msgspec.structs.replace(
            server.connection("events"), port=server.tls_port, extra={"ssl": True}
        )
        with pytest.raises(SourceError, match=r"cannot be reached .*: check that it runs"):
            async with self.reading():
                pass
