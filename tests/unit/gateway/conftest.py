"""A gateway on a real log in memory, and a client that talks to it without a network."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from fastapi import HTTPException, Request

from windsock.gateway import Secret, create_app
from windsock.gateway.auth import sign
from windsock.log import LogUnavailable
from windsock.log.records import Appended, EventQuery, Write
from windsock.log.sqlite import SqliteLog
from windsock.sources import source_key
from windsock.spec import WatcherSpec

SECRET = "s3cr3t-of-the-shop"
TOKEN = "airflow-token"


class WatchedLog(SqliteLog):
    """A real log in memory that counts its commits and can be taken away."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.appends = 0
        self.away = False

    def append(self, writes: Sequence[Write], **_: object) -> list[Appended]:
        self.appends += 1
        self._here()
        return super().append(writes)

    def watchers(self, **filters: str | None) -> list[WatcherSpec]:
        self._here()
        return super().watchers(**filters)

    def _here(self) -> None:
        if self.away:
            raise LogUnavailable("event log: connection refused")


class Site:
    """What a test needs of one server: its log, its secrets, its doors."""

    def __init__(self) -> None:
        self.log = WatchedLog()
        self.secrets: dict[str, Secret] = {"shop": Secret(login="shop", password=SECRET)}
        self.app = create_app(lambda: self.log, secrets=self._secret, airflow_user=self._airflow_user)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://airflow.example"
        )

    async def _secret(self, conn_id: str) -> Secret:
        return self.secrets[conn_id]

    async def _airflow_user(self, request: Request) -> str | None:
        authorization = request.headers.get("authorization")
        if authorization == "Bearer expired":
            raise HTTPException(403, "Invalid JWT token")
        return "admin" if authorization == f"Bearer {TOKEN}" else None

    def watch(self, name: str = "orders", *, kind: str = "webhook", **spec: Any) -> None:
        """Register a watcher; options that are not the spec's own belong to the source, open by default."""
        fields = {key: spec.pop(key) for key in list(spec) if key in WatcherSpec.__struct_fields__}
        options = ({"auth": "none"} | spec) if kind == "webhook" else spec
        definition = WatcherSpec(name=name, kind=kind, options=options, **fields)
        self.log.register(definition, source=source_key(kind, options), asset=f"test://{name}")

    async def post(self, path: str = "/hooks/orders", **request: Any) -> httpx.Response:
        return await self.client.post(path, **request)

    async def post_signed(self, body: bytes, *, age: float = 0, **headers: str) -> httpx.Response:
        timestamp = str(int(time.time() - age))
        return await self.post(
            content=body,
            headers={
                "Content-Type": "application/json",
                "X-Windsock-Timestamp": timestamp,
                "X-Windsock-Signature": "sha256=" + sign(SECRET, body, timestamp),
            }
            | headers,
        )

    def stored(self) -> list[Any]:
        """The data of every event in the log, oldest first."""
        return [record.event.data for record in reversed(self.log.events(EventQuery(limit=10_000)))]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    await site.client.aclose()
    await site.app.state.gateway.aclose()
    site.log.close()
