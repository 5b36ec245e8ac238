"""Debezium's engine over the contract suite, on a real PostgreSQL with logical decoding."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import psutil
import psycopg
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.sources.base import Cursor
from windsock.testing.processes import LOOPBACK, Child, free_port, tail, wait_gone
from windsock.testing.services import Service
from windsock.testing.services.postgres import Postgres
from windsock.testing.sources import (
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


@pytest.fixture(scope="module")
def postgres(serve: Callable[[str], Service]) -> Postgres:
    """The server."""
    server = serve("postgres")
    assert isinstance(server, Postgres)
    return server


class Shop:
    """A database with a table of orders, and what a test does to it."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.name = f"shop_{uuid4().hex[:12]}"
        self.url = server.url(self.name)
        self.numbers = count(1)
        self.do("CREATE TABLE orders (id int PRIMARY KEY, amount numeric(10, 2), made timestamp, note text)")

    def do(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement in a transaction of its own; its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(sql, values)
            return done.fetchall() if done.description else []

    def insert(self, count: int) -> list[str]:
        """Add rows; their numbers."""
        numbers = [next(self.numbers) for _ in range(count)]
        self.do(
            "INSERT INTO orders SELECT n, n / 4.0, '2026-11-15 07:40:12.5', 'new' FROM unnest(%s::int[]) n",
            numbers,
        )
        return [str(number) for number in numbers]

    def close(self) -> None:
        """Let go of the slot, which would keep the server's log for ever."""
        self.do(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE database = %s AND active_pid IS NOT NULL",
            self.name,
        )
        while self.do("SELECT 1 FROM pg_replication_slots WHERE database = %s AND active", self.name):
            pass
        self.do(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
            self.name,
        )


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Shop]:
    """A fresh database."""
    postgres.start()
    shop = Shop(postgres)
    yield shop
    shop.close()


class TestDebeziumEngine(
    SourceContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing
):
    """Rows that are inserted into a table."""

    kind = "debezium_engine"
    patience = 180.0  # each reader starts a JVM

    @pytest.fixture(autouse=True)
    def system(self, shop: Shop) -> Iterator[None]:
        self.shop = shop
        with Wire(LOOPBACK, shop.server.port) as self.wire:
            yield

    def options(self) -> dict[str, Any]:
        return {"conn_id": "shop", "engine": self.shop.name, "tables": ["public.orders"]}

    def connections(self, **changed: Any) -> list[Connection]:
        return [connection(self.shop, **{"port": self.wire.port, **changed})]

    def identity(self, event: Event) -> str:
        return str(event.data["after"]["id"])

    async def produce(self, count: int) -> list[str]:
        return await asyncio.to_thread(self.shop.insert, count)

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.shop.server.restart)

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), self.connections(port=free_port())

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        self.shop.do("DROP ROLE IF EXISTS stranger")
        self.shop.do("CREATE ROLE stranger LOGIN REPLICATION PASSWORD 'right-horse'")
        return self.options(), self.connections(login="stranger", password="wrong-horse")

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), self.connections(schema="not_there")


def connection(shop: Shop, **changed: Any) -> Connection:
    """The Connection to the shop's database."""
    plain = shop.server.connection("shop", shop.name)
    fields = {name: getattr(plain, name) for name in ("host", "port", "login", "password", "schema")}
    return Connection(conn_id="shop", conn_type="postgres", **{**fields, **changed})


@asynccontextmanager
async def reading(shop: Shop, cursor: Cursor | None = None, **options: Any) -> AsyncIterator[Reader]:
    """The shop's database read by an engine."""
    chosen = {"conn_id": "shop", "engine": shop.name, "tables": ["public.*"], **options}
    source = make_source("debezium_engine", chosen, fixed(connection(shop)))
    async with asyncio.timeout(180):
        try:
            await source.connect(cursor)
            yield Reader(source)
        finally:
            await source.close()


def confirmed(shop: Shop) -> str:
    """Up to where the server may forget its log."""
    ((place,),) = shop.do(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", shop.name
    )
    return str(place)


def last_word(shop: Shop) -> Any:
    """When the reader last told the server how far it is."""
    return shop.do("SELECT reply_time FROM pg_stat_replication")


async def test_everything_that_happens_to_a_table(shop: Shop) -> None:
    """Snapshot, insert, update, changed key, delete and truncate are events, decimals and times are text."""
    shop.insert(1)
    async with reading(shop) as reader:
        await reader.read(1)
        shop.insert(1)
        shop.do("UPDATE orders SET note = 'paid' WHERE id = 2")
        shop.do("UPDATE orders SET id = 7 WHERE id = 2")
        shop.do("DELETE FROM orders WHERE id = 7")
        shop.do("TRUNCATE orders")
        events = await reader.read(7)
    assert [event.type.removeprefix("debezium.") for event in events] == [
        *("read", "create", "update", "delete", "create", "delete", "truncate")
    ]
    assert events[0].data["after"] == {
        "id": 1, "amount": "0.25", "made": "2026-11-15T07:40:12.500000", "note": "new"
    }  # fmt: skip
    assert events[1].subject == f"{shop.name}.public.orders"
    assert (events[1].key, events[1].source) == ('{"id":2}', f"debezium://{shop.name}")
    assert len({event.id for event in events}) == 7


async def test_operations_and_properties(shop: Shop) -> None:
    """What is not asked for is not announced, and Debezium's own properties are handed on."""
    shop.insert(3)
    shop.do("ALTER TABLE orders REPLICA IDENTITY FULL")
    properties = {"provide.transaction.metadata": "true", "decimal.handling.mode": "double"}
    async with reading(shop, operations=["delete", "transaction"], properties=properties) as reader:
        shop.do("DELETE FROM orders WHERE id = 3")
        await reader.until(lambda reader: any(event.type == "debezium.delete" for event in reader.events))
    (deleted,) = [event for event in reader.events if event.type == "debezium.delete"]
    assert deleted.data["before"]["amount"] == 0.75
    assert deleted.correlation
    assert {event.type for event in reader.events} == {"debezium.delete", "debezium.transaction"}


async def test_logical_messages(shop: Shop) -> None:
    """A message that was written into the database's log is an event."""
    async with reading(shop, tables=[]) as reader:
        shop.do("SELECT pg_logical_emit_message(true, 'greeting', 'hello')")
        (event,) = await reader.read(1)
    assert (event.type, event.subject) == ("debezium.message", "greeting")
    assert event.data["message"]["content"] == "aGVsbG8="


async def test_a_snapshot_that_was_interrupted(shop: Shop) -> None:
    """A snapshot that begins again gives its rows the same ids, except those that changed meanwhile."""
    shop.insert(2_500)
    async with reading(shop) as reader:
        first = await reader.next()
    assert 0 < len(first.events) < 2_500
    changed = first.events[0].data["after"]["id"]
    shop.do("UPDATE orders SET note = 'changed' WHERE id = %s", changed)
    async with reading(shop, first.cursor) as reader:
        events = await reader.read(2_500)
    before, after = (
        {event.data["after"]["id"]: event.id for event in read} for read in (first.events, events)
    )
    assert {number for number, id in before.items() if after[number] != id} == {changed}


async def test_no_snapshot(shop: Shop) -> None:
    """With `no_data` only what changes from now on is announced."""
    shop.insert(3)
    async with reading(shop, snapshot="no_data") as reader:
        added = shop.insert(1)
        events = await reader.read(1)
    assert [str(event.data["after"]["id"]) for event in events] == added


async def test_equal_rows_without_a_primary_key(shop: Shop) -> None:
    """Rows that nothing tells apart are as many events as they are rows."""
    shop.do("CREATE TABLE notes (text text)")
    shop.do("INSERT INTO notes VALUES ('same'), ('same')")
    async with reading(shop, tables=["notes"]) as reader:
        await reader.read(2)
        with psycopg.connect(shop.url) as writing, writing.cursor().copy("COPY notes FROM STDIN") as copy:
            copy.write("same\nsame\nsame\n")
        events = await reader.read(5)
    assert len({event.id for event in events}) == 5


async def test_the_server_keeps_what_is_not_acked(shop: Shop) -> None:
    """The replication slot moves after the ack, and not before."""
    properties = {"status.update.interval.ms": "50"}
    async with reading(shop, snapshot="no_data", properties=properties) as reader:
        shop.insert(1)
        await reader.read(1, ack=False)
        shop.insert(5)
        kept = confirmed(shop)
        for _ in range(3):
            told = last_word(shop)
            while last_word(shop) == told:
                await asyncio.sleep(0.02)
        assert confirmed(shop) == kept
        await reader.deliveries[-1].ack()
        await reader.read(6)
        while confirmed(shop) == kept:
            shop.insert(1)
            await reader.read(len(reader.events) + 1)


async def test_the_process_ends_with_the_source(shop: Shop) -> None:
    """After close no process of the engine is left."""
    async with reading(shop):
        (process,) = engines(psutil.Process())
    assert not process.is_running()


async def test_a_killed_engine_is_an_error(shop: Shop) -> None:
    """An engine whose process is killed -9 ends the read with a SourceError, and the next one goes on."""
    async with reading(shop) as reader:
        waiting = asyncio.ensure_future(reader.next())
        (process,) = engines(psutil.Process())
        process.kill()
        with pytest.raises(SourceError, match="ended with -9"):
            await waiting
        await reader.source.connect(None)
        added = shop.insert(1)
        events = await Reader(reader.source).read(1)
    assert [str(event.data["after"]["id"]) for event in events] == added


async def test_the_process_ends_with_its_parent(shop: Shop, tmp_path: Path) -> None:
    """A reader that is killed -9 leaves no engine behind, also if a process that it forked lives on."""
    script, log = tmp_path / "reader.py", tmp_path / "reader.log"
    script.write_text(PARENT)
    known = msgspec.structs.asdict(connection(shop))
    known.pop("hook")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "AIRFLOW_CONN_SHOP": json.dumps(known),
    }
    child = Child([sys.executable, script, shop.name], log=log, env=env)
    async with asyncio.timeout(180):
        while "ready" not in tail(log):
            assert child.returncode is None, tail(log)
            await asyncio.sleep(0.05)
    (process,) = engines(psutil.Process(child.pid))
    child.kill()
    assert wait_gone([process], timeout=30) == []
    child.end()


PARENT = """
import asyncio, os, sys, time
from windsock.sources import make_source

async def main():
    source = make_source("debezium_engine", {"conn_id": "shop", "engine": sys.argv[1]})
    await source.connect(None)
    if os.fork() == 0:
        time.sleep(120)
        os._exit(0)
    print("ready", flush=True)
    await anext(aiter(source.read()))

asyncio.run(main())
"""


def engines(parent: psutil.Process) -> list[psutil.Process]:
    """The processes of engines that a process has started."""
    return [child for child in parent.children() if "_debezium_engine_process" in " ".join(child.cmdline())]
