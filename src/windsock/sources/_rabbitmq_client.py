"""The client of RabbitMQ out of a Connection, and what it says when something is wrong, with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.tls import tls_context

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

__all__ = ["client_of", "reason", "translated"]


async def client_of(connection: Connection, *, name: str) -> AbstractConnection:
    """A client that is not connected yet; the server shows it under its name."""
    try:
        from aio_pika.connection import Connection as Client
        from aio_pika.connection import make_url
    except ImportError as error:
        raise SourceError(
            "RabbitMQ needs a client library that is not installed: pip install 'windsock[rabbitmq]'"
        ) from error
    context = await tls_context(connection, implied=connection.conn_type == "amqps")
    address = make_url(
        host=connection.host or "localhost",
        port=connection.port or (5671 if context else 5672),
        login=connection.login or "guest",
        password=connection.password or ("" if connection.login else "guest"),
        virtualhost=connection.schema or "/",
        ssl=context is not None,
        heartbeat=connection.get("heartbeat", 60),
        auth=connection.get("auth", "plain"),
        name=name,
    )
    # Not aio_pika.connect, which leaves it to the garbage collector to close a client that cannot connect.
    return Client(address, ssl_context=context)


@contextmanager
def translated(where: str, connection: Connection | None = None) -> Iterator[None]:
    """Raise SourceError for what the client library raises; ``connection`` says where it tried to connect."""
    from aio_pika import exceptions
    from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed

    if connection is not None:
        where += f" at {connection.host or 'localhost'}:{connection.port or 'its default port'}"
    try:
        yield
    except (exceptions.ProbableAuthenticationError, exceptions.AuthenticationError) as error:
        raise SourceError(
            f"{where}: the login is refused: check login, password and the extra 'auth' of the Connection"
        ) from error
    except ConnectionNotAllowed as error:
        raise SourceError(
            f"{where}: {reason(error)}: check the virtual host (schema) of the Connection and the user's "
            "permissions"
        ) from error
    except exceptions.ChannelNotFoundEntity as error:
        raise SourceError(f"{where}: {reason(error)}: create what is missing, or set declare=True") from error
    except exceptions.ChannelPreconditionFailed as error:
        raise SourceError(
            f"{where}: {reason(error)}: it exists with other settings; take those, or set declare=False"
        ) from error
    except ChannelAccessRefused as error:
        raise SourceError(
            f"{where}: {reason(error)}: give the user the permission, or set declare=False"
        ) from error
    except TimeoutError as error:
        raise SourceError(
            f"{where}: no answer: check host, port and TLS (extra 'ssl'), and that a quorum queue has its "
            "leader"
        ) from error
    except exceptions.CONNECTION_EXCEPTIONS as error:
        raise SourceError(
            f"{where} cannot be reached: {reason(error)}: check host, port, virtual host (schema) and TLS "
            "(extra 'ssl') of the Connection, and that the server runs"
        ) from error


def reason(error: BaseException | None) -> str:
    """What the server or the network said."""
    said = " ".join(str(part) for part in error.args if part) if error is not None else ""
    return said or type(error).__name__
