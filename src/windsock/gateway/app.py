"""The gateway: webhooks and CloudEvents over HTTP, mounted by Airflow's API server under ``/windsock``.

::

    POST /hooks/<watcher>    any body becomes one event; CloudEvents as they are
    POST /events             CloudEvents, structured, binary or batch; ?watcher=<name> or X-Windsock-Watcher
    GET  /health             {"status": "ok"} while the process answers

A request is answered only after the log committed it::

    202 accepted             stored as a new event
    200 duplicate            stored before; ``seq`` is the first one's
    200 filtered             the watcher's ``where`` does not want it
    200 dead                 stored among the dead letters, with the reason

Everything else is a refusal, and nothing was stored: 401 not authorised (the server's log says which check
failed), 404 no such webhook, 408 body too slow, 413 body too large, 415 compressed or not CloudEvents,
422 not valid JSON or CloudEvents, 429 too fast, 503 try again. A batch is answered event by event; its
invalid events become dead letters if at least one of it is good.

The rate is counted after authentication, so that strangers cannot use up a sender's share.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
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
from windsock.gateway.intake import Intake, check_length, is_cloudevents, parse, read_body
from windsock.gateway.rate import Room
from windsock.gateway.refusal import Refused
from windsock.gateway.results import results
from windsock.gateway.store import Store
from windsock.log.base import Log, Write

__all__ = ["Gateway", "create_app"]

logger = logging.getLogger("windsock.gateway")

MAX_HELD_BYTES = 64_000_000
"""Request bodies in memory at any time, in one process."""

_CHALLENGE = {"bearer": "Bearer", "airflow": "Bearer", "basic": 'Basic realm="windsock", charset="UTF-8"'}

AirflowUser = Callable[[Request], Awaitable[object | None]]


def create_app(
    log: Log | Callable[[], Log],
    *,
    secrets: Callable[[str], Awaitable[Secret]],
    airflow_user: AirflowUser | None = None,
) -> FastAPI:
    """The gateway as an ASGI application.

    ``log`` is the event log or, better, a function that opens it in the first request. ``secrets`` finds the
    :class:`~windsock.gateway.auth.Secret` of an Airflow connection id. ``airflow_user`` returns the Airflow
    user that the request's token belongs to, if it may create asset events, and None or an
    ``HTTPException`` otherwise; without it ``auth="airflow"`` lets nobody in.

    The application needs no lifespan events, which a mounted application does not get. Its
    ``state.gateway`` has ``aclose()`` for those who want to stop it in order.
    """
    gateway = Gateway(Store(log), Secrets(secrets), airflow_user)
    app = FastAPI(title="Windsock gateway", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.gateway = gateway

    @app.post("/hooks/{watcher}")
    async def hook(request: Request, watcher: str) -> Response:
        return await gateway.answer(request, watcher)

    @app.post("/events")
    async def events(request: Request) -> Response:
        watcher = request.query_params.get("watcher") or request.headers.get("x-windsock-watcher")
        return await gateway.answer(request, watcher, only_cloudevents=True)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


class Gateway:
    """Receives requests for webhook watchers and stores what they bring."""

    def __init__(
        self,
        store: Store,
        secrets: Secrets,
        airflow_user: AirflowUser | None,
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
        """The HTTP answer to one request; every outcome is one, whatever was sent."""
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
        await self._authenticate(hook, request)
        check_length(headers, hook.config.max_body)
        if only_cloudevents and not is_cloudevents(headers):
            raise Refused(415, "send CloudEvents here: application/cloudevents+json, or ce-* headers")
        with self._room.hold() as hold:
            body = await read_body(request, hook.config.max_body, hold)
            await self._authenticate_body(hook, request, body)
            hook.bucket.take()
            await self._hooks.check_backlog(hook)
            intake, write, outcomes = await asyncio.to_thread(_prepare, hook, headers, body)
            appended = await self._store.append(write)
        ...
