"""One request's way: which watcher, who sends, how much, how often, then parse, pipeline, log, answer.

::

    find ─▶ check headers ─▶ read body ─▶ check signature ─▶ rate ─▶ backlog ─▶ parse ─▶ pipeline ─▶ commit
    404       401, 413, 415    413, 408      401              429      503       415, 422              503

The rate is counted after authentication, so that strangers cannot use up a sender's share. Parsing and the
pipeline run in a thread: a large body or a slow filter does not hold up the server's event loop. A preset's
ping or challenge is answered before the backlog is looked at, and stored nowhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from windsock.events import InvalidEvent
from windsock.gateway.auth import Secrets
from windsock.gateway.documents import Documents, Fetch, fetch
from windsock.gateway.door import AirflowUser, Door
from windsock.gateway.hooks import Hook, Hooks
from windsock.gateway.intake import check_length, is_cloudevents, parse, read_body
from windsock.gateway.processed import Processed
from windsock.gateway.rate import Room
from windsock.gateway.refusal import Refused
from windsock.gateway.sent import Sent
from windsock.gateway.store import Store

__all__ = ["AirflowUser", "Gateway"]

logger = logging.getLogger("windsock.gateway")

MAX_HELD_BYTES = 64_000_000
"""Request bodies in memory at any time, in one process."""


class Gateway:
    """Receives requests for webhook watchers and stores what they bring."""

    def __init__(
        self,
        store: Store,
        secrets: Secrets,
        airflow_user: AirflowUser | None = None,
        *,
        read: Fetch = fetch,
        max_held_bytes: int = MAX_HELD_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._hooks = Hooks(store)
        self._door = Door(secrets, Documents(read), airflow_user, now=now)
        self._read = read
        self._room = Room(max_held_bytes)

    async def answer(
        self, request: Request, watcher: str | None, *, only_cloudevents: bool = False
    ) -> Response:
        """The HTTP answer to one request: whatever was sent, there is one."""
        try:
            if request.method == "OPTIONS":
                return await self._greet_origin(request, watcher or "")
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
        sent = _sent(request, hook)
        await self._door.check_headers(hook, sent, request)
        check_length(sent.headers, hook.config.max_body)
        takes = hook.preset is None or hook.preset.cloudevents
        if only_cloudevents and not (takes and is_cloudevents(sent.headers)):
            raise Refused(415, "send CloudEvents here: application/cloudevents+json, or ce-* headers")
        with self._room.hold() as hold:
            sent = replace(sent, body=await read_body(request, hook.config.max_body, hold))
            await self._door.check_body(hook, sent)
            hook.bucket.take()
            greeting = await self._greet(hook, sent)
            if greeting is not None:
                return greeting
            await self._hooks.check_backlog(hook)
            processed = await asyncio.to_thread(_process, hook, sent)
            appended = await self._store.append(processed.write(hook.spec.name))
        response = processed.response(appended)
        if hook.preset is not None and hook.preset.reply is not None:
            body, media_type = hook.preset.reply
            return Response(body, 200, media_type=media_type)
        return response

    async def _greet(self, hook: Hook, sent: Sent) -> Response | None:
        if hook.preset is None:
            return None
        try:
            return await hook.preset.greet(hook.config, sent, self._read)
        except InvalidEvent as error:
            raise Refused(422, str(error)) from error

    async def _greet_origin(self, request: Request, watcher: str) -> Response:
        """The handshake of the CloudEvents webhook specification: whether this origin may send here."""
        hook = await self._hooks.find(watcher)
        origin = request.headers.get("webhook-request-origin")
        if hook.preset is None or not hook.preset.origins or not origin:
            raise Refused(405, "only POST is understood here", headers={"Allow": "POST"})
        await self._door.check_headers(hook, _sent(request, hook), request)
        allowed = {"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*", "Allow": "POST, OPTIONS"}
        return Response(b"", 200, headers=allowed)


def _sent(request: Request, hook: Hook) -> Sent:
    """The request without its body, under the address that its sender knows."""
    url, query = str(request.url), request.url.query
    if hook.config.url is not None:
        url = f"{hook.config.url}?{query}" if query else hook.config.url
    return Sent(request.headers, request.query_params, url)


def _process(hook: Hook, sent: Sent) -> Processed:
    return Processed.by(hook.pipeline, parse(hook.spec.name, hook.config, sent, hook.preset))
