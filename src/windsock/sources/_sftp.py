"""The SSH connection of the SFTP source: made from an Airflow Connection, its errors in words."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windsock.connections import Connection
from windsock.events import SourceError

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

__all__ = ["keys_of", "known_hosts_of", "open_connection", "speaking"]

logger = logging.getLogger("windsock.sources.sftp")


async def open_connection(connection: Connection) -> SSHClientConnection:
    """A connection whose host key is one that the Connection knows."""
    try:
        import asyncssh
    except ImportError as error:
        raise SourceError("the SFTP client is not installed: pip install 'windsock[sftp]'") from error

    shown: list[str] = []
    wanted = connection.get("host_key_fingerprint")

    class Client(asyncssh.SSHClient):  # type: ignore[misc]
        """Told of host keys that are not among the known ones."""

        def validate_host_public_key(self, host: str, addr: str, port: int, key: Any) -> bool:
            shown.append(key.get_fingerprint())
            return bool(wanted) and key.get_fingerprint() == wanted

    timeout = float(connection.get("conn_timeout", 10))
    with speaking(connection):
        keys = await asyncio.to_thread(keys_of, connection)  # a passphrase takes time on purpose
        try:
            return await asyncssh.connect(
                connection.host or "localhost",
                connection.port or 22,
                client_factory=Client,
                username=connection.login or (),
                password=connection.password or None,
                known_hosts=known_hosts_of(connection),
                config=None,
                connect_timeout=timeout,
                login_timeout=timeout,
                keepalive_interval=30,
                keepalive_count_max=3,
                **keys,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise SourceError(
                f"the host key of {_where(connection)} is not known (it shows {', '.join(shown) or 'none'}): "
                "if it is the right one, put it into the extra 'host_key' or 'host_key_fingerprint' of "
                f"connection {connection.conn_id!r}, or into the known_hosts of its user"
            ) from error


@contextmanager
def speaking(connection: Connection) -> Iterator[None]:
    """Raise what the client raises inside as a :class:`SourceError` with the remedy."""
    import asyncssh

    where, who = _where(connection), f"connection {connection.conn_id!r}"
    try:
        yield
    except asyncssh.PermissionDenied as error:
        raise SourceError(
            f"{where} refused the login of {connection.login!r}: correct login, password or key of {who}"
        ) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise SourceError(
            f"the private key of {who} cannot be read ({error}): correct 'key_file' or 'private_key' and "
            "'private_key_passphrase' in its extra"
        ) from error
    except (asyncssh.Error, OSError) as error:
        reason = getattr(error, "reason", "") or str(error) or type(error).__name__
        raise SourceError(
            f"{where} cannot be reached ({reason}): check that it runs, and host and port of {who}"
        ) from error


def _where(connection: Connection) -> str:
    return f"SFTP at {connection.host or 'localhost'}:{connection.port or 22}"


def keys_of(connection: Connection) -> dict[str, Any]:
    """How to prove who we are; without a key or a password, as the ssh command would."""
    import asyncssh

    passphrase = connection.get("private_key_passphrase", connection.get("passphrase"))
    if text := connection.get("private_key"):
        return {"client_keys": [asyncssh.import_private_key(text, passphrase)]}
    if path := connection.get("key_file"):
        return {"client_keys": [asyncssh.read_private_key(os.path.expanduser(path), passphrase)]}
    return {"client_keys": None, "agent_path": None} if connection.password else {}


def known_hosts_of(connection: Connection) -> Any:
    """The host keys to accept, in the form that the client takes."""
    import asyncssh

    key, fingerprint = connection.get("host_key"), connection.get("host_key_fingerprint")
    if connection.flag("no_host_key_check"):
        if key or fingerprint:
            raise SourceError(
                f"connection {connection.conn_id!r} has a host key and 'no_host_key_check': remove one"
            )
        logger.warning(
            "windsock.sftp.unchecked connection=%s: the host key is not checked, so that anybody on the way "
            "can pretend to be the server; set 'host_key' instead of 'no_host_key_check'",
            connection.conn_id,
        )
        return None
    if key:
        line = key if " " in key.strip() else f"ssh-rsa {key.strip()}"
        try:
            return [asyncssh.import_public_key(line)], [], []
        except asyncssh.KeyImportError as error:
            raise SourceError(
                f"the extra 'host_key' of connection {connection.conn_id!r} is no public key: write it as "
                "ssh-keyscan does, such as 'ssh-ed25519 AAAA...'"
            ) from error
    path = os.path.expanduser(connection.get("known_hosts", "~/.ssh/known_hosts"))
    if fingerprint or not os.path.exists(path):
        return [], [], []
    return path
