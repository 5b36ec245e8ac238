"""The log's contract over memory, a SQLite file and PostgreSQL."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from windsock.log.postgres import PostgresLog
from windsock.log.sqlite import SqliteLog
from windsock.testing.logs import DurableLogContract, LogContract

if TYPE_CHECKING:
    from pathlib import Path

    from windsock.testing.logs.scene import OpenLog
    from windsock.testing.postgres import PostgresServer


class TestMemoryLog(LogContract):
    """SQLite without a file."""

    @pytest.fixture
    def open_log(self) -> OpenLog:
        return lambda clock: SqliteLog(":memory:", clock=clock)


class TestSqliteLog(DurableLogContract):
    """A SQLite file."""

    @pytest.fixture
    def open_log(self, tmp_path: Path) -> OpenLog:
        return lambda clock: SqliteLog(tmp_path / "windsock.db", clock=clock)


class TestPostgresLog(DurableLogContract):
    """PostgreSQL, each test in a schema of its own."""

    @pytest.fixture
    def open_log(self, postgres: PostgresServer) -> OpenLog:
        url, schema = postgres.url("contract"), f"t{uuid.uuid4().hex}"
        return lambda clock: PostgresLog(url, schema=schema, clock=clock)
