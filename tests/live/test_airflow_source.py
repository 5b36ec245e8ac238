"""The Airflow source on a real Airflow: the contract suite with as many runs as it can make in a moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event
from windsock.sources import make_source
from windsock.testing.postgres import PostgresServer
from windsock.testing.processes import free_port
from windsock.testing.sources import (
    Missing,
    Reader,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.stack import AirflowStack
from windsock.testing.wire import Wire

pytestmark = pytest.mark.live

LOGIN, PASSWORD = "watcher", "right-horse"
DAGS = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset, dag, task
from airflow.sdk.exceptions import AirflowSkipException

for number in range(30):
    @dag(dag_id=f"nothing_{number}", schedule=None, max_active_runs=64)
    def nothing():
        EmptyOperator(task_id="nothing")

    nothing()


@dag(schedule=None)
def mixed():
    @task(outlets=[Asset("made", uri="x://shop/made")])
    def works():
        pass

    @task
    def skips():
        raise AirflowSkipException

    @task
    def fails():
        raise RuntimeError("on purpose")

    @task
    def waits(value):
        pass

    works()
    skips()
    waits(fails())


mixed()
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[AirflowStack]:
    """Airflow on PostgreSQL that asks for a password, with Dags that do nothing and one that does a lot."""
    home = tmp_path_factory.mktemp("watched")
    (home / "dags").mkdir()
    (home / "dags" / "watched.py").write_text(DAGS)
    (home / "passwords.json").write_text(json.dumps({LOGIN: PASSWORD}))
    config = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{LOGIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
    }
    with AirflowStack(home, home / "dags", database=postgres.url("watched"), config=config) as stack:
        who = {"username": LOGIN, "password": PASSWORD}
        stack.api._token = httpx.post(f"{stack.url}/auth/token", json=who).json()["access_token"]
        stack.wait_for(lambda: len(stack.api.dags()) == 31, 60, "the Dags")
        assert stack.api.import_errors() == []
        yield stack


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    """A Dag without runs for each test."""
    return count()


def access(port: int, **changed: Any) -> Connection:
    """The Connection to an API server."""
    fields = {"host": "127.0.0.1", "port": port, "login": LOGIN, "password": PASSWORD, **changed}
    return Connection(conn_id="watched", conn_type="http", **fields)


class TestAirflow(SourceContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """Runs of a Dag that does nothing."""

    kind = "airflow"
    burst = 25
    patience = 240.0

    @pytest.fixture(autouse=True)
    def system(self, stack: AirflowStack, numbers: Iterator[int]) -> Iterator[None]:
        self.stack = stack
        self.dag = f"nothing_{next(numbers)}"
        self.runs = count()
        with Wire("127.0.0.1", stack.port or 0) as self.wire:
            yield

    def options(self) -> dict[str, Any]:
        return {"conn_id": "watched", "start": "earliest", "interval": 0.3, "dags": [self.dag]}

    def connections(self) -> list[Connection]:
        return [access(self.wire.port)]

    async def produce(self, count: int) -> list[str]:
        names = [f"run-{next(self.runs)}" for _ in range(count)]
        for name in names:
            await asyncio.to_thread(self.stack.api.trigger, self.dag, run_id=name)
        return names

    def identity(self, event: Event) -> str:
        return str(event.data["dag_run_id"])

    async def restart_server(self) -> None:
        await asyncio.to_thread(self.stack.kill, "api-server", group=True)
        await asyncio.to_thread(self.stack.restart, "api-server")

    async def cut(self) -> None:
        self.wire.cut()

    async def mend(self) -> None:
        self.wire.mend()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [access(free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [access(self.wire.port, password="wrong-horse")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "dags": ["not-there"]}, self.connections()


async def test_tasks_and_assets_of_a_run(stack: AirflowStack) -> None:
    """A run with tasks that work, skip, fail and never run: each state comes once, in order."""
    options = {
        "conn_id": "watched",
        "start": "earliest",
        "interval": 0.3,
        "dags": ["mix*"],
        "events": ["dag_run", "task_instance", "asset_event"],
        "states": ["running", "success", "failed", "skipped", "upstream_failed"],
    }
    source = make_source("airflow", options, fixed(access(stack.port or 0)))
    await source.connect(None)
    await asyncio.to_thread(stack.api.trigger, "mixed", run_id="r1")
    reader = Reader(source)
    async with asyncio.timeout(180):
        await reader.until(lambda reader: "airflow.dag_run.failed" in {event.type for event in reader.events})
        await reader.read(10)
    await source.close()
    got = [(event.type.removeprefix("airflow."), event.subject) for event in reader.events]
    assert sorted(got) == [
        ("asset_event.created", "x://shop/made"),
        ("dag_run.failed", "mixed/r1"),
        ("dag_run.running", "mixed/r1"),
        ("task_instance.failed", "mixed/r1/fails"),
        ("task_instance.running", "mixed/r1/fails"),
        ("task_instance.running", "mixed/r1/skips"),
        ("task_instance.running", "mixed/r1/works"),
        ("task_instance.skipped", "mixed/r1/skips"),
        ("task_instance.success", "mixed/r1/works"),
        ("task_instance.upstream_failed", "mixed/r1/waits"),
    ]
    for subject in ("mixed/r1", "mixed/r1/works", "mixed/r1/fails", "mixed/r1/skips"):
        first = next(kind for kind, where in got if where == subject)
        assert first.endswith("running")


def test_the_logs_answers_need_a_login(stack: AirflowStack) -> None:
    """Where Airflow asks for a password, the gateway's questions take its token or its cookie, or nothing."""
    url, token = f"{stack.url}/windsock/api/events", stack.api.token()
    assert httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30).json() == []
    with httpx.Client(cookies={"_token": token}, timeout=30) as browser:
        assert browser.get(url).json() == []
        assert browser.get(url, headers={"Authorization": "Bearer x.y.z"}).status_code == 401
    assert httpx.get(url, timeout=30).status_code == 401
    with httpx.Client(cookies={"_token": "x.y.z"}, timeout=30) as stranger:
        assert stranger.get(url).status_code == 401
