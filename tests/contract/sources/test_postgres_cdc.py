"""Logical decoding over a real PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source, postgres_cdc
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


class TestPostgresCdc(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """A table's changes out of the write-ahead log."""

    kind = "postgres_cdc"

    @pytest.fixture(autouse=True)
    def system(self, postgres: Service, wire: Wire) -> Iterator[None]:
        self.postgres: Any = postgres
        self.wire = wire
        suffix = uuid.uuid4().hex[:12]
        self.table, self.slot = f"orders_{suffix}", f"slot_{suffix}"
        self.number = 0
        self.run(f"CREATE TABLE {self.table} (region text, id int, note text, PRIMARY KEY (region, id))")
        self.run(f"CREATE PUBLICATION {self.slot} FOR TABLE {self.table}")
        self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")
        yield
        wire.mend()
        self.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        while self.run(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.slot}'") == [
            (True,)
        ]:
            pass
        self.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        self.run(f"DROP PUBLICATION IF EXISTS {self.slot}")

    def run(self, statement: Any, *rows: Sequence[Any]) -> list[Any]:
        with psycopg.connect(self.postgres.url()) as client, client.cursor() as cursor:
            if rows:
                cursor.executemany(statement, rows)
                return []
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def options(self) -> dict[str, Any]:
        return {"conn_id": "shop", "slot": self.slot}

    def connections(self) -> Sequence[Connection]:
        return [msgspec.structs.replace(self.postgres.connection("shop"), port=self.wire.port)]

    def source(self, **more: Any) -> Any:
        return make_source(self.kind, {**self.options(), **more}, fixed(*self.connections()))

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

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.postgres.restart)

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        (known,) = self.connections()
        return self.options(), [msgspec.structs.replace(known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        (known,) = self.connections()
        return self.options(), [msgspec.structs.replace(known, password="not-the-password")]

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "slot": "not_there", "publication": self.slot}, self.connections()

    def confirmed(self) -> int:
        ((position,),) = self.run(
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        )
        return int(position)

    async def test_every_kind_of_change(self) -> None:
        """Insert, update, delete and truncate become events with what the log tells of before and after."""
        async with self.reading() as reader:
            self.run(f"INSERT INTO {self.table} VALUES ('north', 1, 'first')")
            self.run(f"UPDATE {self.table} SET note = 'second'")
            self.run(f"UPDATE {self.table} SET id = 2")
            self.run(f"DELETE FROM {self.table}")
            self.run(f"TRUNCATE {self.table}")
            events = await reader.read(5)
        assert [event.type.rpartition(".")[2] for event in events] == [
            *("insert", "update", "update", "delete", "truncate")
        ]
        assert [(event.data["old"], event.data["new"]) for event in events] == [
            (None, {"region": "north", "id": 1, "note": "first"}),
            (None, {"region": "north", "id": 1, "note": "second"}),
            ({"region": "north", "id": 1}, {"region": "north", "id": 2, "note": "second"}),
            ({"region": "north", "id": 2}, None),
            (None, None),
        ]
        assert [event.key for event in events] == [
            *("north/1", "north/1", "north/2", "north/2", f"public.{self.table}")
        ]
        assert len({event.id for event in events}) == 5
        assert [event.sequence for event in events] == sorted(event.sequence or "" for event in events)

    async def test_full_replica_identity(self) -> None:
        """A table that logs whole rows gives the whole row before, and the primary key as the key."""
        self.run(f"ALTER TABLE {self.table} REPLICA IDENTITY FULL")
        async with self.reading() as reader:
            self.run(f"INSERT INTO {self.table} VALUES ('north', 1, 'first')")
            self.run(f"UPDATE {self.table} SET note = 'second'")
            events = await reader.read(2)
        assert events[1].data["old"] == {"region": "north", "id": 1, "note": "first"}
        assert events[1].key == "north/1"

    async def test_a_large_column_that_did_not_change(self) -> None:
        """What is not in the log is named, not invented."""
        self.run(f"ALTER TABLE {self.table} ALTER COLUMN note SET STORAGE EXTERNAL")
        self.run(f"ALTER TABLE {self.table} ADD COLUMN n int")
        async with self.reading() as reader:
            await self.produce_large(100_000)
            self.run(f"UPDATE {self.table} SET n = 1")
            events = await reader.read(2)
        assert events[1].data["unchanged"] == ["note"]
        assert "note" not in events[1].data["new"]

    async def test_types(self) -> None:
        """Values become plain JSON; what Python has no value for stays text."""
        self.run(
            f"ALTER TABLE {self.table} ADD b bool, ADD f float8, ADD d numeric(30, 10), ADD j jsonb, "
            "ADD y bytea, ADD t timestamptz, ADD a int[], ADD u uuid, ADD r int4range, ADD v interval, "
            "ADD forever timestamptz, ADD day date"
        )
        async with self.reading() as reader:
            self.run(
                f"INSERT INTO {self.table} VALUES ('n', 1, NULL, true, 'NaN', 12345678901234567890.5, "
                """'{"a": [1, 2.5]}', '\\xff00', '2026-03-01 08:00+02', '{1,NULL,3}', """
                "'6c0c1a3c-7d0a-4a7e-9b6b-0f4a6b1d2e3f', '[1,5)', '1 mon 2 days', 'infinity', '2026-03-01')"
            )
            (event,) = await reader.read(1)
        assert {name: value for name, value in event.data["new"].items() if name not in ("region", "id")} == {
            "note": None,
            "b": True,
            "f": "NaN",
            "d": "12345678901234567890.5000000000",
            "j": {"a": [1, 2.5]},
            "y": "/wA=",
            "t": "2026-03-01T06:00:00+00:00",
            "a": [1, None, 3],
            "u": "6c0c1a3c-7d0a-4a7e-9b6b-0f4a6b1d2e3f",
            "r": "[1,5)",
            "v": "1 mon 2 days",
            "forever": "infinity",
            "day": "2026-03-01",
        }

    async def test_the_slot_is_advanced_only_by_the_ack(self) -> None:
        """The slot stands still while events are unacked, and moves behind them when they are acked."""
        async with self.reading() as reader:
            before = self.confirmed()
            await self.produce(3)
            deliveries = [await reader.next()]
            assert self.confirmed() == before
            for delivery in deliveries:
                await delivery.ack()
            while self.confirmed() == before:
                await asyncio.sleep(0.01)
        self.run("SELECT pg_logical_emit_message(false, 'test', 'x')")
        async with self.reading() as reader:
            produced = await self.produce(1)
            events = await reader.read(1)
        assert self.identities(events) == produced

    @pytest.fixture
    def impatient(self) -> Iterator[None]:
        """A server that hangs up on readers which it has not heard from for a second."""
        with psycopg.connect(self.postgres.url(), autocommit=True) as client:
            client.execute("ALTER SYSTEM SET wal_sender_timeout = '1s'")
            client.execute("SELECT pg_reload_conf()")
            yield
            client.execute("ALTER SYSTEM RESET wal_sender_timeout")
            client.execute("SELECT pg_reload_conf()")

    @pytest.mark.usefixtures("impatient")
    async def test_an_idle_slot_moves_along(self) -> None:
        """Changes of other tables do not pile up behind a slot whose own tables are quiet."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.next())
            await asyncio.wait({waiting}, timeout=0.05)
            before = self.confirmed()
            self.run(f"CREATE TABLE {self.table}_other AS SELECT generate_series(1, 1000)")
            while self.confirmed() == before:
                await asyncio.sleep(0.05)
            assert not waiting.done()
            produced = await self.produce(1)
            await waiting
        assert self.identities(reader.events) == produced

    @pytest.mark.usefixtures("impatient")
    async def test_is_heard_while_nobody_reads(self) -> None:
        """Under backpressure the server's patience is not tried: the stream goes on where it stood."""
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.read(3)
            heard: set[Any] = set()
            while len(heard) < 6:  # three times a second
                heard |= set(self.run("SELECT pid, reply_time FROM pg_stat_replication"))
                await asyncio.sleep(0.05)
            assert len({pid for pid, _ in heard}) == 1
            produced += await self.produce(2)
            events = await reader.read(5)
        assert self.identities(events) == produced

    async def test_transactions_come_whole_and_in_the_order_of_their_commits(self) -> None:
        """A transaction that began first and committed last comes last; a rolled back one never."""
        async with self.reading() as reader:
            with psycopg.connect(self.postgres.url()) as slow, psycopg.connect(self.postgres.url()) as undone:
                slow.execute(f"INSERT INTO {self.table} VALUES ('slow', 100, 'x'), ('slow', 101, 'x')")
                undone.execute(f"INSERT INTO {self.table} VALUES ('undone', 200, 'x')")
                undone.rollback()
                produced = await self.produce(2)
                slow.commit()
            events = await reader.read(4)
        assert self.identities(events) == [*produced, "100", "101"]
        assert events[2].data["transaction"] == events[3].data["transaction"]

    async def test_chosen_tables_and_operations(self) -> None:
        """Only what was asked for becomes an event, and the rest is confirmed with it."""
        other = f"{self.table}_other"
        self.run(f"CREATE TABLE {other} (id int PRIMARY KEY)")
        self.run(f"ALTER PUBLICATION {self.slot} ADD TABLE {other}")
        source = self.source(tables=[f"public.{self.table}"], operations=["delete"])
        await source.connect(None)
        await self.produce(1)
        self.run(f"INSERT INTO {other} VALUES (1)")
        self.run(f"DELETE FROM {self.table}")
        stream = source.read()
        delivery = await anext(stream)
        await source.close()
        assert [event.type for event in delivery.events] == ["windsock.postgres.delete"]

    async def test_creates_what_is_missing(self) -> None:
        """With create=True publication and slot are made, once."""
        name = f"{self.slot}_made"
        source = self.source(slot=name, tables=[f"public.{self.table}"], create=True)
        cursor = None
        for _ in range(2):
            await source.connect(cursor)
            produced = await self.produce(1)
            delivery = await anext(source.read())
            await delivery.ack()
            await source.close()
            cursor = delivery.cursor
            assert self.identities(delivery.events) == produced
        assert self.run(f"SELECT tablename FROM pg_publication_tables WHERE pubname = '{name}'") == [
            (self.table,)
        ]
        self.run(f"DROP PUBLICATION {name}")

    async def test_a_second_reader(self) -> None:
        """A slot that is being read says so to the second reader, and the first one goes on."""
        async with self.reading() as reader:
            second = self.source()
            with pytest.raises(SourceError, match=r"being read by another .*: a slot has one reader"):
                await second.connect(None)
            await second.close()
            produced = await self.produce(1)
            events = await reader.read(1)
        assert self.identities(events) == produced

    async def test_a_missing_publication(self) -> None:
        """A publication that is not there is an error with the remedy."""
        source = self.source(publication="not_there")
        with pytest.raises(SourceError, match="publication 'not_there' does not exist: run CREATE"):
            await source.connect(None)
        await source.close()

    async def test_a_table_that_is_not_published(self) -> None:
        """A table that the publication leaves out would be silence; it is an error."""
        source = self.source(tables=["public.not_there"])
        with pytest.raises(SourceError, match=r"does not have public.not_there: run ALTER"):
            await source.connect(None)
        await source.close()

    async def test_a_slot_of_another_plugin(self) -> None:
        """A slot that speaks another language is refused."""
        self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}_other', 'test_decoding')")
        source = self.source(slot=f"{self.slot}_other", publication=self.slot)
        with pytest.raises(SourceError, match="another database or plugin"):
            await source.connect(None)
        await source.close()

    async def test_a_growing_slot_is_warned_about(self, caplog: pytest.LogCaptureFixture) -> None:
        """What the slot holds back past the limit is logged, while nobody reads as well."""
        self.run(f"CREATE TABLE {self.table}_big AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        with caplog.at_level(logging.WARNING, logger=postgres_cdc.__name__):
            source = self.source(warn_at=100_000)
            await source.connect(None)
            while "windsock.source.slot_growing" not in caplog.text:
                await asyncio.sleep(0.01)
            await source.close()
        assert f"slot={self.slot} retained_bytes=" in caplog.text

    async def test_a_cursor_of_another_cluster(self) -> None:
        """A position that belongs to another database cluster skips nothing."""
        produced = await self.produce(2)
        async with self.reading({"system": "another", "lsn": 2**60, "index": 1}) as reader:
            events = await reader.read(2)
        assert self.identities(events) == produced
