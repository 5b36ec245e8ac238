"""Airflow's Connections and hooks, as a source meets them inside the triggerer."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder
from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import _RequestFrame, _ResponseFrame

from windsock.airflow.connections import airflow_connection
from windsock.events import SourceError
from windsock.sources import make_source
from windsock.sources._sql_database import Database
from windsock.sources._thread import Worker


class Supervisor:
    """The other end of a triggerer's line: answers requests and remembers them."""

    def __init__(self, line: socket.socket, known: dict[str, dict[str, Any]]) -> None:
        self.requests: list[str] = []
        self._line = line
        self._known = known
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        decoder = msgspec.msgpack.Decoder(_RequestFrame)
        while header := self._line.recv(4, socket.MSG_WAITALL):
            frame = decoder.decode(self._line.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL))
            self.requests.append(frame.body["type"])
            body = None
            if frame.body["type"] == "GetConnection":
                found = self._known[frame.body["conn_id"]]
                fields = dict.fromkeys(("host", "schema", "login", "password", "port", "extra"))
                body = {**fields, "type": "ConnectionResult", "conn_id": frame.body["conn_id"], **found}
            self._line.sendall(_ResponseFrame(id=frame.id, body=body).as_bytes())

    def end(self) -> None:
        self._line.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._line.close()


@pytest.fixture
def triggerer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """This process as Airflow's triggerer: Connections come from a supervisor, over its real protocol."""

    @asynccontextmanager
    async def inside(**known: dict[str, Any]) -> AsyncIterator[Supervisor]:
        ours, theirs = socket.socketpair()
        supervisor = Supervisor(theirs, known)
        reader, writer = await asyncio.open_connection(sock=ours)
        comms = TriggerCommsDecoder(async_reader=reader, async_writer=writer, socket=ours)
        await comms.start_reader()
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
        try:
            yield supervisor
        finally:
            comms._reader_task.cancel()
            await asyncio.wait({comms._reader_task})
            writer.close()
            await writer.wait_closed()
            supervisor.end()

    return inside


def table(path: Path) -> dict[str, Any]:
    """A SQLite file with one row, as the fields of a Connection."""
    with closing(sqlite3.connect(path)) as client:
        client.execute("CREATE TABLE t (id integer PRIMARY KEY, note text)")
        client.execute("INSERT INTO t VALUES (1, 'first')")
        client.commit()
    return {"conn_type": "sqlite", "host": str(path)}


async def test_a_hook_asks_for_no_connection_again(triggerer: Callable[..., Any], tmp_path: Path) -> None:
    """The hook of a Connection works in a thread while the loop goes on, without asking the supervisor."""
    async with triggerer(shop=table(tmp_path / "shop.db")) as supervisor:
        connection = await airflow_connection("shop")
        assert supervisor.requests.count("GetConnection") == 1
        database = Database(connection, timeout=5)
        worker = Worker("test")
        await worker.call(database.open)
        _, rows = await worker.call(lambda: database.ask(("SELECT note FROM t", [])))
        await worker.call(database.close)
        worker.end()
        assert rows == [("first",)]
        assert supervisor.requests.count("GetConnection") == 1


async def test_a_source_inside_the_triggerer(triggerer: Callable[..., Any], tmp_path: Path) -> None:
    """The SQL source reads through Airflow's hook and notices new rows."""
    path = tmp_path / "shop.db"
    async with triggerer(shop=table(path)):
        options = {"conn_id": "shop", "table": "t", "cursor_column": "id", "poll": 0.05}
        source = make_source("sql", options, airflow_connection)
        await source.connect(None)
        stream = source.read()
        found = [event.data for event in (await anext(stream)).events]
        with closing(sqlite3.connect(path)) as client:
            client.execute("INSERT INTO t VALUES (2, 'second')")
            client.commit()
        found += [event.data for event in (await anext(stream)).events]
        await source.close()
    assert found == [{"id": 1, "note": "first"}, {"id": 2, "note": "second"}]


@pytest.mark.parametrize(
    ("conn_type", "hook", "dialect", "placeholder"),
    [("sqlite", SqliteHook, "sqlite", "?"), ("postgres", PostgresHook, "postgresql", "%s")],
)
async def test_hooks_of_the_providers(
    triggerer: Callable[..., Any], conn_type: str, hook: type[DbApiHook], dialect: str, placeholder: str
) -> None:
    """Each SQL provider's hook is made with the Connection at hand, and says how its database writes."""
    fields = {"conn_type": conn_type, "host": "db.example.com", "login": "reader", "password": "s3cret"}
    async with triggerer(shop=fields) as supervisor:
        connection = await airflow_connection("shop")
        assert connection.hook is not None
        made = await asyncio.to_thread(connection.hook)
        assert type(made) is hook
        assert await asyncio.to_thread(lambda: made.connection.password) == "s3cret"
        assert await asyncio.to_thread(lambda: made.get_connection("shop").host) == "db.example.com"
        assert await asyncio.to_thread(lambda: (made.dialect_name, made.placeholder)) == (
            dialect,
            placeholder,
        )
        assert supervisor.requests.count("GetConnection") == 1


async def test_a_hook_may_ask_for_other_connections(triggerer: Callable[..., Any]) -> None:
    """A hook that needs a second Connection (a cloud's login) still finds it."""
    cloud = {"conn_type": "aws", "login": "key"}
    async with triggerer(shop={"conn_type": "sqlite", "host": "/x"}, cloud=cloud):
        connection = await airflow_connection("shop")
        assert connection.hook is not None
        made = await asyncio.to_thread(connection.hook)
        found = await asyncio.to_thread(made.get_connection, "cloud")
    assert found.login == "key"


async def test_a_connection_that_is_not_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown id says where to add it."""
    monkeypatch.delenv("AIRFLOW_CONN_NOT_THERE", raising=False)
    with pytest.raises(SourceError, match="add it under Admin > Connections"):
        await airflow_connection("not_there")
