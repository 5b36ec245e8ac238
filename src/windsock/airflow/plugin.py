"""The Airflow plugin: the gateway in the API server, the listener in the other components."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from windsock.airflow import listener, settings

__all__ = ["WindsockPlugin"]


class LazyGateway:
    """The gateway as an ASGI application, built by its first request.

    Airflow loads plugins in every process; only the API server needs FastAPI and the log for this.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if self._app is None:
            from windsock.gateway import create_app

            self._app = create_app(
                settings.get_log, secrets=_secret, airflow_user=_airflow_user, airflow_reader=_airflow_reader
            )
        await self._app(scope, receive, send)


async def _secret(conn_id: str) -> Any:
    """The login and password of an Airflow Connection, and the secrets that were valid before."""
    from airflow.sdk import Connection

    from windsock.gateway import Secret

    connection = await asyncio.to_thread(Connection.get, conn_id)
    return Secret.of(connection.login, connection.password, connection.extra_dejson)


async def _airflow_user(request: Any) -> Any:
    """The user behind an Airflow bearer token, if they may create asset events.

    The session cookie does not count: a page on another site could send it along.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.core_api.security import resolve_user_from_token

    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    user = await resolve_user_from_token(token)
    allowed = await asyncio.to_thread(get_auth_manager().is_authorized_asset, method="POST", user=user)
    return user if allowed else None


async def _airflow_reader(request: Any) -> Any:
    """The user behind an Airflow bearer token or session cookie, if they may read assets.

    The cookie counts here: another site can send it along, but cannot read the answer, and nothing changes.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
    from airflow.api_fastapi.core_api.security import resolve_user_from_token

    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        token = request.cookies.get(COOKIE_NAME_JWT_TOKEN) or ""
    if not token:
        return None
    user = await resolve_user_from_token(token)
    allowed = await asyncio.to_thread(get_auth_manager().is_authorized_asset, method="GET", user=user)
    return user if allowed else None


class WindsockPlugin(AirflowPlugin):
    """Everything that Windsock adds to Airflow's own processes."""

    name = "windsock"
    listeners = [listener]
    fastapi_apps = [{"app": LazyGateway(), "url_prefix": "/windsock", "name": "windsock"}]
