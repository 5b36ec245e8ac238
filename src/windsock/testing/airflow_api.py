"""The part of Airflow's REST API that tests, the demo and the benchmark use, typed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

__all__ = ["AirflowApi", "ApiError", "Dag", "DagRun", "ImportFailure", "TaskInstance"]

T = TypeVar("T")
_PAGE = 100


class ApiError(Exception):
    """Airflow answered with an error status; `status` and `body` hold the answer."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path} answered {status}: {body[:2000]}")
        self.status = status
        self.body = body


class Dag(msgspec.Struct, frozen=True):
    """A Dag as Airflow lists it."""

    dag_id: str
    is_paused: bool
    is_stale: bool
    has_import_errors: bool
    fileloc: str


class DagRun(msgspec.Struct, frozen=True):
    """One run. `state` is queued, running, success or failed; `run_type` tells what started it."""

    dag_id: str
    run_id: str = msgspec.field(name="dag_run_id")
    state: str
    run_type: str
    conf: dict[str, Any] | None
    queued_at: dt.datetime | None
    start_date: dt.datetime | None
    end_date: dt.datetime | None

    @property
    def finished(self) -> bool:
        """Whether it ended, well or not."""
        return self.state in ("success", "failed")


class TaskInstance(msgspec.Struct, frozen=True):
    """One task of one run. `state` is None while nothing has scheduled it."""

    dag_id: str
    run_id: str = msgspec.field(name="dag_run_id")
    task_id: str
    map_index: int
    state: str | None
    try_number: int
    pid: int | None
    start_date: dt.datetime | None
    end_date: dt.datetime | None


class ImportFailure(msgspec.Struct, frozen=True):
    """A Dag file that Airflow could not import."""

    filename: str | None
    stack_trace: str | None


class AirflowApi:
    """A client for one API server that logs everybody in as an administrator.

    The token is fetched when first needed and renewed when the server refuses it. Methods raise `ApiError`
    for an error status and `httpx.TransportError` while the server is away.
    """

    def __init__(self, base_url: str, *, timeout: float = 30.0) -> None:
        self.base_url = base_url
        self._http = httpx.Client(base_url=base_url, timeout=timeout, trust_env=False)
        self._token: str | None = None

    def close(self) -> None:
        """Close the connections; the client is of no use afterwards."""
        self._http.close()

    def token(self) -> str:
        """A bearer token, for requests of your own."""
        if self._token is None:
            answer = self._http.get("/auth/token")
            if answer.status_code != httpx.codes.CREATED:
                raise ApiError("GET", "/auth/token", answer.status_code, answer.text)
            self._token = str(answer.json()["access_token"])
        return self._token

    def request(
        self, method: str, path: str, *, json: Any = None, params: Mapping[str, Any] | None = None
    ) -> Any:
        """Call any path below `/api/v2`; return the decoded JSON."""
        url = f"/api/v2/{path.lstrip('/')}"
        answer = self._send(method, url, json, params)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._token = None
            answer = self._send(method, url, json, params)
        if answer.is_error:
            raise ApiError(method, url, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def health(self) -> dict[str, dict[str, str | None]]:
        """The health of database, scheduler, triggerer and dag_processor: status and latest heartbeat."""
        answer = self._http.get("/api/v2/monitor/health")
        if answer.is_error:
            raise ApiError("GET", "/api/v2/monitor/health", answer.status_code, answer.text)
        return msgspec.convert(answer.json(), dict[str, dict[str, str | None]])

    def warm_up(self) -> bool:
        """Make the server build its interface for tasks now; it answers nobody while it does so.

        Airflow puts this off until the first task reports, which then waits for several seconds.
        """
        return self._http.get("/execution/health").is_success

    def dags(self) -> list[Dag]:
        """All active Dags."""
        return list(self._pages("dags", "dags", Dag))

    def import_errors(self) -> list[ImportFailure]:
        """Dag files that fail to import."""
        return list(self._pages("importErrors", "import_errors", ImportFailure))

    def pause(self, dag_id: str) -> None:
        """Pause a Dag."""
        self.request("PATCH", f"dags/{_part(dag_id)}", json={"is_paused": True})

    def unpause(self, dag_id: str) -> None:
        """Unpause a Dag."""
        self.request("PATCH", f"dags/{_part(dag_id)}", json={"is_paused": False})

    def trigger(
        self, dag_id: str, conf: Mapping[str, Any] | None = None, *, run_id: str | None = None
    ) -> DagRun:
        """Start a run now."""
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {})}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return msgspec.convert(self.request("POST", f"dags/{_part(dag_id)}/dagRuns", json=body), DagRun)

    def runs(self, dag_id: str) -> list[DagRun]:
        """All runs of a Dag, oldest first. `~` stands for every Dag."""
        return list(self._pages(f"dags/{_part(dag_id)}/dagRuns", "dag_runs", DagRun, order_by="id"))

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """One run."""
        return msgspec.convert(self.request("GET", _run_path(dag_id, run_id)), DagRun)

    def clear_run(self, dag_id: str, run_id: str, *, only_failed: bool = False) -> None:
        """Clear a run's tasks, so that Airflow runs them again under the same run id."""
        body = {"dry_run": False, "only_failed": only_failed}
        self.request("POST", f"{_run_path(dag_id, run_id)}/clear", json=body)

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """The tasks of a run, mapped ones expanded."""
        return list(self._pages(f"{_run_path(dag_id, run_id)}/taskInstances", "task_instances", TaskInstance))

    def _pages(self, path: str, key: str, kind: type[T], **params: Any) -> Iterator[T]:
        offset = 0
        while True:
            page = self.request("GET", path, params={"limit": _PAGE, "offset": offset, **params})[key]
            yield from msgspec.convert(page, list[kind])  # type: ignore[valid-type]
            offset += len(page)
            if len(page) < _PAGE:
                return

    def _send(self, method: str, url: str, json: Any, params: Mapping[str, Any] | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token()}"}
        return self._http.request(method, url, json=json, params=params, headers=headers)


def _part(name: str) -> str:
    return quote(name, safe="~")


def _run_path(dag_id: str, run_id: str) -> str:
    return f"dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"
