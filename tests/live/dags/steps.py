"""One watcher and one Dag for each step that an event takes on its way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import Event, claim, route
from windsock.operators import RouteToDagOperator
from windsock.watchers import FilesAssetWatcher, WebhookAssetWatcher

INBOX = Path(os.environ["WINDSOCK_TEST_INBOX"])


def hook(name: str, **options: Any) -> WebhookAssetWatcher:
    """An open webhook."""
    return WebhookAssetWatcher(name=name, auth="none", rate=0, **options)


def folder(name: str, **options: Any) -> FilesAssetWatcher:
    """A folder of the inbox that is there from the start."""
    path = INBOX / options.pop("folder", name)
    path.mkdir(exist_ok=True)
    return FilesAssetWatcher(name=name, path=str(path), settle=0.2, **options)


def number(event: Event) -> Any:
    """What most of these events are told apart by."""
    return event.data["n"]


def held_up(event: Event) -> Any:
    """Waits while the test keeps the gate shut."""
    with (INBOX.parent / "gate").open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)
    return event.data["name"]


def takes(*watchers: Any, limit: int | None = None, write: Callable[[Event], Any] = number) -> None:
    """A Dag that is named like its first watcher and writes down what each run had."""
    asset = Asset(watchers[0].name, watchers=list(watchers))

    @dag(dag_id=watchers[0].name, schedule=[asset], max_active_runs=1)
    def made() -> None:
        @task
        def take() -> None:
            record(write(event) for event in claim(asset, limit=limit))

        take()

    made()


takes(hook("step_unwrap", unwrap="sns"), write=lambda event: [event.data["n"], event.source])
takes(
    hook(
        "step_shape",
        types=["order.*"],
        where=["data.cents > 100", "step_functions:not_a_test"],
        transform={"data": "{'n': data.n, 'euro': double(data.cents) / 100.0}", "subject": "string(data.n)"},
    ),
    write=lambda event: [event.subject, event.data],
)
takes(
    hook(
        "step_validate",
        schema={"required": ["n"], "properties": {"n": {"type": "integer"}}},
        schema_mode="coerce",
    )
)
takes(
    hook(
        "step_versions",
        versions={
            "by": "data.v",
            "schemas": {
                "1": {"required": ["name"]},
                "2": {"required": ["first", "last"]},
                "3": {"required": ["name"], "properties": {"name": {"type": "object"}}},
            },
            "upcast": {"1": "step_functions:to_two", "2": "step_functions:to_three"},
        },
    ),
    write=lambda event: [event.data["n"], event.data["name"]["last"]],
)
takes(
    hook("step_dedupe", dedupe_key="data.n", dedupe_scope="asset"),
    hook("step_dedupe_too", dedupe_key="data.n", dedupe_scope="asset"),
)
takes(hook("step_content", dedupe_key="content"))
takes(hook("step_release", key="data.k", sequence={"by": "data.n", "wait": "4s"}))
takes(hook("step_set_aside", key="data.k", sequence={"by": "data.n", "wait": "3s", "on_gap": "dead_letter"}))
takes(hook("step_hold", key="data.k", sequence={"by": "data.n", "on_gap": "hold"}))
takes(hook("step_size", batch=4, within="1h"))
takes(hook("step_bytes", batch_bytes=2000, within="1h"))
takes(hook("step_within", within="3s"))
takes(hook("step_quiet", quiet="3s"))
takes(hook("step_leading", quiet="3s", leading=True))
takes(hook("step_flush", within="1h", flush="has(data.end)"))
takes(hook("step_target", target="2s", batch=50))
takes(hook("step_throttle", throttle="10s"))
takes(hook("step_rate", rate_limit="2/8s"))
takes(
    folder("step_small", folder="routed", where="data.size < 10", route={"order": 1}),
    write=lambda event: event.data["name"],
)
takes(
    folder(
        "step_large", folder="routed", where="data.size > 100", route={"order": 2, "unmatched": "dead_letter"}
    ),
    write=lambda event: event.data["name"],
)
takes(hook("step_last", priority=-1), hook("step_first", priority=1), limit=1)
takes(hook("step_age", max_age="10s"))
takes(folder("step_pressure", high_water=6, low_water=1), write=held_up)
takes(hook("step_kept", key="data.k", retention={"count": 2, "archive": str(INBOX.parent / "archive")}))

branched = Asset("step_branch", watchers=[hook("step_branch", batch=1)])
handed_over = Asset("step_hand_over", watchers=[hook("step_hand_over", batch=10, within="2s")])


@dag(schedule=[branched])
def step_branch() -> None:
    """Goes one of two ways by what is in the event."""

    @task.branch
    def choose() -> Any:
        [event] = claim(branched)
        return route(event, {"review": "data.total > 1000"}, default="book")

    @task
    def review() -> None:
        record(["reviewed"])

    @task
    def book() -> None:
        record(["booked"])

    choose() >> [review(), book()]


@dag(schedule=[handed_over])
def step_hand_over() -> None:
    """Hands each event to the Dag of its country."""
    RouteToDagOperator(
        task_id="hand_over",
        events=claim(handed_over),
        to="data.country == '' ? '' : 'step_country_' + data.country",
        default="step_world",
    )


def country(dag_id: str) -> None:
    """A Dag that others hand events to."""

    @dag(dag_id=dag_id, schedule=None)
    def made() -> None:
        @task
        def take(dag_run: Any = None) -> None:
            record([dag_run.conf["data"]["n"]])

        take()

    made()


step_branch()
step_hand_over()
country("step_country_de")
country("step_world")
