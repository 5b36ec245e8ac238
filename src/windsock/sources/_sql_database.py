"""A database behind an Airflow Connection, for one thread that may block.

Inside Airflow the connection comes from Airflow's own hook of that conn_type, so every database with an
Airflow SQL provider is reached the way its tasks reach it. Outside, ``sqlite``, ``postgres`` and ``mysql``
are opened here from the same fields and extras.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.sources import _postgres
from windsock.sources._sql_statements import Dialect, Statement

__all__ = ["Database"]

_CREDENTIALS = r"access denied|authentication|password|login failed|permission|not authori[sz]ed|credential"
_MISSING = (
    r"no such (table|column)|does ?n[o']t exist|unknown (table|column|database)|invalid (object|column)"
    r"|invalid identifier|not found"
)
_REMEDIES = {
    _CREDENTIALS: "check login, password and rights of the connection",
    _MISSING: "check the names in the watcher's options, capitals included, and create what is missing",
    r"syntax": "check 'filter' or 'query' in the watcher's options",
}


class Database:
    """One connection to a database; all methods but :meth:`interrupt` belong to one thread."""

    def __init__(self, connection: Connection, *, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._client: Any = None
        self.dialect = Dialect()

    def open(self) -> None:
        """Connect; raises SourceError."""
        try:
            if self._connection.hook is not None:
                self._open_by_hook(self._connection.hook())
            else:
                self._open_by_type()
        except SourceError:
            raise
        except Exception as error:
            raise self._failure(error, "cannot be opened") from error
        if isinstance(self._client, sqlite3.Connection):
            # SQLite stores whatever text it is given; one broken row must not stop the others.
            self._client.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        elif type(self._client).__module__.partition(".")[0] == "psycopg":
            _postgres.lenient(self._client)

    def ask(self, statement: Statement) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows. No transaction is left open, so nothing in the database waits for us."""
        sql, parameters = statement
        client = self._client
        if client is None:
            raise SourceError(f"connection {self._connection.conn_id!r} is closed: connect first")
        try:
            cursor = client.cursor()
            try:
                cursor.execute(*((sql, parameters) if parameters else (sql,)))
                names = [str(column[0]) for column in cursor.description or ()]
                rows = [tuple(r.values()) if isinstance(r, Mapping) else tuple(r) for r in cursor.fetchall()]
            finally:
                cursor.close()
            with contextlib.suppress(Exception):  # not every database has transactions
                client.rollback()
        except Exception as error:
            raise self._failure(error, "cannot be read") from error
        return names, rows

    def interrupt(self) -> None:
        """Stop the statement that runs, from another thread, if the driver can."""
        client = self._client
        with contextlib.suppress(Exception):  # best effort: the statement's own time-out ends it as well
            if hasattr(client, "cancel_safe"):
                # Never psycopg's older cancel(): it holds the interpreter's lock while it waits.
                if _postgres.psycopg().capabilities.has_cancel_safe():
                    client.cancel_safe(timeout=5.0)
            elif stop := getattr(client, "interrupt", None) or getattr(client, "cancel", None):
                stop()

    def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # it may be broken, which is why it is closed
                client.close()

    def _open_by_hook(self, hook: Any) -> None:
        if not hasattr(hook, "get_conn") or not hasattr(hook, "placeholder"):
            raise SourceError(
                f"connection {self._connection.conn_id!r} of type {self._connection.conn_type!r} is no SQL "
                "database to Airflow: use a connection whose provider has a SQL hook"
            )
        self._client = hook.get_conn()
        name = str(getattr(hook, "dialect_name", "default"))
        self.dialect = Dialect(
            name=self._connection.conn_type if name == "default" else name, placeholder=hook.placeholder
        )

    def _open_by_type(self) -> None:
        connection = self._connection
        match connection.conn_type:
            case "sqlite":
                self._client = self._sqlite()
                self.dialect = Dialect(name="sqlite", placeholder="?")
            case "postgres" | "postgresql":
                chosen = {"options": f"-c statement_timeout={int(self._timeout * 1000)}"}
                self._client = _postgres.psycopg().connect(**{**chosen, **_postgres.parameters(connection)})
                self.dialect = Dialect(name="postgresql")
            case "mysql" | "mariadb":
                self._client = self._mysql()
                self.dialect = Dialect(name="mysql")
            case other:
                raise SourceError(
                    f"connection {connection.conn_id!r} has type {other!r}, which only Airflow's hook can "
                    "open: run the watcher inside Airflow with its provider installed, or use sqlite, "
                    "postgres or mysql"
                )

    def _sqlite(self) -> sqlite3.Connection:
        at = self._connection
        path = at.host or (f"/{at.schema.lstrip('/')}" if at.schema else "")
        # An address with a mode: a file that is missing must be an error, not a new database.
        return sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, timeout=self._timeout)

    def _mysql(self) -> Any:
        try:
            import pymysql
        except ImportError as error:
            raise SourceError(
                "MySQL cannot be read without a client: pip install pymysql, or run the watcher inside "
                "Airflow with its MySQL provider"
            ) from error
        at = self._connection
        return pymysql.connect(
            host=at.host or "localhost",
            port=at.port or 3306,
            user=at.login,
            password=at.password or "",
            database=at.schema,
            charset=at.get("charset", "utf8mb4"),
            ssl=at.get("ssl"),
            unix_socket=at.get("unix_socket"),
            # One zone for all sessions, or a TIMESTAMP would change its value with who asks.
            init_command=at.get("init_command", "SET time_zone = '+00:00'"),
            connect_timeout=min(self._timeout, 10.0),
            read_timeout=self._timeout,
        )

    def _failure(self, error: Exception, what: str) -> SourceError:
        at = self._connection
        text = " ".join(str(error).split()) or type(error).__name__
        if at.password:
            text = text.replace(at.password, "***")
        remedy = next(
            (advice for pattern, advice in _REMEDIES.items() if re.search(pattern, text, re.IGNORECASE)),
            "check that the database is up and the connection's host, port and schema are right: retried",
        )
        place = ":".join(str(part) for part in (at.host or at.schema, at.port) if part)
        where = f"{at.conn_type or 'SQL'} database {place} (connection {at.conn_id!r})"
        return SourceError(f"{where} {what}: {text[:500]}; {remedy}")
