"""Wait for an HTTP endpoint to say that something is ready, without holding a worker.

    HttpPollingOperator(
        task_id="wait_for_export",
        conn_id="warehouse",                      # base address and secrets
        endpoint="exports/{{ params.export }}",
        response_check="export.state",
        expected_value="done",
        poll_interval="30s", timeout="2h",
    )

The task asks at once. If the answer is not there yet, it defers to :class:`HttpPollingTrigger` and ends with
the endpoint's JSON answer as its result.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
from airflow.sdk import BaseOperator, Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import amask_secret, mask_secret

from windsock.airflow.http_probe import Access, Answer, EndpointError, HttpProbe, shown
from windsock.airflow.polling import PollingTrigger, positive_seconds
from windsock.json_path import MISSING, JsonPath
from windsock.values import normalise

__all__ = ["HttpPollingError", "HttpPollingOperator", "HttpPollingTimeout", "HttpPollingTrigger"]

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT = 30.0


class HttpPollingError(AirflowException):
    """The endpoint will not become ready by waiting; the message has the status and what to do about it."""


class HttpPollingTimeout(HttpPollingError):
    """The endpoint was not ready in time; the message says what was last seen and what went wrong."""


class HttpPollingTrigger(PollingTrigger):
    """Asks an endpoint until a value in its JSON answer is the expected one; fires one event.

    The event's ``status`` is ``success`` (with ``value`` and ``response``), ``timeout`` or ``error`` (with a
    ``message``; an error also has the ``status_code``). Lost connections, 408, 425, 429, 5xx and answers that
    are not JSON are tried again; ``Retry-After`` is respected, up to the deadline. Any other 4xx, and a
    redirect, is an error at once.

    :param endpoint: the address to GET; with ``conn_id`` a path is enough
    :param headers: headers that are no secret; they are stored in Airflow's database with the trigger
    :param response_check: path into the JSON answer: ``status``, ``jobs[0].state``, ``$.data."a.b"``; see
        :mod:`windsock.json_path`
    :param expected_value: the value to find there; a text also matches the number, boolean or null that it
        spells, see :func:`windsock.json_path.matches`
    :param poll_interval: seconds between two requests, or text such as ``"30s"``
    :param timeout: seconds until the trigger gives up, or text such as ``"2h"``
    :param conn_id: the Connection that holds base address and secrets, see
        :mod:`windsock.airflow.http_probe`; read in the triggerer, stored nowhere
    :param request_timeout: seconds that one request may take
    :param deadline: see :class:`~windsock.airflow.polling.PollingTrigger`, as for ``clock`` and ``sleep``
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str] | None = None,
        response_check: str = "status",
        expected_value: Any = "ready",
        poll_interval: float | str = 30.0,
        timeout: float | str = 3600.0,
        conn_id: str | None = None,
        request_timeout: float | str = _REQUEST_TIMEOUT,
        deadline: float | None = None,
        **testing: Any,
    ) -> None:
        super().__init__(poll_interval=poll_interval, timeout=timeout, deadline=deadline, **testing)
        self.endpoint = endpoint
        self.headers = dict(headers or {})
        self.path = JsonPath(response_check)
        self.expected_value = normalise(expected_value)
        self.conn_id = conn_id
        self.request_timeout = positive_seconds("request_timeout", request_timeout)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """All that is needed to go on elsewhere: the deadline is in it, the Connection's secrets are not."""
        return "windsock.airflow.http_polling.HttpPollingTrigger", {
            "endpoint": self.endpoint,
            "headers": self.headers,
            "response_check": self.path.text,
            "expected_value": self.expected_value,
            "poll_interval": self.poll_interval,
            "timeout": self.timeout,
            "conn_id": self.conn_id,
            "request_timeout": self.request_timeout,
            "deadline": self.deadline,
        }

    def __repr__(self) -> str:
        return (
            f"<HttpPollingTrigger endpoint={shown(self.endpoint)} response_check={self.path}"
            f" headers={sorted(self.headers)} conn_id={self.conn_id} deadline={self.deadline}>"
        )

    def client(self) -> httpx.AsyncClient:
        """A client to ask with. Reading the root certificates takes a moment: not in an event loop."""
        return httpx.AsyncClient(
            headers={"Accept": "application/json", "User-Agent": "windsock"},
            timeout=self.request_timeout,
            verify=_tls(),
        )

    def probe(self, access: Access) -> HttpProbe:
        """The probe of this endpoint; raises :class:`~windsock.airflow.http_probe.EndpointError`."""
        return HttpProbe(
            self.endpoint,
            self.headers,
            self.path,
            self.expected_value,
            access,
            request_timeout=self.request_timeout,
            clock=self.clock,
        )

    async def wait(self) -> dict[str, Any]:
        """Ask until the answer is the expected one, is final, or the deadline has passed."""
        story, probe = _Story(), None
        where = shown(self.endpoint)
        logger.info("windsock.http_polling.waiting endpoint=%s left=%.1fs", where, self.left)
        async with await asyncio.to_thread(self.client) as client:
            while True:
                try:
                    probe = probe or await self._open_probe()
                    answer = await probe.ask(client)
                except AirflowNotFoundException as error:
                    # The operator has just read it: more likely the API server is away than the Connection.
                    answer = Answer("failed", problem=str(error))
                except EndpointError as error:
                    answer = Answer("refused", problem=str(error))
                story.add(answer)
                if answer.state == "ready":
                    logger.info("windsock.http_polling.ready endpoint=%s elapsed=%.1fs", where, self.elapsed)
                    return self._event("success", value=answer.value, response=answer.response)
                if answer.state == "refused":
                    message = f"{where}: {answer.problem}"
                    return self._event("error", message=message, status_code=answer.status_code)
                pause = max(self.poll_interval, answer.retry_after)
                if answer.state == "failed":
                    logger.warning(
                        "windsock.http_polling.failed endpoint=%s retry_in=%.1fs: %s",
                        where, min(pause, max(self.left, 0.0)), answer.problem,
                    )  # fmt: skip
                if not await self.pause(pause):
                    return self._event("timeout", message=self._too_late(story), errors=story.failed)

    async def _open_probe(self) -> HttpProbe:
        access = Access.of(await Connection.async_get(self.conn_id)) if self.conn_id else Access()
        probe = self.probe(access)
        for secret in probe.secrets:
            await amask_secret(secret)
        return probe

    def _event(self, status: str, **details: Any) -> dict[str, Any]:
        return {"status": status, "elapsed": self.elapsed, **details}

    def _too_late(self, story: _Story) -> str:
        return (
            f"{shown(self.endpoint)} did not have {self.path} = {self.expected_value!r} within"
            f" {self.timeout:g} s; {story}. Give it a longer timeout, or look at what the endpoint waits for."
        )


@dataclass
class _Story:
    """What was seen so far, for the message of a timeout."""

    asked: int = 0
    failed: int = 0
    value: Any = MISSING
    problems: deque[str] = field(default_factory=lambda: deque(maxlen=3))

    def add(self, answer: Answer) -> None:
        self.asked += 1
        if answer.state == "failed":
            self.failed += 1
            self.problems.append(answer.problem)
        else:
            self.value = answer.value

    def __str__(self) -> str:
        seen = f"it was last seen as {self.value!r:.200}"
        if not self.failed:
            return seen
        return f"{seen}, and {self.failed} of the last {self.asked} checks failed: {'; '.join(self.problems)}"


class HttpPollingOperator(BaseOperator):
    """Wait for an endpoint; the task's result is its JSON answer. Options as for the trigger.

    It checks at once, and defers when the endpoint is not ready. ``headers`` are not templated, since Airflow
    stores and shows what it renders; what is secret belongs into the Connection.
    """

    template_fields: ClassVar[tuple[str, ...]] = ("endpoint", "expected_value", "conn_id")
    ui_color = "#dbeef7"

    def __init__(
        self,
        *,
        endpoint: str,
        headers: Mapping[str, str] | None = None,
        response_check: str = "status",
        expected_value: Any = "ready",
        poll_interval: float | str = 30.0,
        timeout: float | str = 3600.0,
        conn_id: str | None = None,
        request_timeout: float | str = _REQUEST_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.endpoint = endpoint
        self.headers = headers
        self.response_check = JsonPath(response_check).text
        self.expected_value = expected_value
        self.poll_interval = positive_seconds("poll_interval", poll_interval)
        self.timeout = positive_seconds("timeout", timeout)
        self.conn_id = conn_id
        self.request_timeout = positive_seconds("request_timeout", request_timeout)

    def execute(self, context: Any) -> Any:
        """Check at once; defer if it is not ready. The deadline is counted from here."""
        trigger = HttpPollingTrigger(
            endpoint=self.endpoint,
            headers=self.headers,
            response_check=self.response_check,
            expected_value=self.expected_value,
            poll_interval=self.poll_interval,
            timeout=self.timeout,
            conn_id=self.conn_id,
            request_timeout=self.request_timeout,
        )
        probe = trigger.probe(Access.of(Connection.get(self.conn_id)) if self.conn_id else Access())
        mask_secret(trigger.headers)
        for secret in probe.secrets:
            mask_secret(secret)
        answer = asyncio.run(_ask_once(trigger, probe))
        where = shown(self.endpoint)
        if answer.state == "refused":
            raise HttpPollingError(f"{where}: {answer.problem}")
        if answer.state != "ready":
            reason = answer.problem or f"{self.response_check} is {answer.value!r:.200}"
            logger.info("windsock.http_polling.deferred endpoint=%s: %s", where, reason)
            self.defer(
                trigger=trigger, method_name=self.execute_complete.__name__, timeout=trigger.deferral_timeout
            )
        return answer.response

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """The endpoint's answer; raises :class:`HttpPollingTimeout` or :class:`HttpPollingError`."""
        match event:
            case {"status": "success", "response": response}:
                return response
            case {"status": "timeout", "message": message}:
                raise HttpPollingTimeout(message)
            case {"status": "error", "message": message}:
                raise HttpPollingError(message)
        raise HttpPollingError(
            f"the trigger sent an event that this operator does not know ({event!r:.200}): do the worker and"
            " the triggerer run the same version of Windsock?"
        )


async def _ask_once(trigger: HttpPollingTrigger, probe: HttpProbe) -> Answer:
    async with trigger.client() as client:
        return await probe.ask(client)


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all triggers of a process: each would hold all root certificates once more."""
    return httpx.create_ssl_context()
