"""Connections: how a source learns where its system is and who it is there.

A source names a ``conn_id`` and asks for the :class:`Connection` behind it when it connects, so that a
rotated password counts at the next reconnect and no secret ever stands in a watcher's definition. Inside
Airflow the answer comes from Airflow's own Connections (its database, a secrets backend, the environment);
outside, from ``AIRFLOW_CONN_<ID>`` in the environment, in both forms that Airflow knows::

    AIRFLOW_CONN_SHOP='kafka://user:secret@broker.example.com:9093/?security.protocol=SASL_SSL'
    AIRFLOW_CONN_SHOP='{"conn_type": "kafka", "host": "broker.example.com", "port": 9093}'
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from windsock.events import SourceError

__all__ = ["Connection", "Connections", "UsesConnection", "fixed", "from_environment", "parse_connection"]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Where a system is and who we are there, in the fields of an Airflow Connection."""

    conn_id: str
    conn_type: str = ""
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = None
    schema: str | None = None
    extra: dict[str, Any] = {}
    hook: Callable[[], Any] | None = None
    """Makes Airflow's own hook for this Connection; None outside Airflow. Blocks: call it in a thread."""

    def __repr__(self) -> str:
        """Without the password and the extras, which may hold others."""
        return f"Connection({self.conn_id!r}, {self.conn_type!r}, host={self.host!r}, port={self.port!r})"

    def get(self, name: str, default: Any = None) -> Any:
        """A value of the extras; ``default`` if it is absent or empty."""
        value = self.extra.get(name)
        return default if value is None or value == "" else value

    def flag(self, name: str, default: bool = False) -> bool:
        """A yes or no of the extras, which a URI can only write as text."""
        value = self.get(name, default)
        return value.strip().lower() in ("1", "true", "yes", "on") if isinstance(value, str) else bool(value)


Connections = Callable[[str], Awaitable[Connection]]
"""Finds the Connection of an id; raises SourceError, which says how to add it."""


async def from_environment(conn_id: str) -> Connection:
    """The Connection that the environment holds as ``AIRFLOW_CONN_<ID>``."""
    name = f"AIRFLOW_CONN_{conn_id.upper()}"
    text = os.environ.get(name)
    if not text:
        raise SourceError(f"connection {conn_id!r} is not defined: add the Airflow Connection, or set {name}")
    return parse_connection(conn_id, text)


def fixed(*known: Connection) -> Connections:
    """Connections out of a given list, for tests."""
    by_id = {connection.conn_id: connection for connection in known}

    async def find(conn_id: str) -> Connection:
        if conn_id not in by_id:
            raise SourceError(f"connection {conn_id!r} is not defined: known are {sorted(by_id)}")
        return by_id[conn_id]

    return find


def parse_connection(conn_id: str, text: str) -> Connection:
    """A Connection from its JSON or URI form."""
    try:
        return _from_json(conn_id, text) if text.lstrip().startswith("{") else _from_uri(conn_id, text)
    except (ValueError, TypeError):
        # The cause may quote the secret.
        raise SourceError(
            f"connection {conn_id!r} cannot be read: write it as Airflow does, as a URI or a JSON object"
        ) from None


def _from_json(conn_id: str, text: str) -> Connection:
    fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    extra = fields.get("extra") or {}
    if isinstance(extra, str):
        extra = msgspec.json.decode(extra, type=dict[str, Any])
    port = fields.get("port")
    return Connection(
        conn_id=conn_id,
        conn_type=fields.get("conn_type") or "",
        host=fields.get("host"),
        port=int(port) if port is not None and port != "" else None,
        login=fields.get("login"),
        password=fields.get("password"),
        schema=fields.get("schema"),
        extra=extra,
    )


def _from_uri(conn_id: str, text: str) -> Connection:
    parts = urlsplit(text)
    query: Mapping[str, str] = dict(parse_qsl(parts.query, keep_blank_values=True))
    packed = query.get("__extra__")
    return Connection(
        conn_id=conn_id,
        conn_type=parts.scheme,
        host=_host(parts.netloc),
        port=parts.port,
        login=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        schema=unquote(parts.path.lstrip("/")) or None,
        extra=msgspec.json.decode(packed, type=dict[str, Any]) if packed else dict(query),
    )


def _host(place: str) -> str | None:
    """The host of a URI as it is written: a file's path, quoted, keeps its case."""
    host = place.rpartition("@")[2]
    host = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return unquote(host) or None


class UsesConnection:
    """What a source inherits to look up the Connection that its config names as ``conn_id``."""

    config: ClassVar[Any]
    options: Any
    """The source's config."""
    connections: Connections = staticmethod(from_environment)
    """Set by whoever makes the source; see :func:`windsock.sources.make_source`."""

    async def connection(self) -> Connection:
        """The Connection of ``options.conn_id``, fresh."""
        return await self.connections(self.options.conn_id)
