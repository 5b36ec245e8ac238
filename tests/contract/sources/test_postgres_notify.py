"""LISTEN/NOTIFY over a real PostgreSQL: with the trigger's outbox, and on bare channels."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.sources._postgres_triggers import install, remove
from windsock.sources.base import Guarantees
from windsock.sources.postgres_notify import CHANNELS_ONLY
from windsock.testing.processes import free_port
from windsock.testing.services import Service
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


@pytest.fixture(scope="module")
def postgres(serve: Callable[[str], Service]) -> Service:
    return serve("postgres")


@pytest.fixture(scope="module")
def wire(postgres: Service) -> Iterator[Wire]:
    with Wire("127.0.0.1", postgres.port) as wire:
        yield wire


class OnPostgres(ServerFaults, Unreachable, WrongCredentials):
    """A database behind a wire."""

    kind = "postgres_notify"
    postgres: Any
    wire: Wire

    def connections(self) -> Sequence[Connection]:
        return [msgspec.structs.replace(self.postgres.connection("shop"), port=self.wire.port)]

    def run(self, statement: Any, *rows: Sequence[Any]) -> list[Any]:
        with psycopg.connect(self.postgres.url()) as client, client.cursor() as cursor:
            if rows:
                cursor.executemany(statement, rows)
                return []
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.postgres.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        (known,) = self.connections()
        return self.options(), [msgspec.structs.replace(known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        (known,) = self.connections()
        return self.options(), [msgspec.structs.replace(known, password="not-the-password")]


class TestOutbox(OnPostgres, MessageContract, ReaderProcesses, Missing):
    """Rows of a table with the trigger."""

    @pytest.fixture(autouse=True)
    def system(self, postgres: Service, wire: Wire) -> None:
        self.postgres, self.wire = postgres, wire
        suffix = uuid.uuid4().hex[:12]
        self.table, self.outbox = f"orders_{suffix}", f"outbox_{suffix}"
        self.run(f"CREATE TABLE {self.table} (region text, id int, note text, PRIMARY KEY (region, id))")
        self.install()
        self.number = 0

    def install(self, **more: Any) -> str:
        return install(
            self.postgres.connection("shop"), self.table, outbox=self.outbox, channel=self.outbox, **more
        )

    def options(self) -> dict[str, Any]:
        return {"conn_id": "shop", "outbox": self.outbox, "channel": self.outbox}

    def identity(self, event: Event) -> str:
        return str(event.data["new"]["id"])

    async def produce(self, count: int) -> list[str]:
        return await self.produce_keyed(["north"] * count)

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        numbers = range(self.number, self.number + len(keys))
        self.number += len(keys)
        rows = [(key, number, "new") for key, number in zip(keys, numbers, strict=True)]
        self.run(f"INSERT INTO {self.table} VALUES (%s, %s, %s)", *rows)
        return [str(number) for number in numbers]

    async def produce_large(self, size: int) -> str:
        self.number += 1
        self.run(f"INSERT INTO {self.table} VALUES ('n', %s, %s)", (self.number - 1, "x" * size))
        return str(self.number - 1)

    async def produce_malformed(self) -> bytes:
        self.number += 1
        key = uuid.uuid4().hex * 70  # longer than an event's key may be
        self.run(f"INSERT INTO {self.table} VALUES (%s, %s, 'x')", (key, self.number - 1))
        return key.encode()

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "outbox": "not_there"}, self.connections()

    async def test_every_kind_of_change(self) -> None:
        """Insert, update, delete and truncate become events with the row before and after."""
        async with self.reading() as reader:
            self.run(f"INSERT INTO {self.table} VALUES ('north', 1, 'first')")
            self.run(f"UPDATE {self.table} SET note = 'second'")
            self.run(f"DELETE FROM {self.table}")
            self.run(f"TRUNCATE {self.table}")
            events = await reader.read(4)
        assert [event.type for event in events] == [
            f"windsock.postgres.{kind}" for kind in ("insert", "update", "delete", "truncate")
        ]
        first, second = ({"region": "north", "id": 1, "note": note} for note in ("first", "second"))
        assert [(event.data["old"], event.data["new"]) for event in events] == [
            (None, first),
            (first, second),
            (second, None),
            (None, None),
        ]
        assert events[0].data["key"] == {"region": "north", "id": 1}
        assert [event.key for event in events] == ["north/1"] * 3 + [f"public.{self.table}"]
        assert events[0].source == f"postgres://shop/public.{self.table}"

    async def test_transactions_that_commit_out_of_order(self) -> None:
        """A transaction that wrote first and commits last is found, and holds nobody up meanwhile."""
        async with self.reading() as reader:
            with psycopg.connect(self.postgres.url()) as slow:
                slow.execute(f"INSERT INTO {self.table} VALUES ('slow', 100, 'x')")
                produced = await self.produce(3)
                assert self.identities(await reader.read(3)) == produced
                slow.commit()
            events = await reader.read(4)
        assert self.identities(events) == [*produced, "100"]

    async def test_a_rolled_back_change(self) -> None:
        """What was not committed did not happen."""
        async with self.reading() as reader:
            with psycopg.connect(self.postgres.url()) as client:
                client.execute(f"INSERT INTO {self.table} VALUES ('north', 100, 'x')")
                client.rollback()
            produced = await self.produce(1)
            events = await reader.read(1)
        assert self.identities(events) == produced

    async def test_the_outbox_is_emptied(self) -> None:
        """Acked rows are deleted from the outbox, whatever became of them, and only those."""
        async with self.reading() as reader:
            await self.produce(2)
            await reader.read(2)
            await self.produce(1)
            await reader.read(3, ack=False)
        ((left,),) = self.run(f"SELECT count(*) FROM {self.outbox}")
        assert left == 1

    async def test_chosen_tables_and_operations(self) -> None:
        """Other tables stay in the outbox; operations that are not asked for leave it unread."""
        other = f"{self.table}_other"
        self.run(f"CREATE TABLE {other} (id int PRIMARY KEY)")
        install(self.postgres.connection("shop"), other, outbox=self.outbox, channel=self.outbox)
        self.run(f"INSERT INTO {other} VALUES (1)")
        self.run(f"INSERT INTO {self.table} VALUES ('north', 1, 'x')")
        self.run(f"DELETE FROM {self.table}")
        options = {**self.options(), "tables": [f"public.{self.table}"], "operations": ["delete"]}
        source = make_source(self.kind, options, fixed(*self.connections()))
        await source.connect(None)
        delivery = await anext(source.read())
        await delivery.ack()
        await source.close()
        assert [event.type for event in delivery.events] == ["windsock.postgres.delete"]
        assert self.run(f"SELECT relation FROM {self.outbox}") == [(f"public.{other}",)]

    async def test_no_bell(self) -> None:
        """A change whose notification is lost comes with the next poll."""
        options = {**self.options(), "channel": "nobody_rings_here", "poll": 0.1}
        source = make_source(self.kind, options, fixed(*self.connections()))
        await source.connect(None)
        waiting = asyncio.create_task(anext(source.read()))
        await asyncio.wait({waiting}, timeout=0.05)
        produced = await self.produce(1)
        delivery = await waiting
        await source.close()
        assert self.identities(delivery.events) == produced

    async def test_a_writer_without_rights_on_the_outbox(self) -> None:
        """Whoever may write to the table needs no rights on the outbox."""
        role = f"writer_{uuid.uuid4().hex[:8]}"
        self.run(f"CREATE ROLE {role}")
        self.run(f"GRANT INSERT ON {self.table} TO {role}")
        async with self.reading() as reader:
            self.run(f"SET ROLE {role}; INSERT INTO {self.table} VALUES ('north', 1, 'x')")
            events = await reader.read(1)
        assert self.identities(events) == ["1"]

    async def test_installing_again_and_removing(self) -> None:
        """The command is idempotent, changes the operations, shows its SQL without running it, and undoes."""
        assert "CREATE OR REPLACE TRIGGER" in self.install(operations=["insert"], dry_run=True)
        self.install(operations=["insert"])
        self.run(f"INSERT INTO {self.table} VALUES ('north', 1, 'x'); UPDATE {self.table} SET note = 'y'")
        remove(self.postgres.connection("shop"), self.table)
        self.run(f"INSERT INTO {self.table} VALUES ('north', 2, 'x')")
        assert self.run(f"SELECT operation FROM {self.outbox}") == [("insert",)]

    def test_a_table_that_is_not_there(self) -> None:
        """The command says what is missing."""
        with pytest.raises(SourceError, match=r"not_there does not exist: check"):
            install(self.postgres.connection("shop"), "not_there")


class TestChannels(OnPostgres, MessageContract, ReaderProcesses):
    """Bare notifications: nothing is kept for who is not listening."""

    large = 7_900

    @pytest.fixture(autouse=True)
    def system(self, postgres: Service, wire: Wire) -> None:
        self.postgres, self.wire = postgres, wire
        self.channel = f"Orders {uuid.uuid4().hex}"

    @property
    def guarantees(self) -> Guarantees:
        return CHANNELS_ONLY

    def options(self) -> dict[str, Any]:
        return {"conn_id": "shop", "channels": [self.channel]}

    def identity(self, event: Event) -> str:
        return str(event.data["n"])

    def send(self, *payloads: str) -> None:
        self.run("SELECT pg_notify(%s, %s)", *((self.channel, payload) for payload in payloads))

    async def produce(self, count: int) -> list[str]:
        made = [uuid.uuid4().hex for _ in range(count)]
        await asyncio.to_thread(self.send, *(json.dumps({"n": number}) for number in made))
        return made

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.produce(len(keys))

    async def produce_large(self, size: int) -> str:
        self.send(json.dumps({"n": "large", "x": "x" * (size - 30)}))
        return "large"

    async def produce_malformed(self) -> bytes:
        self.send('{"cut')
        return b'{"cut'

    async def test_takes_a_large_message(self) -> None:
        """The largest payload that PostgreSQL takes arrives whole."""
        async with self.reading() as reader:
            await self.produce_large(self.large)
            (event,) = await reader.read(1)
        assert len(event.data["x"]) == self.large - 30

    async def test_a_cloud_event(self) -> None:
        """A payload that is a CloudEvent keeps its own id, source and type."""
        async with self.reading() as reader:
            made = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.made", "data": 1}
            self.send(json.dumps(made))
            (event,) = await reader.read(1)
        assert (event.id, event.source, event.type, event.data) == ("7", "/shop", "order.made", 1)

    async def test_several_channels(self) -> None:
        """Each event says on which channel it came."""
        options = {"conn_id": "shop", "channels": [self.channel, "second"], "format": "text"}
        source = make_source(self.kind, options, fixed(*self.connections()))
        await source.connect(None)
        self.send("one")
        self.run("NOTIFY second, 'two'")
        found: list[Event] = []
        stream = source.read()
        while len(found) < 2:
            found += (await anext(stream)).events
        await source.close()
        assert {(event.subject, event.data) for event in found} == {(self.channel, "one"), ("second", "two")}
