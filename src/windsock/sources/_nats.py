"""The NATS client of the source: made from an Airflow Connection, its errors in words."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.sources._ending import Ending

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["open_client", "servers_of", "speaking"]

_CONSUMER_MISSING, _STREAM_MISSING = 10014, 10059


async def open_client(connection: Connection, ending: Ending) -> Client:
    """A connected client that does not reconnect by itself: a lost connection ends ``ending``."""
    try:
        from nats.aio.client import Client, RawCredentials
        from nats.errors import NoServersError
    except ImportError as error:
        raise SourceError("the NATS client is not installed: pip install 'windsock[nats]'") from error

    refused: list[Exception] = []

    async def failed(error: Exception) -> None:
        refused.append(error)
        if "permissions violation" in str(error).lower():
            ending.end(
                SourceError(
                    f"NATS does not permit this ({error}): extend the rights of the user of connection "
                    f"{connection.conn_id!r}, who needs its inbox and $JS.API of the stream"
                )
            )

    async def closed() -> None:
        ending.end(
            SourceError(f"{_where(connection)} closed the connection: check its log; it is tried again")
        )

    settings: dict[str, Any] = {
        "user": connection.login,
        "password": connection.password if connection.login else None,
        "token": connection.get("token", None if connection.login else connection.password),
        "nkeys_seed": connection.get("nkey_seed_file"),
        "nkeys_seed_str": connection.get("nkey_seed"),
        "user_credentials": connection.get("creds_file"),
        "tls": _tls(connection),
        "tls_hostname": connection.get("tls_hostname"),
        "tls_handshake_first": connection.flag("tls_handshake_first") or None,
    }
    if creds := connection.get("creds"):
        settings["user_credentials"] = RawCredentials(creds)
    with speaking(connection):
        if _is_tls(connection) and not connection.flag("tls_handshake_first"):
            await _insist_on_tls(connection)
        client = Client()
        try:
            await client.connect(
                servers_of(connection),
                name="windsock",
                allow_reconnect=False,
                connect_timeout=10,
                reconnect_time_wait=0,
                max_reconnect_attempts=1,
                ping_interval=10,
                max_outstanding_pings=2,
                error_cb=failed,
                closed_cb=closed,
                **{name: value for name, value in settings.items() if value is not None},
            )
        except BaseException as error:
            _abandon(client)
            if isinstance(error, NoServersError):
                raise (refused[-1] if refused else OSError("no server answers")) from None
            raise
    return client


@contextmanager
def speaking(connection: Connection, *, stream: str = "", consumer: str = "") -> Iterator[None]:
    """Raise what the client raises inside as a :class:`SourceError` with the remedy."""
    from nats import errors
    from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

    where, who = _where(connection), f"connection {connection.conn_id!r}"
    try:
        yield
    except NotFoundError as error:
        if error.err_code == _CONSUMER_MISSING:
            raise SourceError(
                f"consumer {consumer!r} does not exist on stream {stream!r}: make it, or set create=True"
            ) from error
        if error.err_code == _STREAM_MISSING:
            raise SourceError(
                f"stream {stream!r} does not exist at {where}: make it, or correct the name"
            ) from error
        raise SourceError(f"{where} answered with an error: {error.description}; see its log") from error
    except ServiceUnavailableError as error:
        raise SourceError(
            f"{where} has no JetStream for this account: enable it, or correct account or domain of {who}"
        ) from error
    except APIError as error:
        raise SourceError(
            f"{where} refused consumer {consumer!r} of {stream!r} ({error.description}): correct the options"
        ) from error
    except (errors.AuthorizationError, errors.InvalidUserCredentialsError) as error:
        raise SourceError(f"{where} refused the login: correct login, password or key of {who}") from error
    except (errors.Error, OSError, TimeoutError) as error:
        if "authorization" in str(error).lower():
            raise SourceError(
                f"{where} refused the login: correct login, password or key of {who}"
            ) from error
        raise SourceError(
            f"{where} cannot be reached ({error or type(error).__name__}): check that it runs, and host, "
            f"port and TLS of {who}"
        ) from error
    except ImportError as error:
        raise SourceError("keys need one more package: pip install 'windsock[nats]'") from error


def _abandon(client: Client) -> None:
    """Close the socket of a client that could not log in; its own ``close`` would wait for ever."""
    transport = getattr(client, "_transport", None)
    if transport is not None:
        transport.close()


def _where(connection: Connection) -> str:
    return f"NATS at {', '.join(servers_of(connection))}"


def servers_of(connection: Connection) -> list[str]:
    """The servers of a cluster, from a list of hosts; the Connection's port is that of hosts without one."""
    servers = []
    for host in (connection.host or "localhost").split(","):
        address = host.strip().rpartition("//")[2]
        if ":" not in address.rpartition("]")[2]:
            address = f"{address}:{connection.port or 4222}"
        servers.append(f"{'tls' if _is_tls(connection) else 'nats'}://{address}")
    return servers


def _is_tls(connection: Connection) -> bool:
    return connection.flag("tls") or connection.conn_type == "tls" or "tls://" in (connection.host or "")


async def _insist_on_tls(connection: Connection) -> None:
    """Raise if a server does not require TLS: the client would then send the password without it."""
    for server in servers_of(connection):
        address = urlsplit(server)
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                try:
                    greeting = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            continue  # another server of the cluster may answer
        if b'"tls_required":true' not in greeting:
            raise SourceError(
                f"{server} does not require TLS, but connection {connection.conn_id!r} asks for it: "
                "configure TLS there, or remove 'tls'"
            )


def _tls(connection: Connection) -> ssl.SSLContext | None:
    if not _is_tls(connection):
        return None
    try:
        context = ssl.create_default_context(cafile=connection.get("tls_ca_file"))
        if certificate := connection.get("tls_cert_file"):
            context.load_cert_chain(certificate, connection.get("tls_key_file"))
    except OSError as error:
        raise SourceError(
            f"the TLS files of connection {connection.conn_id!r} cannot be read ({error}): correct "
            "'tls_ca_file', 'tls_cert_file' and 'tls_key_file' in its extra"
        ) from error
    if not connection.flag("tls_verify", True):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
