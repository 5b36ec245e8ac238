"""What the modes of the SQL source share: a thread with a connection, asked at intervals."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from windsock.sources._ending import Ending
from windsock.sources._sql_database import Database
from windsock.sources._sql_statements import Statement, Statements
from windsock.sources._thread import Worker
from windsock.sources.base import Cursor, Delivery

if TYPE_CHECKING:
    from windsock.sources.sql import SqlConfig

__all__ = ["Session"]

T = TypeVar("T")


class Session(ABC):
    """One connection, from ``connect`` to ``close``. What waits when it is closed raises ``Ended``."""

    order: tuple[str, ...] = ()
    """The columns that rows are ordered by."""
    statements: Statements

    def __init__(self, options: SqlConfig, database: Database) -> None:
        self.options = options
        self.source = f"sql://{options.conn_id}/{options.table or 'query'}"
        self._database = database
        self._worker = Worker(f"windsock-sql-{options.conn_id}")
        self._ending = Ending()

    async def open(self, cursor: Cursor | None) -> None:
        """Connect, find the table, take position."""
        await self._do(self._database.open)
        self.statements = Statements(
            self._database.dialect,
            table=self.options.table or "",
            order=self.order,
            columns=self.options.columns,
            where=self.options.filter,
        )
        if self.options.table:
            await self.ask(self.statements.probe())
        await self.take_position(cursor)

    @abstractmethod
    async def take_position(self, cursor: Cursor | None) -> None:
        """Go on from the cursor, or begin where the options say."""

    @abstractmethod
    def read(self) -> AsyncIterator[Delivery]:
        """Deliveries, poll by poll."""

    async def lag(self) -> int | None:
        """How many rows wait, if that can be said."""
        return None

    def close(self) -> None:
        """End what runs, without waiting for it: a driver may not let itself be interrupted."""
        self._ending.end()
        if self._worker.busy:
            # A thread of its own, because telling the server to stop may block as well.
            threading.Thread(target=self._database.interrupt, daemon=True).start()
        self._worker.submit(self._database.close)
        self._worker.end()

    async def ask(self, statement: Statement) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows."""
        return await self._do(lambda: self._database.ask(statement))

    async def rest(self, began: float) -> None:
        """Wait for the next poll; a table that takes long to read is left alone for at least twice that."""
        took = time.monotonic() - began
        await self._ending.first(asyncio.sleep(max(self.options.poll - took, 2 * took)))

    async def _do(self, call: Callable[[], T]) -> T:
        return await self._ending.first(self._worker.call(call))
