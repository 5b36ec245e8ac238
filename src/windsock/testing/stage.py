"""The stage of a scenario: a real Airflow with Windsock, and the ways to make something happen on it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from windsock.gateway.auth import sign
from windsock.log import Log
from windsock.log.base import Subscription, WatcherHealth
from windsock.testing.airflow_api import AirflowApi, ApiError, DagRun, TaskInstance
from windsock.testing.scenarios import Scenario, Unmet
from windsock.testing.stack import AirflowStack

__all__ = ["Stage", "World"]

T = TypeVar("T")
_PATIENCE = 120.0


@dataclass(frozen=True)
class World:
    """What all scenarios share."""

    stack: AirflowStack
    log: Log
    folder: Path
    pictures: Path
    database: str
    """The address of Airflow's database, for what the REST API does not tell."""
    secret: str
    services: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inbox(self) -> Path:
        """The directory of WINDSOCK_REFERENCE_INBOX."""
        return self.folder / "inbox"

    @property
    def outbox(self) -> Path:
        """The directory of WINDSOCK_REFERENCE_OUTBOX."""
        return self.folder / "outbox"


class Stage:
    """What a scenario works with. Dags are named by their suffix: "" is the file's first Dag."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.log = world.log
        self.notes: list[str] = []

    @property
    def api(self) -> AirflowApi:
        """Airflow's REST API."""
        return self.world.stack.api

    def dag_id(self, suffix: str = "") -> str:
        """The id of one of the file's Dags."""
        return self.scenario.name + suffix

    def service(self, name: str) -> Any:
        """A service that the scenario's file declares."""
        return self.world.services[name]

    # make something happen

    def drop(self, name: str, text: str) -> Path:
        """Put a file into the inbox as a careful writer does: nobody sees half of it."""
        path = self.world.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.tmp")
        draft.write_text(text)
        return draft.rename(path)

    def hook(
        self, watcher: str, data: Any, *, signed: bool = True, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Call a webhook with JSON, signed with the secret of the Connection `reference_shop`."""
        return self._post(watcher, json.dumps(data), "application/json", signed, headers or {})

    def cloudevent(self, watcher: str, data: Any, *, signed: bool = True, **attributes: Any) -> httpx.Response:
        """Send a CloudEvent to a webhook watcher, structured, with these attributes."""
        event = {"specversion": "1.0", "id": str(uuid.uuid4()), "source": "/reference", **attributes}
        body = json.dumps({**event, "data": data})
        return self._post(watcher, body, "application/cloudevents+json", signed, {})

    def trigger(self, suffix: str = "", conf: Mapping[str, Any] | None = None) -> DagRun:
        """Start a run by hand."""
        return self.api.trigger(self.dag_id(suffix), conf)

    def reparse(self) -> None:
        """Ask the Dag processor to look at the scenario's file now."""
        token = self.api.request("GET", f"dags/{self.dag_id()}")["file_token"]
        self.api.request("PUT", f"parseDagFile/{token}")

    def publish(self, name: str, text: str) -> None:
        """Write a picture or a table of what was measured beside the library's Dags."""
        self.world.pictures.mkdir(parents=True, exist_ok=True)
        (self.world.pictures / name).write_text(text, "utf-8")

    # see what came of it

    def wait(self, question: Callable[[], T], what: str, timeout: float = _PATIENCE) -> T:
        """Ask until the answer is true; raises Unmet if it never is."""
        try:
            return self.world.stack.wait_for(question, timeout, what)
        except TimeoutError as error:
            raise Unmet(str(error).splitlines()[0]) from error

    def check(self, condition: object, what: str) -> None:
        """Raise Unmet unless the condition is true."""
        if not condition:
            raise Unmet(f"expected {what}")

    def runs(self, suffix: str = "") -> list[DagRun]:
        """The runs of a Dag, oldest first."""
        return self.api.runs(self.dag_id(suffix))

    def tasks(self, suffix: str = "") -> list[TaskInstance]:
        """The task instances of all runs of a Dag."""
        return [ti for run in self.runs(suffix) for ti in self.api.task_instances(run.dag_id, run.run_id)]

    def returned(self, task: str, suffix: str = "") -> list[Any]:
        """What a task returned in the Dag's successful runs, one value per task instance, oldest run first."""
        good = [run for run in self.runs(suffix) if run.state == "success"]
        return [value for run in good for value in self._returned(run, task)]

    def subscriptions(self, suffix: str = "") -> list[Subscription]:
        """A Dag's places in the log."""
        return self.log.subscriptions(dag_id=self.dag_id(suffix))

    def health(self, watcher: str) -> WatcherHealth:
        """How a watcher is."""
        return next(health for health in self.log.health() if health.watcher == watcher)

    def emitted(self, suffix: str = "") -> list[dict[str, Any]]:
        """The asset events that a Dag's tasks emitted, oldest first, as Airflow's API tells them."""
        params = {"source_dag_id": self.dag_id(suffix), "order_by": "timestamp", "limit": 100}
        answer = self.wait(lambda: self.api.request("GET", "assets/events", params=params), "asset events")
        events: list[dict[str, Any]] = answer["asset_events"]
        return events

    def _returned(self, run: DagRun, task: str) -> Sequence[Any]:
        values = []
        for ti in self.api.task_instances(run.dag_id, run.run_id):
            if ti.task_id != task or ti.state != "success":
                continue
            path = f"dags/{run.dag_id}/dagRuns/{quote(run.run_id, safe='')}/taskInstances/{task}"
            try:
                answer = self.api.request(
                    "GET", f"{path}/xcomEntries/return_value", params={"map_index": ti.map_index}
                )
            except ApiError as error:
                if error.status != httpx.codes.NOT_FOUND:
                    raise
            else:
                values.append(answer["value"])
        return values

    def _post(
        self, watcher: str, body: str, content_type: str, signed: bool, headers: Mapping[str, str]
    ) -> httpx.Response:
        sent = {"Content-Type": content_type, **headers}
        if signed:
            now = str(int(time.time()))
            signature = sign(self.world.secret, body.encode(), now)
            sent |= {"X-Windsock-Timestamp": now, "X-Windsock-Signature": f"sha256={signature}"}
        url = f"{self.world.stack.url}/windsock/hooks/{watcher}"
        return httpx.post(url, content=body.encode(), headers=sent, timeout=30, trust_env=False)
