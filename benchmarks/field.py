"""A real Airflow on PostgreSQL, with the log on the same server and the Dags of ``dags/``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from dags.place import put, read_note
from report import progress

from windsock.log import Log, open_log
from windsock.testing.postgres import PostgresServer
from windsock.testing.stack import AirflowStack

__all__ = ["Field", "open_field"]

DAGS = Path(__file__).parent / "dags"
_STOCK = {"stock_latency", "stock_flood", "stock_rest"}
_WINDSOCK = {"windsock_latency", "windsock_webhook", "windsock_flood", "windsock_hooks"}
_STOCK_WATCHERS = 2


@dataclass
class Field:
    """What the live parts work with."""

    stack: AirflowStack
    log: Log
    airflow: psycopg.Connection[Any]
    """Airflow's own database, to look at without troubling its API server."""
    http: httpx.Client
    folder: Path

    def signal(self, door: str, n: int, content: float) -> None:
        """Make event ``n`` of a door happen."""
        put(self.folder / "signals" / door / str(n), repr(content))

    def note(self, name: str) -> float | None:
        """What a trigger, a source or a task said."""
        return read_note(self.folder, name)

    def await_note(self, name: str, timeout: float = 60.0) -> float:
        """The same, as soon as it is there."""
        return self.wait(lambda: self.note(name), f"the note {name}", timeout)

    def post(self, watcher: str, value: Any) -> None:
        """Send one webhook and see it accepted."""
        self.http.post(f"/windsock/hooks/{watcher}", json=value).raise_for_status()

    def count(self, sql: str, *params: Any) -> int:
        """Ask Airflow's database for a number."""
        row = self.airflow.execute(sql, params).fetchone()
        return int(row[0]) if row else 0

    def wait(self, ask: Callable[[], Any], what: str, timeout: float = 60.0, every: float = 0.02) -> Any:
        """The first answer that is not None and not False."""
        answer = self.stack.wait_for(lambda: (found,) if (found := ask()) else None, timeout, what, every)
        return answer[0]

    def settled(self, dag_id: str, logged: int) -> bool:
        """Whether the Dag's watcher has logged so many events and all are settled."""
        (place,) = self.log.subscriptions(dag_id=dag_id)
        if place.pending or place.claimed:
            return False
        return self.logged(place.watcher) >= logged

    def logged(self, watcher: str) -> int:
        """How many events the watcher has logged."""
        return next(health.logged for health in self.log.health() if health.watcher == watcher)

    def stock_quiet(self, dag_id: str) -> bool:
        """Whether stock Airflow has nothing more to do for the Dag."""
        queued = self.count("SELECT count(*) FROM asset_dag_run_queue WHERE target_dag_id = %s", dag_id)
        unfinished = self.count(
            "SELECT count(*) FROM dag_run WHERE dag_id = %s AND state NOT IN ('success', 'failed')", dag_id
        )
        return not queued and not unfinished


@contextlib.contextmanager
def open_field(folder: Path, postgres: PostgresServer) -> Iterator[Field]:
    """Start Airflow and Windsock in a folder, wait until every watcher watches, stop them afterwards."""
    progress("live: starting Airflow")
    started = time.monotonic()
    log_url, airflow_url = postgres.url("live_windsock"), postgres.url("live_airflow")
    stack = AirflowStack(
        folder / "stack",
        DAGS,
        database=airflow_url,
        config={
            "AIRFLOW__WINDSOCK__LOG_URL": log_url,
            "PYTHONPATH": str(DAGS),  # the triggerer imports triggers and sources by their module
            "WINDSOCK_BENCH_FOLDER": str(folder),
        },
    )
    with (
        stack,
        contextlib.closing(open_log(log_url)) as log,
        psycopg.connect(airflow_url, autocommit=True) as airflow,
        httpx.Client(base_url=stack.url, timeout=30.0, trust_env=False) as http,
    ):
        field = Field(stack, log, airflow, http, folder)
        field.wait(lambda: _watching(field), "all watchers to watch", timeout=90.0, every=0.5)
        progress(f"live: ready after {time.monotonic() - started:.0f} s")
        yield field


def _watching(field: Field) -> bool:
    """Whether all Dags are known, the log has their places, and the triggerer holds every trigger."""
    if not {dag.dag_id for dag in field.stack.api.dags()} >= _STOCK | _WINDSOCK:
        return False
    if not {place.dag_id for place in field.log.subscriptions()} >= _WINDSOCK:
        return False
    triggers = field.count("SELECT count(*) FROM trigger WHERE triggerer_id IS NOT NULL")
    return triggers >= len(_WINDSOCK) + _STOCK_WATCHERS
