"""What both Redis sources need: a client from an Airflow Connection, and its errors in words.

The Connection is the one of Airflow's Redis provider: host, port (6379), login (an ACL user), password,
and in the extras ``db``, ``ssl``, ``ssl_cert_reqs`` (``required``, ``optional``, ``none``),
``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_check_hostname``. The type ``rediss`` means TLS
as well, and a URI's path is the database number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windsock.connections import Connection
from windsock.events import SourceError

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["SILENCE", "open_client", "speaking"]

SILENCE = 20.0
"""Seconds without an answer after which a server counts as gone; a blocking command asks for less."""

_TLS = ("ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def open_client(connection: Connection) -> Redis:
    """A client that never repeats a command by itself: a second XREADGROUP would skip the first's answer."""
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise SourceError("the Redis client is not installed: pip install 'windsock[redis]'") from error
    database = connection.get("db", connection.schema or 0)
    if not str(database).isdecimal():
        raise SourceError(
            f"connection {connection.conn_id!r}: database {database!r} is no number: set 'db' in its extra"
        )
    tls: dict[str, Any] = {}
    if connection.conn_type == "rediss" or connection.flag("ssl"):
        tls = {"ssl": True, **{name: connection.get(name) for name in _TLS if connection.get(name)}}
        if connection.get("ssl_check_hostname") is not None:
            tls["ssl_check_hostname"] = connection.flag("ssl_check_hostname")
    return Redis(
        host=connection.host or "localhost",
        port=connection.port or 6379,
        username=connection.login or None,
        password=connection.password or None,
        db=int(database),
        socket_timeout=SILENCE,
        socket_connect_timeout=10.0,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        client_name="windsock",
        **tls,
    )


@contextmanager
def speaking(connection: Connection) -> Iterator[None]:
    """Raise what the client raises inside as a :class:`SourceError` with the remedy."""
    from redis import exceptions

    where = f"Redis at {connection.host or 'localhost'}:{connection.port or 6379}"
    who = f"connection {connection.conn_id!r}"
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.AuthorizationError) as error:
        raise SourceError(
            f"{where} refused the login ({error}): correct login and password of {who}"
        ) from error
    except exceptions.NoPermissionError as error:
        raise SourceError(
            f"{where} does not permit this ({error}): extend the ACL of the user of {who}"
        ) from error
    except exceptions.BusyLoadingError as error:
        raise SourceError(f"{where} is still loading its data: nothing to do, it is tried again") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
        raise SourceError(
            f"{where} cannot be reached ({error}): check that it runs, and host, port and TLS of {who}"
        ) from error
    except exceptions.RedisError as error:
        raise SourceError(f"{where} answered with an error: {error}; see its log") from error
