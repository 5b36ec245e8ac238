"""Airflow's stable REST API, as far as it is read: a token, and pages of JSON."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["Api", "NotFound"]


class NotFound(SourceError):
    """What was asked for is not there."""


class Api:
    """One Airflow's API, as the user of a Connection."""

    def __init__(self, connection: Connection, http: httpx.AsyncClient) -> None:
        self.url = str(http.base_url).rstrip("/")
        self._connection = connection
        self._http = http
        self._token: str | None = None

    @classmethod
    async def open(cls, connection: Connection) -> Api:
        """The API at the Connection's address; nothing is asked yet."""
        verify = connection.get("verify", True)
        trust: ssl.SSLContext | bool = connection.flag("verify", True)
        try:
            if isinstance(verify, str) and "/" in verify:
                trust = await asyncio.to_thread(ssl.create_default_context, cafile=verify)
            http = await asyncio.to_thread(
                httpx.AsyncClient,
                base_url=_address(connection),
                timeout=float(connection.get("timeout", 30)),
                verify=trust,
            )
        except (OSError, ValueError, httpx.InvalidURL) as error:
            raise SourceError(
                f"connection {connection.conn_id!r} cannot be used: {error}; check host, port and extras"
            ) from None
        return cls(connection, http)

    async def get(self, path: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object at a path below ``/api/v2``."""
        if self._token is None:
            self._token = await self._log_in()
        answer = await self._ask(path, params)
        if answer.status_code == httpx.codes.UNAUTHORIZED:  # it may have expired
            self._token = await self._log_in()
            answer = await self._ask(path, params)
        return self._json(answer, path)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _ask(self, path: str, params: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token}"}
        return await self._send("GET", f"/api/v2/{path}", params=params, headers=headers)

    async def _log_in(self) -> str:
        """A bearer token: the one that the Connection holds, or one for its login and password."""
        connection = self._connection
        if token := connection.get("token"):
            return str(token)
        if connection.password and not connection.login:
            return connection.password
        if connection.login:
            body = {"username": connection.login, "password": connection.password or ""}
            answer = await self._send("POST", "/auth/token", json=body)
        else:
            answer = await self._send("GET", "/auth/token")
        token = self._json(answer, "auth/token").get("access_token")
        if not isinstance(token, str):
            raise SourceError(f"{self.url}/auth/token gave no token: check that this is an Airflow 3")
        return token

    async def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise SourceError(
                f"Airflow at {self.url} does not answer ({what}): check that its API server runs, and host "
                f"and port of connection {self._connection.conn_id!r}"
            ) from None

    def _json(self, answer: httpx.Response, path: str) -> dict[str, Any]:
        status = answer.status_code
        where = f"Airflow at {self.url} answered {status} to {path}"
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise SourceError(
                f"{where}: check login and password, or the token, of connection "
                f"{self._connection.conn_id!r}, and that its user may read Dag runs, tasks and assets"
            )
        if status == httpx.codes.NOT_FOUND:
            raise NotFound(f"{where}: check the address, and that this is an Airflow 3")
        if not answer.is_success:
            raise SourceError(f"{where}: {answer.text[:200]}; look into the API server's log")
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise SourceError(f"{where}, but not in JSON: check the address, and that this is an Airflow 3")
        return body


def _address(connection: Connection) -> str:
    host = connection.host or ""
    if "://" in host:
        return host
    if not host:
        raise ValueError("it has no host")
    scheme = connection.schema or ("https" if connection.conn_type == "https" else "http")
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{connection.port}" if connection.port else f"{scheme}://{name}"
