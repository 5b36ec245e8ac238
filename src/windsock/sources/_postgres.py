"""What the sources on PostgreSQL share: how a Connection is reached, and what its errors mean.

Fields and extras of the Connection are those of Airflow's own ``postgres``: ``schema`` is the database, and
every extra that libpq knows is handed on (``sslmode``, ``sslrootcert``, ``sslcert``, ``sslkey``, ``options``,
``target_session_attrs``, ``passfile``, ``gssencmode``, ...). With the extra ``iam`` Airflow's hook fetches
the password from the cloud.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["failure", "lenient", "parameters", "psycopg", "reach"]

_NOT_FOR_LIBPQ = frozenset(
    {
        *("iam", "redshift", "redshift-serverless", "cursor", "cluster-identifier", "workgroup-name"),
        *("aws_conn_id", "azure_conn_id", "sqlalchemy_scheme", "sqlalchemy_query", "placeholder"),
    }
)
# A peer that vanishes without a word is noticed within a minute.
_NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_REMEDIES = {
    "28": "check login and password of the connection, and the server's pg_hba.conf",
    "3D": "check the connection's schema, which names the database",
    "3F": "check the names in the watcher's options, and create what is missing",
    "42501": "grant the connection's login what it needs",
    "42": "check the names in the watcher's options, and create what is missing",
    "53": "the server is out of a resource: raise its limit or close other sessions",
    "57": "the server is going down or coming up: retried",
}


def psycopg() -> ModuleType:
    """The client library."""
    try:
        import psycopg
    except ImportError as error:
        raise SourceError(
            "PostgreSQL cannot be read without its client: pip install 'windsock[postgres]'"
        ) from error
    return psycopg


def parameters(connection: Connection) -> dict[str, Any]:
    """How libpq connects to it; blocks if the password comes from the cloud."""
    login, password, port = connection.login, connection.password, connection.port
    if connection.flag("iam"):
        if connection.hook is None:
            raise SourceError(
                f"connection {connection.conn_id!r} has the extra 'iam', which needs Airflow's hook: "
                "run the watcher inside Airflow, or give the connection a password"
            )
        hook = connection.hook()
        login, password, port = hook.get_iam_token(hook.connection)
    named = {
        "host": connection.host,
        "port": port,
        "user": login,
        "password": password,
        "dbname": connection.schema,
    }
    extras = {name: value for name, value in connection.extra.items() if name not in _NOT_FOR_LIBPQ}
    known = {name: value for name, value in {**named, **extras}.items() if value is not None and value != ""}
    return {**_NETWORK, "application_name": "windsock", **known}


async def reach(connection: Connection, **more: Any) -> Any:
    """An asyncio connection that commits by itself; ``more`` goes to libpq."""
    client = psycopg()
    chosen = await asyncio.to_thread(parameters, connection)
    if options := more.pop("options", None):
        more["options"] = f"{chosen.get('options', '')} {options}".strip()
    try:
        return await client.AsyncConnection.connect(**{**chosen, **more}, autocommit=True)
    except client.Error as error:
        raise failure(error, connection, "cannot connect") from error


def failure(error: Exception, connection: Connection, what: str) -> SourceError:
    """The error of the client as ours: what happened, where, what to do."""
    state = getattr(error, "sqlstate", None) or ""
    text = " ".join(str(error).split()) or type(error).__name__
    if connection.password:
        text = text.replace(connection.password, "***")
    if "password authentication failed" in text or "no password supplied" in text:
        state = "28P01"
    remedy = _REMEDIES.get(state) or _REMEDIES.get(state[:2])
    remedy = remedy or "check that the server is up and its host and port are right: retried"
    where = f"{connection.host or 'localhost'}:{connection.port or 5432}/{connection.schema or ''}"
    where = f"{where} (connection {connection.conn_id!r})"
    return SourceError(f"PostgreSQL {where} {what}: {text[:500]}; {remedy}")


def lenient(connection: Any) -> None:
    """Read times that Python has no date for (``infinity``, the year 10000) as text instead of failing."""
    from psycopg import DataError
    from psycopg.types import datetime as dates

    def forgiving(kind: Any) -> Any:
        class Forgiving(kind):  # type: ignore[misc]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except DataError:
                    return bytes(data).decode()

        return Forgiving

    for name, kind in (
        ("date", dates.DateLoader),
        ("timestamp", dates.TimestampLoader),
        ("timestamptz", dates.TimestamptzLoader),
    ):
        connection.adapters.register_loader(name, forgiving(kind))
