"""Google Cloud credentials out of an Airflow Connection, and Google's errors as SourceErrors.

The Connection is one of type ``google_cloud_platform`` as Airflow's Google provider writes it, all in the extra:

| extra | meaning |
|---|---|
| ``project`` | the project, if the credentials do not name it or another one is meant |
| ``keyfile_dict`` | the key of a service account, as JSON |
| ``key_path`` | the path of such a key in a file |
| ``credential_config_file`` | configuration of an external account (workload identity federation): a path, or JSON |
| ``impersonation_chain`` | a service account to act as |
| ``scope`` | scopes, separated by commas |
| ``is_anonymous`` | true to send no credentials, for public data and emulators |
| ``storage_endpoint`` | another address of Cloud Storage |

Without a key the application's default credentials are used (environment, ``gcloud``, metadata server). Names may
have the prefix ``extra__google_cloud_platform__``.
"""  # noqa: E501 - a table

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["credentials", "explained", "extra"]

_PREFIX = "extra__google_cloud_platform__"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
NOT_INSTALLED = "pip install 'windsock[gcp]'"


def extra(connection: Connection, name: str) -> Any:
    """A value of the Connection's extra, with or without the prefix of old Airflow versions."""
    return connection.get(name, connection.get(_PREFIX + name))


def credentials(connection: Connection) -> tuple[Any, str | None]:
    """The credentials and the project of a Connection; blocks. Raises SourceError.

    What a key says is checked here, whether Google accepts it when it is first used.
    """
    try:
        import google.auth
        import google.auth.credentials
        import google.auth.exceptions
    except ImportError:
        raise SourceError(
            f"connection {connection.conn_id!r}: Google's client is not installed: {NOT_INSTALLED}"
        ) from None
    project = extra(connection, "project")
    if str(extra(connection, "is_anonymous")).lower() in ("true", "1"):
        return google.auth.credentials.AnonymousCredentials(), project
    scopes = [scope.strip() for scope in str(extra(connection, "scope") or _SCOPE).split(",")]
    try:
        found, default = _load(connection, scopes)
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise SourceError(
            f"connection {connection.conn_id!r} has no key, and there are no default credentials: set "
            "keyfile_dict or key_path in its extra"
        ) from error
    except (ValueError, OSError, google.auth.exceptions.GoogleAuthError) as error:
        # The message may quote the key.
        raise SourceError(
            f"connection {connection.conn_id!r}: the key cannot be read ({type(error).__name__}): correct "
            "keyfile_dict, key_path or credential_config_file in its extra"
        ) from None
    if target := extra(connection, "impersonation_chain"):
        found = _impersonate(found, target, scopes)
    return found, project or default


@contextmanager
def explained(what: str, conn_id: str) -> Iterator[None]:
    """Turn what Google's client raises in the block into a SourceError: what happened, where, what to do."""
    import google.api_core.exceptions as api
    import google.auth.exceptions as auth
    import requests

    try:
        yield
    except api.NotFound as error:
        raise SourceError(f"{what} does not exist: create it, or correct its name or project") from error
    except (api.Unauthorized, auth.RefreshError) as error:
        raise SourceError(
            f"{what}: Google refused the credentials: correct the key in the extra of {conn_id!r}"
        ) from error
    except api.Forbidden as error:
        raise SourceError(
            f"{what}: access is denied: give the account of {conn_id!r} a role that may read it"
        ) from error
    except api.GoogleAPICallError as error:
        raise SourceError(
            f"{what}: Google answered {error.code} ({error.message}): it is tried again"
        ) from error
    except (api.GoogleAPIError, auth.GoogleAuthError, requests.RequestException) as error:
        raise SourceError(
            f"{what} cannot be reached ({type(error).__name__}): check the network and {conn_id!r}"
        ) from error


def _load(connection: Connection, scopes: list[str]) -> tuple[Any, str | None]:
    import google.auth
    from google.oauth2 import service_account

    key = extra(connection, "keyfile_dict")
    path = extra(connection, "key_path")
    config = extra(connection, "credential_config_file")
    if key or path:
        if key:
            fields = json.loads(key) if isinstance(key, str) else dict(key)
        else:
            with open(str(path), encoding="utf-8") as file:
                fields = json.load(file)
        found = service_account.Credentials.from_service_account_info(fields, scopes=scopes)
        return found, fields.get("project_id")
    if config:
        if isinstance(config, str) and not config.lstrip().startswith("{"):
            return google.auth.load_credentials_from_file(config, scopes=scopes)  # type: ignore[no-any-return]
        fields = json.loads(config) if isinstance(config, str) else dict(config)
        return google.auth.load_credentials_from_dict(fields, scopes=scopes)  # type: ignore[no-any-return]
    return google.auth.default(scopes=scopes)  # type: ignore[no-any-return]


def _impersonate(found: Any, target: Any, scopes: list[str]) -> Any:
    """Credentials of the last account of a chain, which the others delegate to."""
    from google.auth import impersonated_credentials

    chain = [name.strip() for name in target.split(",")] if isinstance(target, str) else list(target)
    return impersonated_credentials.Credentials(
        source_credentials=found, target_principal=chain[-1], delegates=chain[:-1], target_scopes=scopes
    )
