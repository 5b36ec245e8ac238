"""Exercise 11.3, the HTTP part: the trigger and its operator against a real endpoint.

Tests whose docstring begins with "Criterion" are the exercise's success criteria. The one that needs a
triggerer process is in ``tests/live/test_custom_trigger.py``.
"""

from __future__ import annotations

import asyncio
import email.utils
import inspect
import json
import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from airflow._shared.module_loading import import_string
from airflow.models.trigger import Trigger
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, TaskDeferred
from airflow.sdk.log import redact
from airflow.sdk.serde import deserialize, serialize
from airflow.triggers.base import BaseTrigger, TriggerEvent

from endpoint import Endpoint, Reply
from windsock.airflow.http_probe import MAX_BYTES, EndpointError
from windsock.json_path import PathError
from windsock.operators import HttpPollingError, HttpPollingOperator, HttpPollingTimeout
from windsock.spec import SpecError
from windsock.testing.clock import VirtualClock
from windsock.triggers import HttpPollingTrigger

READY, PENDING = Reply({"status": "ready", "id": 7}), Reply({"status": "pending"})
PASSWORD, API_KEY, QUERY_KEY = "pass-word-4f9d", "api-key-77b1", "query-key-2c3e"


class Time(VirtualClock):
    """A clock whose sleep passes at once and is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, span: float) -> None:
        """Let the time pass."""
        self.slept.append(span)
        self.advance(span)
        await asyncio.sleep(0)


@pytest.fixture
def time() -> Time:
    """A clock that a test may read and move."""
    return Time()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that is not ready until the test says so."""
    with Endpoint(PENDING) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is on loopback, whatever proxy the machine has."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> str:
    """A Connection to the endpoint, with secrets."""
    extra = {"headers": {"X-Api-Key": API_KEY}, "params": {"key": QUERY_KEY}}
    host = {"conn_type": "http", "host": endpoint.url, "password": PASSWORD, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_POLLED", json.dumps(host))
    return "polled"


def polling(server: Endpoint, time: Time, **options: Any) -> HttpPollingTrigger:
    """A trigger on the endpoint, on the test's clock."""
    options = {"endpoint": f"{server.url}/job", "poll_interval": 10, "timeout": 60} | options
    return HttpPollingTrigger(**options, clock=time, sleep=time.sleep)


async def fire(trigger: BaseTrigger) -> Any:
    """Run a trigger to its end; the payload of its only event."""
    (event,) = [event async for event in trigger.run()]
    assert isinstance(event, TriggerEvent)
    return event.payload


def through_airflow(trigger: BaseTrigger) -> BaseTrigger:
    """The trigger as a triggerer rebuilds it: through the worker's message and the database's column."""
    classpath, kwargs = trigger.serialize()
    row = Trigger(classpath=classpath, kwargs=deserialize(json.loads(json.dumps(serialize(kwargs)))))
    stored = Trigger(classpath=row.classpath, kwargs={})
    stored.encrypted_kwargs = row.encrypted_kwargs
    return import_string(stored.classpath)(**stored.kwargs)


def operator(endpoint: str, **options: Any) -> HttpPollingOperator:
    """The operator as a Dag has it."""
    return HttpPollingOperator(task_id="wait", endpoint=endpoint, **options)


def deferral(task: BaseOperator) -> TaskDeferred:
    """Execute the task, which must defer."""
    with pytest.raises(TaskDeferred) as deferred:
        task.execute({})
    return deferred.value


def test_serialize() -> None:
    """Criterion: Custom trigger implements serialize() correctly. Airflow's own round trip loses nothing."""
    trigger = HttpPollingTrigger(
        endpoint="https://api.example.com/jobs/7?full=1",
        headers={"X-Team": "data"},
        response_check='jobs[0]."a.b"',
        expected_value={"done": [1, True, None]},
        poll_interval="5s",
        timeout="2h",
        conn_id="api",
        request_timeout=3,
    )
    again = through_airflow(trigger)
    assert type(again) is HttpPollingTrigger
    assert again.serialize() == trigger.serialize()
    assert again.poll_interval == 5.0
    assert again.timeout == 7200.0


def test_defaults_are_those_of_the_exercise() -> None:
    """The trigger can be made from an endpoint alone, and has the exercise's parameters in its order."""
    kwargs = HttpPollingTrigger("https://api.example.com").serialize()[1]
    names = ["endpoint", "headers", "response_check", "expected_value", "poll_interval", "timeout"]
    assert list(inspect.signature(HttpPollingTrigger).parameters)[:6] == names
    assert [kwargs[name] for name in names[1:]] == [{}, "status", "ready", 30.0, 3600.0]


async def test_run_is_an_async_generator(endpoint: Endpoint, time: Time) -> None:
    """Criterion: Trigger run() is an async generator. It polls, then yields one event and ends."""
    assert inspect.isasyncgenfunction(HttpPollingTrigger.run)
    endpoint.reply(PENDING, PENDING, READY)
    event = await fire(polling(endpoint, time))
    assert event == {"status": "success", "elapsed": 20.0, "value": "ready", "response": READY.body}
    assert time.slept == [10, 10]


async def test_timeout(endpoint: Endpoint, time: Time) -> None:
    """Criterion: Trigger handles timeout gracefully. The event says what was awaited and what was seen."""
    event = await fire(polling(endpoint, time, poll_interval=25))
    assert event["status"] == "timeout"
    assert event["elapsed"] == 60.0
    assert time.slept == [25, 25, 10], "the last look is at the deadline"
    assert f"{endpoint.url}/job did not have status = 'ready' within 60 s" in event["message"]
    assert "last seen as 'pending'" in event["message"]


async def test_a_rebuilt_trigger_goes_on_with_what_is_left(endpoint: Endpoint, time: Time) -> None:
    """A triggerer restart in mid-wait does not start the timeout over."""
    _, kwargs = polling(endpoint, time).serialize()
    time.advance(45)
    event = await fire(HttpPollingTrigger(**kwargs, clock=time, sleep=time.sleep))
    assert event["status"] == "timeout"
    assert event["elapsed"] == 60.0
    assert time.slept == [10, 5]


async def test_a_trigger_that_comes_back_too_late_looks_once_more(endpoint: Endpoint, time: Time) -> None:
    """After the deadline has passed without any triggerer, what is ready by then still counts."""
    _, kwargs = polling(endpoint, time).serialize()
    time.advance(1000)
    assert (await fire(HttpPollingTrigger(**kwargs, clock=time, sleep=time.sleep)))["status"] == "timeout"
    endpoint.reply(READY)
    assert (await fire(HttpPollingTrigger(**kwargs, clock=time, sleep=time.sleep)))["status"] == "success"
    assert len(endpoint.requests) == 2
    assert time.slept == []


def test_operator_uses_the_trigger(endpoint: Endpoint) -> None:
    """Criterion: Deferrable operator uses the trigger. It asks at once, then defers with a fixed deadline."""
    task = operator(f"{endpoint.url}/job", response_check="a.b", poll_interval="2s", timeout=100)
    deferred = deferral(task)
    assert len(endpoint.requests) == 1
    assert deferred.method_name == "execute_complete"
    assert isinstance(deferred.trigger, HttpPollingTrigger)
    kwargs = deferred.trigger.serialize()[1]
    assert kwargs["deadline"] is not None
    assert (kwargs["response_check"], kwargs["poll_interval"], kwargs["timeout"]) == ("a.b", 2.0, 100.0)
    assert deferred.timeout > timedelta(seconds=100), "Airflow's own timeout leaves ours the time to explain"


def test_a_ready_endpoint_defers_nothing(endpoint: Endpoint) -> None:
    """When the endpoint is ready at once, the task returns its answer without a triggerer."""
    endpoint.reply(READY)
    assert operator(f"{endpoint.url}/job").execute({}) == READY.body


def test_execute_complete() -> None:
    """Criterion: execute_complete handles trigger events: a result, a timeout, an error, a strange one."""
    task = operator("https://api.example.com")
    assert task.execute_complete({}, {"status": "success", "value": 1, "response": {"a": 1}}) == {"a": 1}
    with pytest.raises(HttpPollingTimeout, match="too late"):
        task.execute_complete({}, {"status": "timeout", "message": "too late"})
    with pytest.raises(HttpPollingError, match="HTTP 404") as failure:
        task.execute_complete({}, {"status": "error", "message": "HTTP 404"})
    assert not isinstance(failure.value, HttpPollingTimeout)
    assert isinstance(failure.value, AirflowException)
    for strange in ({"status": "odd"}, {}, None):
        with pytest.raises(HttpPollingError, match="does not know"):
            task.execute_complete({}, strange)  # type: ignore[arg-type]


TROUBLES = [
    (Reply(status=500), "HTTP 500 Internal Server Error"),
    (Reply(status=503), "HTTP 503"),
    (Reply(status=429), "HTTP 429 Too Many Requests"),
    (Reply(status=408), "HTTP 408"),
    (Reply(status=425), "HTTP 425"),
    (Reply(b"<html>"), "not JSON"),
    (Reply(b""), "not JSON"),
    (Reply(b"[" * 200 + b"]" * 200), "nested deeper"),
    (Reply(b" " * (MAX_BYTES + 1)), "longer than"),
    (Reply({}, headers={"Content-Encoding": "gzip"}), "DecodingError"),
    (Reply(drop=True), "RemoteProtocolError|ReadError"),
]


@pytest.mark.parametrize(("trouble", "name"), TROUBLES)
async def test_passing_troubles(endpoint: Endpoint, time: Time, trouble: Reply, name: str) -> None:
    """Criterion: Error scenarios handled properly. What may pass is tried again, counted and named."""
    endpoint.reply(trouble, trouble, READY)
    assert (await fire(polling(endpoint, time)))["status"] == "success"
    assert time.slept == [10, 10]
    endpoint.reply(PENDING, trouble)
    event = await fire(polling(endpoint, time))
    assert (event["status"], event["errors"]) == ("timeout", 6)
    assert "last seen as 'pending', and 6 of the last 7 checks failed: " in event["message"]
    assert re.search(name, event["message"])


async def test_connection_loss(time: Time) -> None:
    """Criterion: Error scenarios handled properly. A server that is down may come back."""
    with Endpoint(PENDING) as gone:
        trigger = polling(gone, time)
    event = await fire(trigger)
    assert (event["status"], event["errors"]) == ("timeout", 7)
    assert "ConnectError" in event["message"]


async def test_a_server_that_never_answers(endpoint: Endpoint, time: Time) -> None:
    """Criterion: Error scenarios handled properly. One request takes no longer than request_timeout."""
    endpoint.reply(Reply(hang=True), READY)
    event = await fire(polling(endpoint, time, request_timeout=0.2))
    assert event["status"] == "success"
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("status", "headers", "hint"),
    [
        (400, {}, "the request itself is wrong"),
        (401, {}, "password"),
        (403, {}, "allowed to do"),
        (404, {}, "address"),
        (405, {}, "GET"),
        (307, {"Location": "/other?token=abc"}, r"give the address http://127\.0\.0\.1:\d+/other$"),
        (301, {"Location": "http://[bad"}, "redirects are not followed"),
        (304, {}, "the request itself is wrong"),
    ],
)
async def test_a_refusal_ends_the_wait(
    endpoint: Endpoint, time: Time, status: int, headers: dict[str, str], hint: str
) -> None:
    """Criterion: Error scenarios handled properly. 4xx and redirects end it at once, with status and hint."""
    endpoint.reply(Reply(status=status, headers=headers) if status != 304 else Reply(b"", status=304))
    event = await fire(polling(endpoint, time))
    assert (event["status"], event["status_code"]) == ("error", status)
    assert f"{endpoint.url}/job: HTTP {status}" in event["message"]
    assert re.search(hint, event["message"])
    assert len(endpoint.requests) == 1


def test_the_first_check_takes_troubles_alike(endpoint: Endpoint) -> None:
    """Criterion: Error scenarios handled properly. In the task a refusal fails, and what may pass defers."""
    endpoint.reply(Reply(status=404))
    with pytest.raises(HttpPollingError, match=r"/job: HTTP 404 Not Found: check the endpoint's address"):
        operator(f"{endpoint.url}/job").execute({})
    endpoint.reply(Reply(status=503))
    deferral(operator(f"{endpoint.url}/job"))


async def test_retry_after_is_respected(endpoint: Endpoint, time: Time) -> None:
    """The server's wish counts when longer than the interval, as seconds or date, up to the deadline."""
    date = email.utils.formatdate(time() + 20 + 15, usegmt=True)
    endpoint.reply(
        Reply(status=429, headers={"Retry-After": "20"}),
        Reply(status=503, headers={"Retry-After": date}),
        Reply(status=503, headers={"Retry-After": "1"}),
        Reply(status=503, headers={"Retry-After": "soon"}),
        Reply(status=503, headers={"Retry-After": "86400"}),
    )
    event = await fire(polling(endpoint, time))
    assert time.slept == [20, 15, 10, 10, 5]
    assert event["status"] == "timeout"


async def test_cancellation_hangs_up(endpoint: Endpoint, time: Time) -> None:
    """A cancelled trigger ends at once, in mid-request, and closes its connection."""
    endpoint.reply(Reply(hang=True))
    running = asyncio.create_task(fire(polling(endpoint, time)))
    assert await asyncio.to_thread(endpoint.asked.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(endpoint.hung_up.wait, 10)


async def test_secrets_come_from_the_connection(endpoint: Endpoint, connection: str, time: Time) -> None:
    """A path is joined to the Connection's host; its password, headers and parameters reach the server."""
    endpoint.reply(READY)
    await fire(
        polling(endpoint, time, endpoint="jobs/7?full=1", conn_id=connection, headers={"X-Team": "data"})
    )
    (asked,) = endpoint.requests
    assert asked.path == f"/jobs/7?full=1&key={QUERY_KEY}"
    assert asked.headers["Authorization"] == f"Bearer {PASSWORD}"
    assert (asked.headers["X-Api-Key"], asked.headers["X-Team"]) == (API_KEY, "data")


async def test_login_and_password_are_basic_authentication(
    endpoint: Endpoint, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a login, the password goes into basic authentication; schema and port make the address."""
    host, port = endpoint.url.removeprefix("http://").split(":")
    monkeypatch.setenv("AIRFLOW_CONN_POLLED", f"http://me:secret@{host}:{port}/http")
    endpoint.reply(READY)
    await fire(polling(endpoint, time, endpoint="/job", conn_id="polled", headers={"authorization": "mine"}))
    assert endpoint.requests[0].headers["Authorization"] == "Basic bWU6c2VjcmV0"


async def test_no_secret_is_shown(
    endpoint: Endpoint, connection: str, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """Secrets are in no log (at DEBUG, httpx's included), no repr, no event, and not in what is stored."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="httpx")
    address = f"{endpoint.url.replace('//', '//me:user-info-5a@')}/job?token=in-query-9c"
    endpoint.reply(PENDING, Reply(status=500), Reply(drop=True), READY)
    trigger = polling(endpoint, time, conn_id=connection, headers={"X-Team": "in-headers-1b"})
    stored = json.dumps(trigger.serialize())
    event = await fire(trigger)
    own = polling(endpoint, time, endpoint=address, headers={"X-Team": "in-headers-1b"})
    endpoint.reply(Reply(status=500), Reply(status=404))
    failure = await fire(own)
    seen = "\n".join([caplog.text, repr(trigger), repr(own), json.dumps(event), json.dumps(failure)])
    for secret in (PASSWORD, API_KEY, QUERY_KEY, "user-info-5a", "in-query-9c", "in-headers-1b"):
        assert secret not in seen
    for secret in (PASSWORD, API_KEY, QUERY_KEY):
        assert secret not in stored
        assert redact(f"echoed {secret}") == "echoed ***", "Airflow knows it, should anybody else log it"
    assert "windsock.http_polling.failed" in caplog.text
    async with httpx.AsyncClient() as client:
        await client.get(f"{endpoint.url}/mine")
    assert f"{endpoint.url}/mine" in caplog.text, "other people's log of httpx is left alone"


def test_the_operator_shows_no_secret(
    endpoint: Endpoint, connection: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the task's log, nor the deferral, nor its failure shows a secret."""
    caplog.set_level(logging.DEBUG)
    deferred = deferral(operator("job", conn_id=connection))
    endpoint.reply(Reply(status=401))
    with pytest.raises(HttpPollingError) as failure:
        operator("job", conn_id=connection).execute({})
    assert endpoint.requests[0].headers["Authorization"] == f"Bearer {PASSWORD}"
    seen = caplog.text + repr(deferred) + json.dumps(deferred.trigger.serialize()) + str(failure.value)
    assert not [secret for secret in (PASSWORD, API_KEY, QUERY_KEY) if secret in seen]


async def test_a_connections_secrets_go_to_its_own_host(connection: str, time: Time) -> None:
    """An endpoint elsewhere is refused before anything is sent, by the task and by the trigger."""
    with Endpoint(READY) as elsewhere:
        event = await fire(polling(elsewhere, time, conn_id=connection))
        assert event["status"] == "error"
        assert "its secrets are not sent elsewhere" in event["message"]
        with pytest.raises(EndpointError, match="not sent elsewhere"):
            operator(elsewhere.url, conn_id=connection).execute({})
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"password": "line\nbreak-6e"}, "Connection 'polled': the value of header 'Authorization'"),
        ({"extra": {"headers": {"X-Key": "break-6e\r\n"}}}, "the value of header 'X-Key'"),
        ({"extra": {"headers": {"bad name": "break-6e"}}}, "'bad name' is not a header's name"),
        ({"extra": {"headers": "break-6e"}}, "extra must be a JSON object"),
        ({"extra": "break-6e"}, "extra must be a JSON object"),
        ({"host": "http://host:break-6e"}, "its host is not an address"),
    ],
)
def test_an_unusable_connection_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    """What the HTTP library would refuse with the secret in its message is refused here, without it."""
    monkeypatch.setenv("AIRFLOW_CONN_POLLED", json.dumps({"conn_type": "http"} | fields))
    with pytest.raises(EndpointError, match=message) as failure:
        operator("https://api.example.com", conn_id="polled").execute({})
    assert "break-6e" not in str(failure.value)


async def test_an_unknown_connection(endpoint: Endpoint, time: Time) -> None:
    """It fails the task; in the triggerer it may be the API server that is away, so it is tried again."""
    with pytest.raises(AirflowNotFoundException, match="absent"):
        await asyncio.to_thread(operator("job", conn_id="absent").execute, {})
    event = await fire(polling(endpoint, time, conn_id="absent"))
    assert event["status"] == "timeout"
    assert "`absent` isn't defined" in event["message"]


@pytest.mark.parametrize(
    "endpoint", ["job", "", "ftp://example.com", "http://", "http://host:port", "https:///x"]
)
def test_an_unusable_endpoint_is_refused(endpoint: str) -> None:
    """The error names the endpoint, before anything is sent."""
    with pytest.raises(EndpointError, match=f"endpoint '{re.escape(endpoint)}' is not an"):
        operator(endpoint).execute({})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"response_check": "a..b"}, PathError),
        ({"poll_interval": 0}, SpecError),
        ({"timeout": 0}, SpecError),
        ({"timeout": "soon"}, SpecError),
        ({"request_timeout": -1}, SpecError),
    ],
)
def test_mistakes_are_refused_when_the_dag_is_parsed(options: dict[str, Any], error: type[Exception]) -> None:
    """A wrong option is an error of the Dag file, not of a run."""
    with pytest.raises(error):
        operator("https://api.example.com", **options)


def test_only_what_is_no_secret_is_templated() -> None:
    """Airflow stores and shows what it renders, so headers are not rendered."""
    assert set(HttpPollingOperator.template_fields) == {"endpoint", "expected_value", "conn_id"}
