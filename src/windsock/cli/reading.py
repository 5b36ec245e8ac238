"""Which event log a command looks into, and opening it without creating one by mistake."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from windsock.connections import Connection, from_environment
from windsock.events import InvalidEvent, WindsockError, parse_time
from windsock.log import Log, open_log
from windsock.spec import SpecError, seconds

__all__ = ["LogOption", "connections", "masked", "moment", "reading"]

LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="WINDSOCK_LOG",
        help="The event log: sqlite:////path/windsock.db, a path, or postgresql://user@host/database. "
        "By default the one that Airflow's configuration names.",
    ),
]


@contextmanager
def reading(url: str | None) -> Iterator[tuple[Log, str]]:
    """The log that `url` or Airflow's configuration names, and its URL as it may be shown."""
    found = _as_url(url) if url else _configured()
    scheme, _, rest = found.partition("://")
    if scheme == "sqlite":
        _check_file(Path(rest.removeprefix("/")))
    with closing(open_log(found)) as log:
        yield log, masked(found)


def masked(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def moment(text: str) -> float:
    """The epoch seconds behind `10min`, `24h` (so long ago), or an ISO date or time."""
    try:
        return time.time() - seconds(text)
    except SpecError:
        pass  # not a duration, so a date
    try:
        found = parse_time(text)
    except InvalidEvent:
        found = None
    if found is None:
        raise WindsockError(f"--since {text!r} is no time: write '10min', '24h', '7d' or 2025-01-31T12:00")
    return found.timestamp()


async def connections(conn_id: str) -> Connection:
    """The Connection out of the environment, else out of Airflow."""
    if os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}"):
        return await from_environment(conn_id)
    from windsock.airflow.connections import airflow_connection

    return await airflow_connection(conn_id)


def _as_url(text: str) -> str:
    return text if "://" in text else f"sqlite:///{Path(text).absolute()}"


def _configured() -> str:
    try:
        from windsock.airflow.settings import log_url

        return log_url()
    except Exception as error:  # Airflow refuses a broken configuration in many ways
        raise WindsockError(
            f"Airflow's configuration does not say where the event log is ({error}): name it with --log"
        ) from error


def _check_file(path: Path) -> None:
    """Opening a log makes one: a command that only looks must not, nor change a stranger's file."""
    if not path.is_file():
        raise WindsockError(
            f"there is no event log at {path}: it is made when Airflow starts with Windsock; "
            "if it is elsewhere, name it with --log or WINDSOCK_LOG"
        )
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=30)) as file:
            found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'watchers'").fetchone()
    except sqlite3.Error as error:
        raise WindsockError(f"{path} cannot be read as an event log: {error}") from error
    if not found:
        raise WindsockError(f"{path} is a SQLite file, but not an event log: is it Airflow's own database?")
