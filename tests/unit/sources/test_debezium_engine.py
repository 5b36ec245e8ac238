"""Debezium's engine: the properties it is given, and what is said when it cannot run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from windsock.connections import Connection, fixed
from windsock.events import SourceError, WindsockError
from windsock.sources import debezium_engine, make_source
from windsock.sources.base import MAX_DELIVERY
from windsock.sources.debezium_engine import DebeziumEngineConfig, properties_of


def connection(**fields: Any) -> Connection:
    """A Connection to a database."""
    plain = {"host": "db", "port": 5432, "login": "me", "password": "secret-horse", "schema": "shop"}
    return Connection(conn_id="shop", **{"conn_type": "postgres", **plain, **fields})


def properties(
    connected: Connection | None = None, *, resumes: bool = False, **options: Any
) -> dict[str, str]:
    """The engine's properties."""
    config = DebeziumEngineConfig(conn_id="shop", **options)
    return properties_of(connected or connection(), config, resumes=resumes)


def test_postgresql() -> None:
    """A PostgreSQL is read through a slot and a publication of the engine's name, over TLS if it says so."""
    found = properties(
        connection(extra={"sslmode": "verify-full", "sslrootcert": "/ca.pem"}), engine="orders"
    )
    assert found["connector.class"] == "io.debezium.connector.postgresql.PostgresConnector"
    assert (found["database.hostname"], found["database.port"]) == ("db", "5432")
    assert (found["database.user"], found["database.password"]) == ("me", "secret-horse")
    assert found["database.dbname"] == "shop"
    assert (found["slot.name"], found["publication.name"], found["topic.prefix"]) == ("orders",) * 3
    assert (found["database.sslmode"], found["database.sslrootcert"]) == ("verify-full", "/ca.pem")
    assert "database.sslcert" not in found
    assert "table.include.list" not in found


def test_mysql() -> None:
    """A MySQL without a history file looks at its tables anew when it resumes."""
    mysql = connection(conn_type="mysql", port=3306, extra={"ssl_mode": "required"})
    first, later = properties(mysql), properties(mysql, resumes=True)
    assert (first["snapshot.mode"], later["snapshot.mode"]) == ("initial", "recovery")
    assert first["schema.history.internal"].endswith("MemorySchemaHistory")
    assert first["database.include.list"] == "shop"
    assert first["database.ssl.mode"] == "required"
    assert first["database.server.id"] != properties(mysql, engine="other")["database.server.id"]
    kept = properties(mysql, resumes=True, history_file="/data/history")
    assert kept["snapshot.mode"] == "initial"
    assert kept["schema.history.internal.file.filename"] == "/data/history"


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (("orders",), "[^.]*[.]orders"),
        (("public.orders", "public.c*"), "public[.]orders,public[.]c[^.]*"),
        (("shop.public.order?",), "public[.]order."),
    ],
)
def test_tables(tables: tuple[str, ...], expected: str) -> None:
    """Debezium reads only the tables that are wanted, whichever way they are written."""
    assert properties(tables=tables)["table.include.list"] == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [((), "none"), (("create", "read"), "u,d,t"), (("create", "update", "delete", "truncate"), "none")],
)
def test_operations(operations: tuple[Any, ...], expected: str) -> None:
    """Debezium does not even read operations that are not wanted, and does read truncations if they are."""
    assert properties(operations=operations)["skipped.operations"] == expected


def test_what_the_user_sets_wins_except_for_what_holds_the_guarantee() -> None:
    """Any property can be set, but not where offsets are kept nor how large a batch is."""
    given = {
        "slot.name": "mine",
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "max.batch.size": "9999",
        "offset.storage": "elsewhere",
    }
    found = properties(connection(conn_type="mssql"), properties=given)
    assert (found["slot.name"], found["connector.class"]) == ("mine", given["connector.class"])
    assert found["max.batch.size"] == str(MAX_DELIVERY)
    assert found["offset.storage"].endswith("FileOffsetBackingStore")


def test_a_database_that_is_not_known() -> None:
    """A Connection of another type needs the connector's class."""
    with pytest.raises(SourceError, match=r"name the `connector\.class`"):
        properties(connection(conn_type="oracle"))


@pytest.mark.parametrize("name", ["", "Orders", "1st", "or-ders"])
def test_a_name_that_postgresql_refuses(name: str) -> None:
    """The name is one that a replication slot can have."""
    with pytest.raises(WindsockError, match="name"):
        make_source("debezium_engine", {"conn_id": "shop", "name": name})


def _process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Any:
    """A source whose engine is another program, which takes its order and then does what the script says."""
    module = tmp_path / "other_engine.py"
    module.write_text(
        "import os, sys, time\n"
        "order = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), 'big'))\n"
        f"{script}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(debezium_engine, "_PROCESS", "other_engine")
    return make_source("debezium_engine", {"conn_id": "shop"}, fixed(connection()))


@pytest.mark.parametrize(
    "jpype", ["raise ImportError('no module')", "def startJVM(*_, **__): raise OSError('no libjvm.so')"]
)
async def test_a_machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jpype: str) -> None:
    """Without Java, or the library that starts it, the error says what to install."""
    (tmp_path / "jpype.py").write_text(jpype)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    source = make_source("debezium_engine", {"conn_id": "shop"}, fixed(connection()))
    with pytest.raises(
        SourceError, match=r"no (module|libjvm.so)\): pip install 'windsock\[debezium\]', install Java"
    ):
        await source.connect(None)
    await source.close()


async def test_a_process_that_ends_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that just ends is an error with its exit code."""
    source = _process(tmp_path, monkeypatch, "sys.exit(7)")
    with pytest.raises(SourceError, match="ended with 7"):
        await source.connect(None)
    await source.close()


async def test_a_reason_with_the_password_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine says is shown without the password."""
    script = (
        "from windsock.sources._debezium_engine_process import Failed\n"
        "import msgspec\n"
        "frame = msgspec.msgpack.encode(Failed(reason='login with secret-horse failed'))\n"
        "sys.stdout.buffer.write(len(frame).to_bytes(4, 'big') + frame)\n"
    )
    source = _process(tmp_path, monkeypatch, script)
    with pytest.raises(SourceError, match=r"login with \*\*\* failed.*: check connection 'shop'"):
        await source.connect(None)
    await source.close()


async def test_a_process_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Close returns although the engine's process does not end by itself."""
    monkeypatch.setattr(debezium_engine, "_GRACE", 0.05)
    source = _process(tmp_path, monkeypatch, "time.sleep(600)")
    connecting = asyncio.ensure_future(source.connect(None))
    while source._engine is None:
        await asyncio.sleep(0.01)
    process = source._engine._process
    await source.close()
    assert process.returncode == -9
    with pytest.raises(BaseException):  # noqa: B017, PT011 - it was closed before it was ready
        await connecting


async def test_the_password_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order travels through the pipe."""
    seen = tmp_path / "seen"
    script = f"open({str(seen)!r}, 'w').write(repr(sys.argv) + repr(b'secret-horse' in order)); sys.exit(1)"
    source = _process(tmp_path, monkeypatch, script)
    with pytest.raises(SourceError):
        await source.connect(None)
    await source.close()
    assert seen.read_text().endswith("True")
    assert "secret-horse" not in seen.read_text()
