"""Dags that take one journey each: paused, failing, poisoned, plain, mapped, from files."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import claim, dead_letter
from windsock.watchers import FilesAssetWatcher, WebhookAssetWatcher


def hook(name: str, **options: Any) -> Asset:
    """An asset that is fed by an open webhook."""
    return Asset(name, watchers=[WebhookAssetWatcher(name=name, auth="none", rate=0, **options)])


paused, failing, plain = hook("paused"), hook("failing", retry_delay="1s", max_attempts=2), hook("plain")
poison, keyed = hook("poison", max_bytes=2000), hook("keyed", key="data.user", batch=50, within="1s")
quick = {"retries": 1, "retry_delay": timedelta(seconds=1)}


@dag(schedule=[paused])
def waits() -> None:
    """Is paused by the test while events come."""

    @task(**quick)
    def take() -> None:
        record(event.data["n"] for event in claim(paused))

    take()


@dag(schedule=[failing], max_active_runs=1)
def fails() -> None:
    """Fails as often as an event says, sets aside what an event says."""

    @task
    def take() -> None:
        events = claim(failing)
        for event in events:
            if event.data.get("reject"):
                dead_letter(event, "the Dag does not want it")
        if any(event.data.get("fail", 0) > event.attempt for event in events):
            raise RuntimeError("an event says so")
        record(event.data["n"] for event in events)

    take()


@dag(schedule=[plain])
def knows_nothing() -> None:
    """A consumer that was written without Windsock."""

    @task
    def take(triggering_asset_events: Any = None) -> None:
        record(
            inline["data"]["n"]
            for events in triggering_asset_events.values()
            for event in events
            for inline in event.extra["payload"]["events"]
        )

    take()


@dag(schedule=[poison])
def survives() -> None:
    """Gets the good ones."""

    @task(**quick)
    def take() -> None:
        record(event.id for event in claim(poison))

    take()


@dag(schedule=[keyed])
def in_order() -> None:
    """One mapped task per key."""

    @task(**quick)
    def take(events: list[dict[str, Any]]) -> None:
        record([event["key"], event["data"]["n"]] for event in events)

    take.expand(events=claim(keyed, by="key"))


drops = Asset(
    "drops",
    watchers=[
        FilesAssetWatcher(name="drops", path=os.environ["WINDSOCK_TEST_INBOX"], pattern="*.csv", settle=0.5)
    ],
)


@dag(schedule=[drops])
def reads_files() -> None:
    """Gets files that were dropped into a directory."""

    @task(**quick)
    def take() -> None:
        record(event.data["name"] for event in claim(drops))

    take()


waits()
fails()
knows_nothing()
survives()
in_order()
reads_files()
