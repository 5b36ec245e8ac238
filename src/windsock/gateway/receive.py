"""One request's way: which watcher, who sends, how much, how often, then parse, pipeline, log, answer.

::

    find ─▶ check headers ─▶ read body ─▶ check signature ─▶ rate ─▶ backlog ─▶ parse ─▶ pipeline ─▶ commit
    404       401, 413, 415    413, 408      401              429      503       415, 422              503

The rate is counted after authentication, so that strangers cannot use up a sender's share. Parsing and the
pipeline run in a thread: a large body or a slow filter does not hold up the server's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from fastapi import HTTPException, Request, Response
from starlette.requests import ClientDisconnect

from windsock.gateway.auth import (
    Secret,
    Secrets,
    SecretUnavailable,
    check_basic,
    check_bearer,
    check_signature,
    check_timestamp,
)
from windsock.gateway.hooks import Hook, Hooks
from windsock.gateway.intake import check_length, is_cloudevents, parse, read_body
from windsock.gateway.processed import Processed
from windsock.gateway.rate import Room
from windsock.gateway.refusal import Refused
from windsock.gateway.store import Store

__all__ = ["AirflowUser", "Gateway"]

logger = logging.getLogger("windsock.gateway")

MAX_HELD_BYTES = 64_000_000
"""Request bodies in memory at any time, in one process."""

_CHALLENGES = {"bearer": "Bearer", "airflow": "Bearer", "basic": 'Basic realm="windsock", charset="UTF-8"'}

AirflowUser = Callable[[Request], Awaitable[object | None]]


class Gateway:
    """Receives requests for webhook watchers and stores what they bring."""

    def __init__(
        self,
        store: Store,
        secrets: Secrets,
        airflow_user: AirflowUser | None = None,
        *,
        max_held_bytes: int = MAX_HELD_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._hooks = Hooks(store)
        self._secrets = secrets
        self._airflow_user = airflow_user
        self._room = Room(max_held_bytes)
        self._now = now

    async def answer(
        self, request: Request, watcher: str | None, *, only_cloudevents: bool = False
    ) -> Response:
        """The HTTP answer to one request: whatever was sent, there is one."""
        try:
            return await self._receive(request, watcher, only_cloudevents=only_cloudevents)
        except Refused as refused:
            return refused.response()
        except ClientDisconnect:
            return Refused(400, "the sender went away").response()
        except Exception:
            logger.exception("windsock.gateway.failed")
            return Refused(503, "the request could not be handled: try again", retry_after=5).response()

    async def aclose(self) -> None:
        """Finish what is being stored and let go of the log."""
        await self._store.aclose()

    async def _receive(self, request: Request, watcher: str | None, *, only_cloudevents: bool) -> Response:
        hook = await (self._hooks.find(watcher) if watcher else self._hooks.only())
        headers = request.headers
        await self._check_headers(hook, request)
        check_length(headers, hook.config.max_body)
        if only_cloudevents and not is_cloudevents(headers):
            raise Refused(415, "send CloudEvents here: application/cloudevents+json, or ce-* headers")
        with self._room.hold() as hold:
            body = await read_body(request, hook.config.max_body, hold)
            await self._check_body(hook, headers, body)
            hook.bucket.take()
            await self._hooks.check_backlog(hook)
            processed = await asyncio.to_thread(_process, hook, headers, body)
            appended = await self._store.append(processed.write(hook.spec.name))
        return processed.response(appended)

    async def _check_headers(self, hook: Hook, request: Request) -> None:
        """What can be told before the body is read, so that strangers do not get to send one."""
        match hook.config.auth:
            case "hmac":
                failed = check_timestamp(hook.config, request.headers, self._now())
            case "bearer":
                failed = check_bearer(await self._secret(hook), request.headers)
            case "basic":
                failed = check_basic(await self._secret(hook), request.headers)
            case "airflow":
                failed = await self._check_airflow(request)
            case "none":
                failed = None
        if failed:
            raise _not_authorised(hook, failed)

    async def _check_body(self, hook: Hook, headers: Mapping[str, str], body: bytes) -> None:
        if hook.config.auth == "hmac":
            secret = await self._secret(hook)
            failed = check_signature(hook.config, secret, headers, body, self._now())
            if failed:
                raise _not_authorised(hook, failed)

    async def _secret(self, hook: Hook) -> Secret:
        try:
            return await self._secrets.get(hook.config.conn_id or "")
        except SecretUnavailable as error:
            raise Refused(503, "the webhook is not ready: try again later", retry_after=30) from error

    async def _check_airflow(self, request: Request) -> str | None:
        if self._airflow_user is None:
            return "Airflow token not supported by this server"
        try:
            user = await self._airflow_user(request)
        except HTTPException as error:
            return f"Airflow token refused with {error.status_code}"
        return None if user is not None else "Airflow token missing or user not allowed"


def _process(hook: Hook, headers: Mapping[str, str], body: bytes) -> Processed:
    return Processed.by(hook.pipeline, parse(hook.spec.name, hook.config, headers, body))


def _not_authorised(hook: Hook, failed: str) -> Refused:
    logger.warning("windsock.gateway.not_authorised watcher=%s check=%r", hook.spec.name, failed)
    challenge = _CHALLENGES.get(hook.config.auth)
    return Refused(401, "not authorised", headers={"WWW-Authenticate": challenge} if challenge else None)
