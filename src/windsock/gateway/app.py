"""The gateway's routes: webhooks and CloudEvents over HTTP, mounted by Airflow's API server at ``/windsock``.

::

    POST /hooks/<watcher>    any body becomes one event; CloudEvents as they are
    POST /events             CloudEvents, structured, binary or batch; ?watcher=<name> or X-Windsock-Watcher
    OPTIONS /hooks/<watcher> the handshake of CloudEvents webhooks, for presets that have it
    GET  /health             {"status": "ok"} while the process answers
    GET  /api/…              what the log knows, for users who may read assets: see windsock.gateway.questions

A request is answered only after the log committed it::

    202 accepted             stored as a new event
    200 duplicate            stored before; ``seq`` is the first one's
    200 filtered             the watcher's ``where`` does not want it
    200 dead                 stored among the dead letters, with the reason
    200 pong                 a preset's ping; a challenge is answered with what its sender expects

Every other answer is a refusal, and nothing was stored: 401 not authorised (the server's log says which
check failed), 404 no such webhook, 408 body too slow, 413 body too large, 415 compressed or not CloudEvents,
422 not valid JSON or CloudEvents, 429 too fast, 503 try again. A batch is answered event by event; its
invalid events become dead letters if at least one of its events is good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response

from windsock.gateway.auth import Secret, Secrets
from windsock.gateway.documents import Fetch, fetch
from windsock.gateway.questions import add_questions
from windsock.gateway.receive import AirflowUser, Gateway
from windsock.gateway.store import Store
from windsock.log.base import Log

__all__ = ["create_app"]


def create_app(
    log: Log | Callable[[], Log],
    *,
    secrets: Callable[[str], Awaitable[Secret]],
    airflow_user: AirflowUser | None = None,
    airflow_reader: AirflowUser | None = None,
    read: Fetch = fetch,
) -> FastAPI:
    """The gateway as an ASGI application.

    ``log`` is the event log or, better, a function that opens it in the first request. ``secrets`` finds the
    :class:`~windsock.gateway.auth.Secret` of an Airflow connection id. ``airflow_user`` returns the Airflow
    user that the request's token belongs to, if that user may create asset events, and otherwise returns
    None or raises an ``HTTPException``; without it ``auth="airflow"`` lets nobody in. ``airflow_reader`` does
    the same for users who may read assets; without it ``/api`` lets nobody in. ``read`` reads the public
    keys and certificates that identity tokens and SNS are checked with.

    The application needs no lifespan events, which a mounted application does not get. Its
    ``state.gateway`` has ``aclose()`` for those who stop it in order.
    """
    store = Store(log)
    gateway = Gateway(store, Secrets(secrets), airflow_user, read=read)
    app = FastAPI(title="Windsock gateway", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.gateway = gateway
    add_questions(app, store, airflow_reader)

    @app.api_route("/hooks/{watcher}", methods=["POST", "OPTIONS"])
    async def hooks(request: Request, watcher: str) -> Response:
        return await gateway.answer(request, watcher)

    @app.post("/events")
    async def events(request: Request) -> Response:
        watcher = request.query_params.get("watcher") or request.headers.get("x-windsock-watcher")
        return await gateway.answer(request, watcher, only_cloudevents=True)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app
