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
from windsock.log.records import Subscription, WatcherHealth
from windsock.testing.airflow_api import AirflowApi, ApiError, DagRun, TaskInstance
from windsock.testing.scenarios import Scenario, Unmet
from windsock.testing.stack import AirflowStack

__all__ = ["Stage", "World"]

T = TypeVar("T")
_PATIENCE = 180.0


@dataclass(frozen=True)
class World:
    """What all scenarios share."""

    stack: AirflowStack
    log: Log
    folder: Path
    pictures: Path
    secret: str
    services: Mapping[str, Any] = field(default_factory=dict)
    """By name."""


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

    @property
    def inbox(self) -> Path:
        """The Dag's folder below WINDSOCK_REFERENCE_INBOX."""
        return self.world.folder / "inbox" / self.scenario.folder

    @property
    def outbox(self) -> Path:
        """The Dag's folder below WINDSOCK_REFERENCE_OUTBOX."""
        return self.world.folder / "outbox" / self.scenario.folder

    def dag_id(self, suffix: str = "") -> str:
        """The id of one of the file's Dags."""
        return self.scenario.name + suffix

    def service(self, name: str) -> Any:
        """A service that the scenario's file declares."""
        return self.world.services[name]

    # make something happen

    def drop(self, name: str, text: str) -> Path:
        """Put a file into the Dag's inbox as a careful writer does: nobody sees half of it."""
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.tmp")
        draft.write_text(text)
        return draft.rename(path)

    def hook(
        self,
        watcher: str,
        data: Any,
        *,
        signed: bool = True,
        answer: str | int = "accepted",
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Call a webhook with JSON, signed with the secret of the Connection `reference_shop`.

        Raises Unmet if the answer is another: `accepted`, `duplicate`, `filtered`, `dead`, or an HTTP status.
        """
        return self._post(watcher, json.dumps(data), "application/json", signed, answer, headers or {})

    def cloudevent(
        self,
        watcher: str,
        data: Any,
        *,
        signed: bool = True,
        answer: str | int = "accepted",
        **attributes: Any,
    ) -> httpx.Response:
        """Send a structured CloudEvent with these attributes to a webhook watcher; otherwise like `hook`."""
        event = {"specversion": "1.0", "id": str(uuid.uuid4()), "source": "/reference", **attributes}
        body = json.dumps({**event, "data": data})
        return self._post(watcher, body, "application/cloudevents+json", signed, answer, {})

    def trigger(self, suffix: str = "", conf: Mapping[str, Any] | None = None) -> DagRun:
        """Start a run by hand."""
        return self.api.trigger(self.dag_id(suffix), conf)

    def reparse(self) -> None:
        """Ask the Dag processor to look at the scenario's file now."""
        token = self.api.request("GET", f"dags/{self.dag_id()}")["file_token"]
        self.api.request("PUT", f"parseDagFile/{token}")

    def publish(self, name: str, text: str) -> None:
        """Write a picture or a table of what was measured; the name is a path below the library."""
        path = self.world.pictures / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

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
        """What a task returned in the Dag's successful runs, one value per task instance, oldest first."""
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

    # how the verification looks at it

    def ready(self, dag_id: str) -> bool:
        """Whether the Dag has its place in the log for every watcher of the assets it is scheduled on."""
        answer = self.api.request("GET", "assets", params={"dag_ids": dag_id, "limit": 100})
        watchers = {
            watcher["name"]
            for asset in answer["assets"]
            if any(scheduled["dag_id"] == dag_id for scheduled in asset["scheduled_dags"])
            for watcher in asset["watchers"]
        }
        return watchers <= {place.watcher for place in self.log.subscriptions(dag_id=dag_id) if place.active}

    def states(self, dag_id: str) -> list[str]:
        """The states of the Dag's runs, oldest first; none for a Dag that Airflow does not know."""
        try:
            return [run.state for run in self.api.runs(dag_id)]
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise
            return []

    def over(self) -> bool:
        """Whether enough runs have ended, none is under way, and no event waits."""
        for dag_id, expected in self.scenario.expected.items():
            states = self.states(dag_id)
            good, failed = states.count("success"), states.count("failed")
            if good + failed < len(states) or not expected.reached(good, failed):
                return False
            if any(place.pending or place.claimed for place in self.log.subscriptions(dag_id=dag_id)):
                return False
        return True

    def watchers(self) -> list[str]:
        """The watchers that the file's Dags are subscribed to."""
        places = [
            place for dag_id in self.scenario.expected for place in self.log.subscriptions(dag_id=dag_id)
        ]
        return sorted({place.watcher for place in places})

    def counted(self) -> tuple[int, int]:
        """How many events the file's watchers logged, and how many dead letters they have."""
        names = self.watchers()
        logged = sum(health.logged for health in self.log.health() if health.watcher in names)
        return logged, sum(len(self.log.dead_letters(watcher=name)) for name in names)

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
        self,
        watcher: str,
        body: str,
        content_type: str,
        signed: bool,
        answer: str | int,
        headers: Mapping[str, str],
    ) -> httpx.Response:
        sent = {"Content-Type": content_type, **headers}
        if signed:
            now = str(int(time.time()))
            signature = sign(self.world.secret, body.encode(), now)
            sent |= {"X-Windsock-Timestamp": now, "X-Windsock-Signature": f"sha256={signature}"}
        url = f"{self.world.stack.url}/windsock/hooks/{watcher}"
        response = httpx.post(url, content=body.encode(), headers=sent, timeout=30, trust_env=False)
        got = response.json()["status"] if response.is_success else response.status_code
        if got != answer:
            raise Unmet(f"webhook {watcher} answered {response.status_code} {response.text}, not {answer}")
        return response
