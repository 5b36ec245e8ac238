"""What the log knows, over HTTP: read only, as JSON, for Airflow users who may read assets.

::

    GET /api/explain/<event id>           every stage's verdict; ?watcher=
    GET /api/explain?dag=<id>&at=<time>   why a Dag ran, or did not; by default now
    GET /api/events                       newest first; ?id= key= type= watcher= asset= dag= state= text=
                                          since= until= before=<seq> limit=
    GET /api/dead-letters                 newest first; ?watcher= dag= category= text= since= until= state=
                                          before=<id> limit=
    GET /api/dead-letters/<id>            one letter whole
    GET /api/replays                      every replay and how far it is
    GET /api/replay/preview               what a replay would do; ?watcher= asset= key= event= where= since=
                                          until= dag=

Times are ISO 8601 or epoch seconds. 401: not logged in, or not allowed; 404: no such letter; 422: a parameter
that is not understood, with the reason; 503: the log cannot be reached.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response

from windsock.events import InvalidEvent, parse_time
from windsock.explain import explain_dag, explain_event
from windsock.gateway.door import AirflowUser
from windsock.gateway.refusal import Refused
from windsock.gateway.store import Store
from windsock.log import Log
from windsock.log.records import DeadRecord, EventQuery, EventRecord, Scan, State
from windsock.pipeline.expressions import is_function
from windsock.recovery import preview
from windsock.spec import SpecError

__all__ = ["add_questions"]

logger = logging.getLogger("windsock.gateway")

_MOST = 1000
"""The most rows of one answer."""


def add_questions(app: FastAPI, store: Store, reader: AirflowUser | None) -> None:
    """Give the application the routes of this module; without ``reader`` they let nobody in."""
    desk = _Desk(store, reader)
    router = APIRouter(prefix="/api")

    @router.get("/explain/{event_id:path}")
    async def explain_one(request: Request, event_id: str) -> Response:
        watcher = request.query_params.get("watcher")
        return await desk.answer(request, lambda log: explain_event(log, event_id, watcher=watcher))

    @router.get("/explain")
    async def explain_a_dag(request: Request) -> Response:
        return await desk.answer(request, lambda log: _explain_dag(log, _Query(request)))

    @router.get("/events")
    async def events(request: Request) -> Response:
        return await desk.answer(request, lambda log: _events(log, _Query(request)))

    @router.get("/dead-letters")
    async def dead_letters(request: Request) -> Response:
        return await desk.answer(request, lambda log: _letters(log, _Query(request)))

    @router.get("/dead-letters/{letter}")
    async def dead_letter(request: Request, letter: int) -> Response:
        return await desk.answer(request, lambda log: _letter(log, letter))

    @router.get("/replays")
    async def replays(request: Request) -> Response:
        return await desk.answer(request, lambda log: log.replays())

    @router.get("/replay/preview")
    async def replay_preview(request: Request) -> Response:
        return await desk.answer(request, lambda log: _preview(log, _Query(request)))

    app.include_router(router)


class _Desk:
    """Lets in who may read, asks the log in a thread, answers in JSON."""

    def __init__(self, store: Store, reader: AirflowUser | None) -> None:
        self._store = store
        self._reader = reader

    async def answer(self, request: Request, question: Callable[[Log], Any]) -> Response:
        try:
            await self._check(request)
            found = await self._store.ask(question)
        except SpecError as error:
            return Refused(422, str(error)).response()
        except Refused as refused:
            return refused.response()
        if found is None:
            return Refused(404, "there is no such thing").response()
        headers = {"Cache-Control": "no-store"}
        return Response(msgspec.json.encode(found), headers=headers, media_type="application/json")

    async def _check(self, request: Request) -> None:
        user, failed = None, "Airflow token missing or user not allowed"
        if self._reader is not None:
            try:
                user = await self._reader(request)
            except HTTPException as error:
                failed = f"Airflow token refused with {error.status_code}"
        if user is None:
            logger.warning("windsock.gateway.not_authorised path=%s check=%r", request.url.path, failed)
            raise Refused(401, "not authorised", headers={"WWW-Authenticate": "Bearer"})


class _Query:
    """The parameters of a request, each as what it should be, or SpecError."""

    def __init__(self, request: Request) -> None:
        self._given = request.query_params

    def text(self, name: str) -> str | None:
        return self._given.get(name) or None

    def texts(self, name: str) -> list[str] | None:
        return self._given.getlist(name) or None

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 18:
            raise SpecError(f"{name}={text!r} is no number")
        return int(text)

    def limit(self) -> int:
        number = self.number("limit")
        return 100 if number is None else max(1, min(number, _MOST))

    def time(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            pass  # not epoch seconds, so a time as text
        try:
            found = parse_time(text)
        except InvalidEvent:
            found = None
        if found is None:
            raise SpecError(f"{name}={text!r} is no time: write 2026-01-31T12:00:00Z or epoch seconds")
        return found.timestamp()

    def state(self) -> State | None:
        text = self.text("state")
        if text is not None and text not in set(State):
            raise SpecError(f"state={text!r} is none of {', '.join(State)}")
        return None if text is None else State(text)

    def condition(self) -> str | None:
        """A CEL expression: naming a function of the server's is for those who have a shell on it."""
        text = self.text("where")
        if text is not None and is_function(text):
            raise SpecError("where takes a CEL expression here")
        return text


def _explain_dag(log: Log, query: _Query) -> Any:
    dag_id, at = query.text("dag"), query.time("at")
    if dag_id is None:
        raise SpecError("name a Dag with ?dag=, or an event: /api/explain/<event id>")
    return explain_dag(log, dag_id, at=time.time() if at is None else at)


def _events(log: Log, query: _Query) -> Any:
    records = log.events(
        EventQuery(
            id=query.text("id"),
            key=query.text("key"),
            type=query.text("type"),
            watcher=query.text("watcher"),
            asset=query.text("asset"),
            dag_id=query.text("dag"),
            state=query.state(),
            since=query.time("since"),
            until=query.time("until"),
            text=query.text("text"),
            before=query.number("before"),
            limit=query.limit(),
        )
    )
    return [_plain_event(record) for record in records]


def _plain_event(record: EventRecord) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in EventRecord.__struct_fields__}
    return fields | {"event": record.event.as_dict()}


def _letters(log: Log, query: _Query) -> Any:
    letters = log.dead_letters(
        watcher=query.text("watcher"),
        dag_id=query.text("dag"),
        category=query.text("category"),
        event_id=query.text("event"),
        text=query.text("text"),
        since=query.time("since"),
        until=query.time("until"),
        before=query.number("before"),
        state=None if query.text("state") == "all" else query.text("state") or "dead",
        limit=query.limit(),
    )
    return [_plain_letter(letter, whole=False) for letter in letters]


def _letter(log: Log, letter: int) -> Any:
    found = log.dead_letters(ids=[letter], state=None)
    return _plain_letter(found[0], whole=True) if found else None


def _plain_letter(letter: DeadRecord, *, whole: bool) -> dict[str, Any]:
    """A letter as JSON; its body, as text or else in base64, only when it is asked for by its id."""
    fields = {name: getattr(letter, name) for name in DeadRecord.__struct_fields__ if name != "body"}
    if whole:
        try:
            fields["body"] = letter.body.decode()
        except UnicodeDecodeError:
            fields["body_base64"] = base64.b64encode(letter.body).decode()
    return fields


def _preview(log: Log, query: _Query) -> Any:
    scan = Scan(
        watchers=query.texts("watcher"),
        asset=query.text("asset"),
        key=query.text("key"),
        ids=query.texts("event"),
        since=query.time("since"),
        until=query.time("until"),
    )
    return preview(log, scan, query.condition(), dag_id=query.text("dag"))
