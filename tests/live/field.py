"""A real Airflow on PostgreSQL with Windsock, and what a live test does with it."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from windsock.log import Log, open_log
from windsock.testing.postgres import PostgresServer
from windsock.testing.stack import AirflowStack

DAGS = Path(__file__).parent / "dags"
POLLED_SECRETS = ("polled-password-8f2c", "polled-api-key-51d0")
POLLED = {
    "conn_type": "http",
    "password": POLLED_SECRETS[0],
    "extra": {"headers": {"X-Api-Key": POLLED_SECRETS[1]}},
}
"""A Connection with secrets that must reach an endpoint and no log."""


@dataclass
class Field:
    """What a live test works with."""

    stack: AirflowStack
    log: Log
    postgres: PostgresServer
    folder: Path
    airflow_url: str

    @property
    def inbox(self) -> Path:
        """The directory that the files watchers watch."""
        return self.folder / "inbox"

    @property
    def dags(self) -> Path:
        """The Dags folder of this Airflow: a copy, to which a test may add."""
        return self.folder / "dags"

    @property
    def signal(self) -> Path:
        """The file that lets the stock trigger begin."""
        return self.folder / "signal"

    def post(self, watcher: str, value: Any, **headers: str) -> httpx.Response:
        """Send one webhook."""
        return httpx.post(
            f"{self.stack.url}/windsock/hooks/{watcher}", json=value, headers=headers, timeout=30
        )

    def had(self, dag_id: str) -> list[Any]:
        """Everything that successful runs of the Dag wrote down."""
        ok = {run.run_id for run in self.stack.api.runs(dag_id) if run.state == "success"}
        return [value for note in self.notes(dag_id) if note["run_id"] in ok for value in note["values"]]

    def notes(self, dag_id: str, value: Any = None) -> list[dict[str, Any]]:
        """What the Dag's tasks wrote down: all of it, or only where a value is in it."""
        notes = [json.loads(path.read_text()) for path in (self.folder / "ledger" / dag_id).glob("*.json")]
        return [note for note in notes if value is None or value in note["values"]]

    def times(self, dag_id: str) -> Counter[Any]:
        """How often successful runs had each value."""
        return Counter(self.had(dag_id))

    def batches(self, dag_id: str) -> list[list[Any]]:
        """What each successful run of the Dag wrote down, in the order in which they began."""
        runs = {run.run_id: run for run in self.stack.api.runs(dag_id) if run.state == "success"}
        notes = [note for note in self.notes(dag_id) if note["values"] and note["run_id"] in runs]
        notes.sort(key=lambda note: str(runs[note["run_id"]].start_date))
        return [note["values"] for note in notes]

    def windsock(self, *arguments: str) -> tuple[int, Any]:
        """Exit code and JSON of a command that finds the log in this Airflow's configuration."""
        command = [sys.executable, "-m", "windsock.cli", *arguments]
        result = subprocess.run(command, env=self.stack.env, capture_output=True, text=True, timeout=120)
        assert result.stdout, result.stderr
        return result.returncode, json.loads(result.stdout)

    def settled(self, dag_id: str) -> Callable[[], bool]:
        """A question for ``stack.wait_for``: has the Dag nothing left to do?"""

        def ask() -> bool:
            places = self.log.subscriptions(dag_id=dag_id)
            return bool(places) and not any(place.pending or place.claimed for place in places)

        return ask

    def subscribed(self, dag_id: str) -> Callable[[], bool]:
        """A question for ``stack.wait_for``: does the log know the Dag?"""
        return lambda: bool(self.log.subscriptions(dag_id=dag_id))


@contextmanager
def shut(gate: Path) -> Iterator[None]:
    """While tasks that ask for a shared lock on this file wait."""
    with gate.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def open_field(folder: Path, postgres: PostgresServer, name: str) -> Iterator[Field]:
    """Start Airflow and Windsock in a folder; stop them afterwards."""
    for part in ("inbox/chaos", "ledger"):
        (folder / part).mkdir(parents=True)
    shutil.copytree(DAGS, folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    log_url, airflow_url = postgres.url(f"{name}_windsock"), postgres.url(f"{name}_airflow")
    stack = AirflowStack(
        folder / "stack",
        folder / "dags",
        database=airflow_url,
        config={
            "AIRFLOW__WINDSOCK__LOG_CONN_ID": "event_log",
            "AIRFLOW_CONN_EVENT_LOG": log_url,
            "AIRFLOW_CONN_POLLED": json.dumps(POLLED),
            "PYTHONPATH": str(folder / "dags"),  # the triggerer imports a trigger by its module
            "WINDSOCK_REFERENCE_INBOX": str(folder / "reference"),
            "WINDSOCK_TEST_LEDGER": str(folder / "ledger"),
            "WINDSOCK_TEST_INBOX": str(folder / "inbox"),
            "WINDSOCK_TEST_SIGNAL": str(folder / "signal"),
        },
    )
    with stack:
        log = open_log(log_url)
        try:
            yield Field(stack, log, postgres, folder, airflow_url)
        finally:
            log.close()
