"""Dags that say what is wrong with their events; the test copies this file into the Dags folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import Invalid, Transient, claim
from windsock.watchers import DeadLettersAssetWatcher, WebhookAssetWatcher

FIXED = Path(os.environ["WINDSOCK_TEST_INBOX"]).parent / "letters_fixed"
"""When this file is there, the Dag has been mended."""


def hook(name: str, **options: Any) -> Asset:
    """An asset that is fed by an open webhook."""
    return Asset(name, watchers=[WebhookAssetWatcher(name=name, auth="none", rate=0, **options)])


shaky = hook(
    "letters_shaky",
    max_attempts=2,
    retry_delay="1s",
    retry={"transient": {"attempts": 2, "delay": "2s", "jitter": 0}},
)
strict = hook("letters_strict", batch=10, within="2s")
alerts = Asset(
    "letters_alerts",
    watchers=[DeadLettersAssetWatcher("letters_alerts", over="1/1h", of="letters_strict", poll=1.0)],
)


@dag(schedule=[shaky], max_active_runs=1)
def letters_transient() -> None:
    """Fails for want of something else, as often as an event says."""

    @task
    def take() -> None:
        events = claim(shaky)
        for event in events:
            tries = len(list(FIXED.parent.glob(f"tried-{event.data['n']}-*")))
            if tries < event.data["fail"]:
                (FIXED.parent / f"tried-{event.data['n']}-{tries}").touch()
                raise Transient("the carrier is busy", event)
        record(event.data["n"] for event in events)

    take()


@dag(schedule=[strict], max_active_runs=1)
def letters_invalid() -> None:
    """Does not know what to do with some events, until it is mended."""

    @task(retries=3)
    def take(event: dict[str, Any]) -> None:
        if event["data"].get("odd") and not FIXED.exists():
            raise Invalid("an odd order", event)
        record([[event["id"], event["data"]["n"]]])

    take.expand(event=claim(strict))


@dag(schedule=[alerts])
def letters_alarmed() -> None:
    """Is told when letters accumulate."""

    @task
    def take() -> None:
        record(event.data["watchers"] for event in claim(alerts))

    take()


letters_transient()
letters_invalid()
letters_alarmed()
