"""The SQL source over PostgreSQL, MariaDB and SQLite."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg
import pymysql
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.testing.processes import free_port
from windsock.testing.services import Service
from windsock.testing.sources import (
    MalformedInput,
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

MORNING = dt.datetime(2026, 3, 1, 6, 0, tzinfo=dt.UTC)


class Database(Protocol):
    """What a test needs of a database."""

    stamp: str
    """The type of a time stamp."""
    text: str
    """The type of a text that can be a key."""

    def connection(self, conn_id: str) -> Connection: ...

    def client(self) -> Any:
        """A DB-API connection."""

    def at(self, moment: dt.datetime) -> Any:
        """The parameter for a time stamp."""


class Server:
    """A database server behind a wire."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.wire = Wire("127.0.0.1", service.port)

    def connection(self, conn_id: str) -> Connection:
        return msgspec.structs.replace(self.service.connection(conn_id), port=self.wire.port)


class OnPostgres(Server):
    stamp = "timestamptz"
    text = "text"

    def client(self) -> Any:
        return psycopg.connect(self.service.url())

    def at(self, moment: dt.datetime) -> Any:
        return moment


class OnMariaDB(Server):
    stamp = "datetime(6)"
    text = "varchar(700) character set ascii"

    def client(self) -> Any:
        at = self.service.connection("direct")
        return pymysql.connect(
            host=at.host, port=at.port, user=at.login, password=at.password, database=at.schema
        )

    def at(self, moment: dt.datetime) -> Any:
        return moment.replace(tzinfo=None)


class OnSqlite:
    stamp = "text"
    text = "text"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "shop.db"
        with closing(self.client()) as client:
            client.execute("PRAGMA journal_mode=WAL")

    def connection(self, conn_id: str) -> Connection:
        return Connection(conn_id=conn_id, conn_type="sqlite", host=str(self.path))

    def client(self) -> Any:
        return sqlite3.connect(self.path, timeout=30)

    def at(self, moment: dt.datetime) -> Any:
        return moment.isoformat(sep=" ")


@pytest.fixture(scope="module")
def on_postgres(serve: Callable[[str], Service]) -> Iterator[OnPostgres]:
    server = OnPostgres(serve("postgres"))
    yield server
    server.wire.close()


@pytest.fixture(scope="module")
def on_mariadb(serve: Callable[[str], Service]) -> Iterator[OnMariaDB]:
    server = OnMariaDB(serve("mariadb"))
    yield server
    server.wire.close()


class SqlHooks:
    """A table of its own for each test, in which rows share their time stamp by threes."""

    kind = "sql"
    database: Any
    cursor_column = "updated_at"

    def fresh(self, database: Any) -> None:
        self.database = database
        self.table = f"orders_{uuid.uuid4().hex[:12]}"
        self.number = 0
        self.run(
            f"CREATE TABLE {self.table} (id integer NOT NULL, region {database.text} NOT NULL, "
            f"updated_at {database.stamp}, note text, PRIMARY KEY (region, id))"
        )

    def options(self) -> dict[str, Any]:
        return {
            "conn_id": "shop",
            "table": self.table,
            "cursor_column": self.cursor_column,
            "primary_key": ["region", "id"],
            "poll": 0.1,
        }

    def connections(self) -> Sequence[Connection]:
        return [self.database.connection("shop")]

    def run(self, sql: str, *rows: Sequence[Any]) -> None:
        with closing(self.database.client()) as client:
            self.execute(client, sql, *rows)
            client.commit()

    def execute(self, client: Any, sql: str, *rows: Sequence[Any]) -> None:
        if isinstance(client, sqlite3.Connection):
            sql = sql.replace("%s", "?")
        with closing(client.cursor()) as cursor:
            if rows:
                cursor.executemany(sql, list(rows))
            else:
                cursor.execute(sql)

    @property
    def insert(self) -> str:
        return f"INSERT INTO {self.table} (id, region, updated_at, note) VALUES (%s, %s, %s, %s)"

    def row(self, number: int, region: str = "north", note: str = "new") -> tuple[Any, ...]:
        return number, region, self.database.at(MORNING + dt.timedelta(microseconds=number // 3)), note

    async def produce(self, count: int) -> list[str]:
        numbers = range(self.number, self.number + count)
        self.number += count
        self.run(self.insert, *(self.row(number) for number in numbers))
        return [str(number) for number in numbers]

    async def produce_malformed(self) -> bytes:
        self.number += 1
        region = "ä" * 690 if self.database.text == "text" else "%" * 690  # too long for a key when quoted
        self.run(self.insert, self.row(self.number - 1, region))
        return region[:100].encode("utf-8")

    def identity(self, event: Event) -> str:
        return str(event.data["id"])

    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        return {**self.options(), "table": "not_there"}, self.connections()  # type: ignore[attr-defined]

    async def source(self, **more: Any) -> Any:
        """A source with other options."""
        return make_source("sql", {**self.options(), **more}, fixed(*self.connections()))


class RowsContract(SqlHooks, SourceContract, MalformedInput, ReaderProcesses, Missing):
    """What holds in every database."""

    async def test_rows_with_the_same_time_stamp(self) -> None:
        """Rows that share a time stamp all arrive, over the borders of pages and restarts."""
        moment = self.database.at(MORNING)
        rows = [(number, "north", moment, "same") for number in range(25)]
        self.run(self.insert, *rows)
        source = await self.source(page=4)
        seen: list[int] = []
        cursor = None
        while len(seen) < 25:
            await source.connect(cursor)
            delivery = await anext(d async for d in source.read() if d.events)
            seen += [event.data["id"] for event in delivery.events]
            cursor = msgspec.json.decode(msgspec.json.encode(delivery.cursor))
            await source.close()
        assert seen == list(range(25))

    async def test_a_row_committed_late(self) -> None:
        """A row behind the watermark, whose transaction was slower than others, is announced once."""
        async with self.reading() as reader:
            produced = await self.produce(9)
            await reader.read(9)
            self.run(self.insert, (4, "south", self.database.at(MORNING), "late"))
            produced.append("4")
            await reader.read(10)
            produced += await self.produce(3)
            events = await reader.read(13)
        assert self.identities(events) == produced

    async def test_a_row_committed_late_while_nobody_watched(self) -> None:
        """A late row of the time between two readers is found, and the rows around it do not come again."""
        async with self.reading() as reader:
            await self.produce(9)
            await reader.read(9)
            cursor = reader.cursor()
        self.run(self.insert, (4, "south", self.database.at(MORNING), "late"))
        async with self.reading(cursor) as reader:
            produced = await self.produce(3)
            events = await reader.read(4)
        assert self.identities(events) == ["4", *produced]

    async def test_a_changed_row_comes_again(self) -> None:
        """A row whose time stamp is renewed is another event with the same key."""
        async with self.reading() as reader:
            await self.produce(3)
            await reader.read(3)
            later = self.database.at(MORNING + dt.timedelta(hours=1))
            self.run(f"UPDATE {self.table} SET updated_at = %s, note = %s WHERE id = 1", (later, "changed"))
            events = await reader.read(4)
        assert [event.key for event in events] == ["north/0", "north/1", "north/2", "north/1"]
        assert [event.data["note"] for event in events] == ["new", "new", "new", "changed"]
        assert len({event.id for event in events}) == 4

    async def test_an_event_has_the_row(self) -> None:
        """An event says where it came from, in what order, and carries the chosen columns."""
        await self.produce(1)
        source = await self.source(columns=["note", "id"])
        await source.connect(None)
        delivery = await anext(source.read())
        (event,) = delivery.events
        await source.close()
        assert (event.type, event.source, event.subject) == (
            "windsock.sql.row",
            f"sql://shop/{self.table}",
            self.table,
        )
        assert event.data == {"note": "new", "id": 0}
        assert event.id.startswith(f"{self.table}/north/0/2026-03-01")
        assert event.sequence is not None

    async def test_an_id_as_the_cursor(self) -> None:
        """A growing number needs no primary key; what commits behind it is found all the same."""
        source = await self.source(cursor_column="id", primary_key=[])
        await source.connect(None)
        stream = source.read()
        self.run(self.insert, self.row(10), self.row(12))
        assert [event.data["id"] for event in (await anext(stream)).events] == [10, 12]
        self.run(self.insert, self.row(11))
        assert [event.data["id"] for event in (await anext(stream)).events] == [11]
        await source.close()

    async def test_a_time_stamp_without_a_primary_key(self) -> None:
        """A cursor column that rows may share is refused without a primary key, with the remedy."""
        await self.produce(2)
        source = await self.source(primary_key=[])
        await source.connect(None)
        with pytest.raises(SourceError, match="primary_key"):
            await anext(source.read())
        await source.close()

    async def test_only_rows_that_match(self) -> None:
        """The author's condition is applied as it is, percent signs included."""
        self.run(self.insert, self.row(1, note="50% off"), self.row(2, note="none"), self.row(3, note="9%"))
        source = await self.source(filter="note LIKE '%!%%' ESCAPE '!'")
        await source.connect(None)
        first = await anext(source.read())
        assert [event.data["id"] for event in first.events] == [1, 3]
        assert await source.lag() == 0
        await source.close()

    async def test_from_the_latest(self) -> None:
        """A watcher that starts at the latest announces nothing older, also after an early crash."""
        await self.produce(5)
        source = await self.source(start="latest")
        await source.connect(None)
        first = await anext(source.read())
        await source.close()
        assert not first.events
        produced = await self.produce(2)
        await source.connect(msgspec.json.decode(msgspec.json.encode(first.cursor)))
        events = (await anext(source.read())).events
        await source.close()
        assert self.identities(events) == produced

    async def test_rows_without_a_time_stamp(self) -> None:
        """A row whose cursor column is NULL is not seen until it has a value."""
        self.run(self.insert, (1, "north", None, "draft"))
        async with self.reading() as reader:
            await self.produce(1)
            await reader.read(1)
            self.run(f"UPDATE {self.table} SET updated_at = %s WHERE id = 1", (self.row(9)[2],))
            events = await reader.read(2)
        assert self.identities(events) == ["0", "1"]

    async def test_a_missing_column(self) -> None:
        """A column that is not there is an error at connect, with the remedy."""
        source = await self.source(cursor_column="changed_at")
        with pytest.raises(SourceError, match=r"changed_at.*check the names"):
            await source.connect(None)
        await source.close()

    async def test_counts(self) -> None:
        """The count is announced when it changes, with the one before."""
        source = await self.source(mode="count", cursor_column=None, primary_key=[])
        await source.connect(None)
        stream = (d async for d in source.read() if d.events)
        counted = [(await anext(stream)).events[0].data]
        await self.produce(3)
        counted.append((await anext(stream)).events[0].data)
        self.run(f"DELETE FROM {self.table}")
        counted.append((await anext(stream)).events[0].data)
        await source.close()
        assert [(data["previous"], data["count"]) for data in counted] == [(None, 0), (0, 3), (3, 0)]

    async def test_a_count_reaches_its_threshold(self) -> None:
        """The threshold is announced once when it is reached, and again after the count was below it."""
        source = await self.source(mode="count", threshold=5, filter="note = 'new'", cursor_column=None)
        await source.connect(None)
        stream = source.read()
        found: list[Any] = []

        async def until(count: int) -> None:
            while not found or found[-1]["value"] != count:
                delivery = await anext(stream)
                found.append({"value": delivery.cursor.get("value")})
                found[-1]["announced"] = [event.data["count"] for event in delivery.events]

        for count, change in ((4, 4), (6, 2), (7, 1)):
            await self.produce(change)
            await until(count)
        self.run(f"DELETE FROM {self.table} WHERE id > 1")
        await until(2)
        await self.produce(4)
        await until(6)
        await source.close()
        assert [item["announced"] for item in found if item["announced"]] == [[6], [6]]

    async def test_a_condition_becomes_true(self) -> None:
        """A flag is announced when it is raised, not while it stays, and again when it is raised anew."""
        source = await self.source(mode="condition", filter="note = 'ready'", cursor_column=None)
        await source.connect(None)
        stream = source.read()
        raised: list[Event] = []

        async def until(holds: bool) -> None:
            while True:
                delivery = await anext(stream)
                raised.extend(delivery.events)
                if delivery.cursor.get("value") is holds:
                    return

        await until(False)
        self.run(self.insert, self.row(1, note="ready"))
        await until(True)
        cursor = {"since": "then", "number": 1, "value": True}
        self.run(f"DELETE FROM {self.table}")
        await until(False)
        self.run(self.insert, self.row(2, note="ready"))
        await until(True)
        await source.close()
        assert [event.data["id"] for event in raised] == [1, 2]
        assert len({event.id for event in raised}) == 2
        await source.connect(cursor)
        waiting = asyncio.create_task(anext(d async for d in source.read() if d.events))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
        await source.close()

    async def test_a_condition_by_query(self) -> None:
        """A query of the author's decides, its first value being the flag; repeated while it holds."""
        self.run(self.insert, self.row(1, note="no"))
        options = {
            "conn_id": "shop",
            "mode": "condition",
            "query": f"SELECT note, id FROM {self.table} WHERE note LIKE '%'",
            "repeat": True,
            "poll": 0.05,
        }
        source = make_source("sql", options, fixed(*self.connections()))
        await source.connect(None)
        stream = (d async for d in source.read() if d.events)
        waiting = asyncio.create_task(anext(stream))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
        self.run(f"UPDATE {self.table} SET note = 'yes'")
        deliveries = [await waiting, await anext(stream)]
        await source.close()
        assert [d.events[0].data for d in deliveries] == [{"note": "yes", "id": 1}] * 2
        assert [d.events[0].sequence for d in deliveries] == ["1", "2"]

    async def test_nothing_is_left_open(self) -> None:
        """Between two looks no transaction is open, so the table can be changed by anyone."""
        async with self.reading() as reader:
            await self.produce(1)
            await reader.read(1)
            await asyncio.to_thread(self.run, f"ALTER TABLE {self.table} ADD COLUMN more integer")
            await self.produce(1)
            events = await reader.read(2)
        assert "more" in events[1].data


class ServerContract(RowsContract, ServerFaults, Unreachable, WrongCredentials):
    """What holds in every database that is a server."""

    database: Any

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.database.service.restart)

    async def cut(self) -> None:
        self.database.wire.cut()

    async def mend(self) -> None:
        self.database.wire.mend()

    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        known = self.database.connection("shop")
        return self.options(), [msgspec.structs.replace(known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        known = self.database.connection("shop")
        return self.options(), [msgspec.structs.replace(known, password="not-the-password")]

    async def test_a_transaction_that_commits_late(self) -> None:
        """A real transaction that writes early and commits late loses nothing."""
        async with self.reading() as reader:
            with closing(self.database.client()) as slow:
                self.execute(slow, self.insert, self.row(100, "slow"), self.row(101, "slow"))
                await self.produce(3)
                self.run(self.insert, self.row(300, "fast"))
                await reader.read(4)
                slow.commit()
            events = await reader.read(6)
        assert sorted(event.key or "" for event in events[4:]) == ["slow/100", "slow/101"]


class TestSqlOnPostgres(ServerContract):
    """PostgreSQL through psycopg."""

    @pytest.fixture(autouse=True)
    def system(self, on_postgres: OnPostgres) -> None:
        self.fresh(on_postgres)

    async def test_times_that_python_has_no_date_for(self) -> None:
        """Infinity and the year 10000 are read as text, and do not stop their neighbours."""
        self.run(f"ALTER TABLE {self.table} ADD COLUMN until timestamptz")
        self.run(self.insert, self.row(1), self.row(2))
        self.run(f"UPDATE {self.table} SET until = 'infinity' WHERE id = 1")
        async with self.reading() as reader:
            events = await reader.read(2)
        assert [event.data["until"] for event in events] == ["infinity", None]

    async def test_names_with_capitals_and_quotes(self) -> None:
        """Names are quoted, whatever they hold."""
        self.run('CREATE TABLE IF NOT EXISTS public."Odd ""Table" ("Id" int PRIMARY KEY, "order" int)')
        self.run('INSERT INTO public."Odd ""Table" VALUES (1, 2) ON CONFLICT DO NOTHING')
        source = await self.source(
            table='public.Odd "Table', cursor_column="order", primary_key=["Id"], columns=[]
        )
        await source.connect(None)
        delivery = await anext(source.read())
        await source.close()
        assert delivery.events[0].data == {"Id": 1, "order": 2}


class TestSqlOnMariaDB(ServerContract):
    """MariaDB through pymysql."""

    @pytest.fixture(autouse=True)
    def system(self, on_mariadb: OnMariaDB) -> None:
        self.fresh(on_mariadb)


class TestSqlOnSqlite(RowsContract):
    """SQLite through the standard library; time stamps are text."""

    @pytest.fixture(autouse=True)
    def system(self, tmp_path: Path) -> None:
        self.fresh(OnSqlite(tmp_path))

    async def test_text_that_is_no_text(self) -> None:
        """Bytes that are no UTF-8 in a text column become visible escapes and stop nothing."""
        self.run(f"INSERT INTO {self.table} VALUES (1, 'north', '2026', CAST(x'ff41' AS text))")
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert event.data["note"] == "\\udcffA"

    async def test_a_missing_file(self) -> None:
        """A file that is not there is an error, not a new empty database."""
        path = self.database.path.with_name("not-there.db")
        missing = Connection(conn_id="shop", conn_type="sqlite", host=str(path))
        source = make_source("sql", self.options(), fixed(missing))
        with pytest.raises(SourceError, match="unable to open"):
            await source.connect(None)
        await source.close()
        assert not path.exists()
