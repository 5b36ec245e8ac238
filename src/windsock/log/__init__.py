"""The durable event log. ``open_log(url)`` gives the one that a URL names."""

from __future__ import annotations

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.transaction import LogError, LogUnavailable

__all__ = ["Log", "LogError", "LogUnavailable", "open_log"]


def open_log(url: str) -> Log:
    """The log behind ``sqlite:///file``, ``sqlite://`` (memory) or ``postgresql://…``."""
    scheme, found, rest = url.partition("://")
    if found and scheme == "sqlite":
        from windsock.log.sqlite import SqliteLog

        return SqliteLog(rest.removeprefix("/") or ":memory:")
    if found and scheme.split("+")[0] in {"postgres", "postgresql"}:
        from windsock.log.postgres import PostgresLog

        return PostgresLog(f"postgresql://{rest}")
    raise WindsockError(
        f"event log URL {scheme!r}://…: use sqlite:////absolute/path.db or postgresql://user@host/database"
    )
