"""The Airflow source over the contract suite, on an API that can have ten thousand runs and be restarted.

`tests/live/test_airflow_source.py` runs the same suite on a real Airflow, with fewer runs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from fake_airflow import LOGIN, PASSWORD, FakeAirflow
from windsock.connections import Connection
from windsock.events import Event
from windsock.testing.processes import free_port
from windsock.testing.sources import (
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire

BEGIN = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)


class TestAirflow(SourceContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """Dag runs that end, a millisecond after each other."""

    kind = "airflow"
    step = dt.timedelta(milliseconds=1)

    @pytest.fixture(autouse=True)
    def system(self) -> Iterator[None]:
        self.airflow = FakeAirflow()
        self.airflow.start()
        self.numbers = count(1)
        with Wire("127.0.0.1", self.airflow.port) as self.wire:
            yield
        self.airflow.stop()

    def options(self) -> dict[str, Any]:
        return {"conn_id": "airflow", "start": "earliest", "interval": 0.05}

    def connections(self, **changed: Any) -> list[Connection]:
        fields = {
            "host": "127.0.0.1",
            "port": self.wire.port,
            "login": LOGIN,
            "password": PASSWORD,
            **changed,
        }
        return [Connection(conn_id="airflow", conn_type="http", **fields)]

    async def produce(self, count: int) -> list[str]:
        names = []
        for _ in range(count):
            number = next(self.numbers)
            end = (BEGIN + number * self.step).isoformat(timespec="microseconds").replace("+00:00", "Z")
            names.append(f"run-{number}")
            row = {"dag_id": "hello", "dag_run_id": names[-1], "state": "success"}
            self.airflow.rows["dag_runs"].append({**row, "start_date": end, "end_date": end})
        return names

    def identity(self, event: Event) -> str:
        return str(event.data["dag_run_id"])

    async def restart_server(self) -> None:
        self.airflow.stop()
        self.airflow.start()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), self.connections(port=free_port())

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), self.connections(password="wrong-horse")

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "dags": ["not-there"]}, self.connections()


class TestAirflowAtOnce(TestAirflow):
    """Dag runs that all end in the same microsecond, and are remembered one by one."""

    step = dt.timedelta()
    burst = 1_000
    max_cursor = 20_000
