"""AWS clients out of an Airflow Connection, and AWS errors as :class:`~windsock.events.SourceError`.

::

    async with client("sqs", await self.connection()) as sqs:
        with explained("SQS queue 'orders'", conn_id):
            await sqs.get_queue_url(QueueName="orders")

The Connection is one of type ``aws`` as Airflow's Amazon provider writes it:

| field | meaning |
|---|---|
| login, password | access key id and secret access key; without them the default chain of AWS decides (environment, profile, web identity, container or instance role) |
| extra ``region_name`` | region, unless the source names one |
| extra ``endpoint_url`` | another address for every service; per service in ``service_config`` |
| extra ``service_config`` | ``{"sqs": {"endpoint_url": ...}}`` |
| extra ``aws_access_key_id``, ``aws_secret_access_key``, ``aws_session_token`` | credentials, if not in login and password |
| extra ``profile_name`` | profile of the shared configuration files |
| extra ``role_arn``, ``assume_role_kwargs`` | role to assume with those credentials, renewed by itself; ``ExternalId`` and the like |
| extra ``config_kwargs`` | arguments of botocore's ``Config``: time-outs, retries, proxies; signature version ``unsigned`` |
| extra ``verify`` | false, or the path of a certificate authority's file |
"""  # noqa: E501 - a table

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import msgspec

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["client", "error_code", "explained"]

_CREDENTIALS = frozenset(
    {
        *(
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "InvalidAccessKeyId",
        ),
        *("InvalidClientTokenId", "InvalidSignatureException", "InvalidToken"),
        *("MissingAuthenticationToken", "MissingAuthenticationTokenException", "RequestExpired"),
        *("SignatureDoesNotMatch", "TokenRefreshRequired", "UnrecognizedClientException"),
    }
)
_DENIED = frozenset(
    {"403", "AccessDenied", "AccessDeniedException", "KMSAccessDeniedException", "KmsAccessDenied"}
)
_MISSING = frozenset(
    {
        *("404", "NoSuchBucket", "NoSuchKey", "NotFound", "QueueDoesNotExist", "ResourceNotFoundException"),
        "AWS.SimpleQueueService.NonExistentQueue",
    }
)
_lock = threading.Lock()
_loaders: list[Any] = []
"""The loader of AWS's service descriptions, shared because each description is read and parsed once."""


@asynccontextmanager
async def client(service: str, connection: Connection, *, region: str | None = None) -> AsyncIterator[Any]:
    """A client of an AWS service for the block; ``region`` wins over the Connection's.

    Raises :class:`SourceError` when the Connection cannot be used. The first client of a process takes a
    second, in a thread.
    """
    settings = _settings(service, connection, region)
    with explained(f"AWS {service}", connection.conn_id):
        session = await asyncio.to_thread(_session, service, connection)
        config = _config(connection)
        if role := connection.get("role_arn"):
            await _assume(session, connection, role, {**settings, "config": config})
            settings = {name: value for name, value in settings.items() if not name.startswith("aws_")}
        made = session.create_client(service, config=config, **settings)
        opened = await made.__aenter__()
    try:
        yield opened
    finally:
        await made.__aexit__(None, None, None)


@contextmanager
def explained(what: str, conn_id: str) -> Iterator[None]:
    """Turn what botocore raises in the block into a SourceError: what happened, where, what to do."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise SourceError(_NOT_INSTALLED.format(what)) from None
    try:
        yield
    except ClientError as error:
        raise SourceError(_refused(what, conn_id, error)) from error
    except BotoCoreError as error:
        raise SourceError(_failed(what, conn_id, error)) from error


def error_code(error: Exception) -> str:
    """The code by which AWS names an error; empty for what is none of AWS's."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


_NOT_INSTALLED = "{}: the AWS client is not installed: pip install 'windsock[aws]'"


def _settings(service: str, connection: Connection, region: str | None) -> dict[str, Any]:
    """The arguments of ``create_client`` that the Connection gives."""
    services = _mapping(connection, "service_config")
    verify = connection.get("verify")
    if isinstance(verify, str) and verify.strip().lower() in ("true", "false"):
        verify = connection.flag("verify")
    return {
        "region_name": region or connection.get("region_name"),
        "endpoint_url": (services.get(service) or {}).get("endpoint_url") or connection.get("endpoint_url"),
        "verify": verify,
        "aws_access_key_id": connection.login or connection.get("aws_access_key_id"),
        "aws_secret_access_key": connection.password or connection.get("aws_secret_access_key"),
        "aws_session_token": connection.get("aws_session_token"),
    }


def _session(service: str, connection: Connection) -> Any:
    """A session with what it must read from disk already read; blocks."""
    try:
        from aiobotocore.session import AioSession
    except ImportError:
        raise SourceError(_NOT_INSTALLED.format(f"connection {connection.conn_id!r}")) from None
    session = AioSession(profile=connection.get("profile_name"))
    with _lock:
        if _loaders:
            session.register_component("data_loader", _loaders[0])
        else:
            _loaders.append(session.get_component("data_loader"))
        session.warm_up_loader_caches(service)
    return session


def _config(connection: Connection) -> Any:
    from aiobotocore.config import AioConfig
    from botocore import UNSIGNED

    given = _mapping(connection, "config_kwargs")
    if given.get("signature_version") == "unsigned":
        given["signature_version"] = UNSIGNED
    # The runner has its own backoff, so a call is repeated only to get over a blip. A long poll of SQS
    # answers after 20 seconds, which the read time-out must leave room for.
    defaults = {"connect_timeout": 10, "read_timeout": 35, "max_pool_connections": 50}
    retries = {"retries": {"mode": "standard", "total_max_attempts": 3}}
    try:
        return AioConfig(**{**defaults, **retries, **given})
    except TypeError as error:
        raise SourceError(
            f"connection {connection.conn_id!r}: config_kwargs is not for botocore ({error}): correct it"
        ) from error


async def _assume(session: Any, connection: Connection, role: str, settings: dict[str, Any]) -> None:
    """Let the session's clients act in a role, whose credentials are renewed before they expire."""
    from aiobotocore.credentials import (
        AioAssumeRoleCredentialFetcher,
        AioCredentials,
        AioDeferredRefreshableCredentials,
    )
    from botocore.exceptions import NoCredentialsError

    method = connection.get("assume_role_method", "assume_role")
    if method != "assume_role":
        raise SourceError(
            f"connection {connection.conn_id!r}: assume_role_method {method!r} is not supported: use "
            "'assume_role', or leave out role_arn and let the environment name the web identity"
        )
    key, secret = settings["aws_access_key_id"], settings["aws_secret_access_key"]
    if key and secret:
        given = AioCredentials(key, secret, settings["aws_session_token"])
    else:
        given = await session.get_component("credential_provider").load_credentials()
    if given is None:
        raise NoCredentialsError
    # As in Airflow, the endpoint of all services is not the one of STS: that is named on its own.
    sts = (_mapping(connection, "service_config").get("sts") or {}).get("endpoint_url")
    fetcher = AioAssumeRoleCredentialFetcher(
        client_creator=partial(
            session.create_client,
            region_name=settings["region_name"],
            verify=settings["verify"],
            config=settings["config"],
            endpoint_url=sts,
        ),
        source_credentials=given,
        role_arn=role,
        extra_args={"RoleSessionName": "windsock", **_mapping(connection, "assume_role_kwargs")},
    )
    credentials = AioDeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    session.register_component("credential_provider", _Role(credentials))


class _Role:
    """A chain of credential providers with one link: the assumed role."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    async def load_credentials(self) -> Any:
        return self._credentials


def _mapping(connection: Connection, name: str) -> dict[str, Any]:
    """An extra that is an object; a URI can only write it as JSON text."""
    value = connection.get(name, {})
    try:
        if isinstance(value, str):
            value = msgspec.json.decode(value)
        return dict(value)
    except (TypeError, ValueError) as error:
        raise SourceError(
            f"connection {connection.conn_id!r}: extra {name!r} is not a JSON object: write it as one"
        ) from error


def _refused(what: str, conn_id: str, error: Any) -> str:
    """What an answer of AWS means."""
    code, message = (
        error_code(error),
        str(error.response.get("Error", {}).get("Message") or "no reason given"),
    )
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _CREDENTIALS:
        return f"{what}: AWS refused the credentials ({code}): correct login and password of {conn_id!r}"
    if code in _DENIED:
        return f"{what}: access is denied: allow {error.operation_name} to the user or role of {conn_id!r}"
    if code in _MISSING:
        return f"{what} does not exist ({code}): create it, or correct its name, account or region"
    if status is not None and status >= 500:
        return f"{what}: AWS failed with {code} ({status}, {message}): it is tried again"
    asked = error.operation_name
    return f"{what}: {asked} was refused with {code} ({message}): check the options and {conn_id!r}"


def _failed(what: str, conn_id: str, error: Any) -> str:
    """What an error of the client means."""
    from botocore import exceptions as known

    if isinstance(error, known.NoRegionError):
        return f"{what}: no region is known: set region_name in the extra of {conn_id!r}"
    if isinstance(error, known.ProfileNotFound | known.InvalidConfigError | known.ConfigParseError):
        return f"{what}: {error}: correct profile_name in the extra of {conn_id!r}"
    if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError):
        return f"{what}: no credentials were found: set login and password of {conn_id!r}, or a role here"
    if isinstance(error, known.CredentialRetrievalError | known.TokenRetrievalError):
        return f"{what}: credentials cannot be had ({error}): check the role or profile of {conn_id!r}"
    if isinstance(error, known.SSLError):
        return f"{what}: TLS failed ({error}): check the certificate, or verify in the extra of {conn_id!r}"
    if isinstance(error, known.HTTPClientError | known.ConnectionError):
        return f"{what} cannot be reached ({error}): check region_name, endpoint_url and the network"
    return f"{what}: {error}: check the options and the connection {conn_id!r}"
