"""Azure Storage clients out of an Airflow Connection, and Azure's errors as SourceErrors.

The Connection is one of type ``wasb`` as Airflow's Azure provider writes it:

| field | meaning |
|---|---|
| login, password | name and key of the storage account; with ``tenant_id``, id and secret of a client |
| host | the account's address, if it is not ``https://<login>.blob.core.windows.net`` |
| extra ``connection_string`` | the account's connection string, instead of all that |
| extra ``sas_token`` | a shared access signature |
| extra ``shared_access_key`` | the account's key, if it is not the password |
| extra ``tenant_id`` | sign in as a client of this tenant |
| extra ``managed_identity_client_id`` | sign in as this managed identity |
| extra ``queue_url`` | address of the account's queues, if it does not follow from the host |

Without a key, a signature and a tenant, Azure's default chain signs in (environment, workload or managed
identity, command line), which needs ``pip install azure-identity``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Literal

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["explained", "service"]

_NOT_INSTALLED = "pip install 'windsock[azure]'"
_REFUSED = ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation")
_QUICK = {"retry_total": 0, "connection_timeout": 10, "read_timeout": 35}
"""The runner has its own backoff."""


async def service(kind: Literal["blob", "queue"], connection: Connection, stack: AsyncExitStack) -> Any:
    """A client of the account's blobs or queues, closed by the stack; raises SourceError."""
    factory = await asyncio.to_thread(_factory, kind, connection.conn_id)
    try:
        if text := connection.get("connection_string"):
            made = factory.from_connection_string(text, **_QUICK)
        else:
            credential = await _credential(connection, stack)
            made = factory(_address(kind, connection), credential=credential, **_QUICK)
    except (ValueError, TypeError):
        # The cause may quote the secret.
        raise SourceError(
            f"connection {connection.conn_id!r} is not for Azure Storage: give login and password, or "
            "connection_string in the extra"
        ) from None
    return await stack.enter_async_context(made)


@contextmanager
def explained(what: str, conn_id: str) -> Iterator[None]:
    """Turn what Azure's client raises in the block into a SourceError: what happened, where, what to do."""
    from azure.core import exceptions as known

    try:
        yield
    except known.ResourceNotFoundError as error:
        raise SourceError(
            f"{what} does not exist ({_code(error)}): create it, or correct its name"
        ) from error
    except known.ClientAuthenticationError as error:
        raise SourceError(_refused(what, conn_id, error)) from error
    except known.HttpResponseError as error:
        if error.status_code in (401, 403):
            raise SourceError(_refused(what, conn_id, error)) from error
        raise SourceError(
            f"{what}: Azure answered {error.status_code} ({_code(error)}): it is tried again"
        ) from error
    except known.AzureError as error:
        raise SourceError(
            f"{what} cannot be reached ({error.message}): check host, extra and the network of {conn_id!r}"
        ) from error
    except ValueError as error:
        # A key that is no base64; the message may quote it.
        raise SourceError(f"{what}: the key of {conn_id!r} cannot be used: correct its password") from error


def _factory(kind: str, conn_id: str) -> Any:
    """The client's class; importing it takes a moment."""
    try:
        if kind == "blob":
            from azure.storage.blob.aio import BlobServiceClient

            return BlobServiceClient
        from azure.storage.queue.aio import QueueServiceClient
    except ImportError:
        raise SourceError(
            f"connection {conn_id!r}: Azure's client is not installed: {_NOT_INSTALLED}"
        ) from None
    return QueueServiceClient


def _address(kind: str, connection: Connection) -> str:
    host = connection.host
    if kind == "queue":
        if named := connection.get("queue_url"):
            return str(named)
        host = host and host.replace(".blob.", ".queue.")
    if not host and not connection.login:
        raise ValueError("neither host nor login")
    host = host or f"{connection.login}.{kind}.core.windows.net"
    return host if "://" in host else f"https://{host}"


async def _credential(connection: Connection, stack: AsyncExitStack) -> Any:
    """What Azure asks for: a signature, a named key, or somebody who signs in."""
    if token := connection.get("sas_token"):
        return str(token).rpartition("?")[2]
    if tenant := connection.get("tenant_id"):
        identity = _identity(connection)
        secret = identity.ClientSecretCredential(
            str(tenant), connection.login or "", connection.password or ""
        )
        return await stack.enter_async_context(secret)
    if key := connection.get("shared_access_key", connection.password):
        if not connection.login:
            return key
        return {"account_name": connection.login, "account_key": key}
    client = connection.get("managed_identity_client_id")
    chain = _identity(connection).DefaultAzureCredential(managed_identity_client_id=client)
    return await stack.enter_async_context(chain)


def _identity(connection: Connection) -> Any:
    try:
        import azure.identity.aio
    except ImportError:
        raise SourceError(
            f"connection {connection.conn_id!r} has neither key nor sas_token, and Azure's identity, which "
            "would sign in, is not installed: pip install azure-identity"
        ) from None
    return azure.identity.aio


def _refused(what: str, conn_id: str, error: Any) -> str:
    code = _code(error)
    if code in _REFUSED or getattr(error, "status_code", None) in (None, 401):
        return f"{what}: Azure refused the credentials ({code}): correct login and password of {conn_id!r}"
    return f"{what}: access is denied ({code}): give the identity of {conn_id!r} a role that may read it"


def _code(error: Any) -> str:
    return str(getattr(error, "error_code", None) or getattr(error, "reason", None) or type(error).__name__)
