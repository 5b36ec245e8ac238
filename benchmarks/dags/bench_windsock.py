"""Windsock: the same, with a source of one's own and with webhooks."""

from __future__ import annotations

import time
import uuid
from typing import Any

from airflow.sdk import Asset, dag, task
from place import folder, note

from windsock import claim
from windsock.watchers import EventWatcher, WebhookAssetWatcher

CLAIM = 20_000
"""Events that one run of the flooded Dag takes."""


def watched(name: str, source: str, **options: Any) -> Asset:
    """An asset with a watcher on the door of its name."""
    door = str(folder() / "signals" / name)
    return Asset(name, watchers=[EventWatcher(name, kind=f"bench_sources:{source}", door=door, **options)])


def hooked(name: str, **options: Any) -> Asset:
    """An asset that is fed by an open webhook."""
    return Asset(name, watchers=[WebhookAssetWatcher(name, auth="none", rate=0, **options)])


def timer(dag_id: str, name: str, asset: Asset) -> None:
    """A Dag that says when it began, as the stock one does."""

    @dag(dag_id=dag_id, schedule=[asset])
    def times() -> None:
        @task
        def take() -> None:
            started = time.time()
            for event in claim(asset):
                note(f"{name}-{event.data['n']}-start", started)

        take()

    times()


def counter(dag_id: str, asset: Asset) -> None:
    """A Dag that counts its events and leaves a note of how many a run had."""

    @dag(dag_id=dag_id, schedule=[asset])
    def counts() -> None:
        @task
        def take() -> None:
            note(f"counted/{dag_id}/{uuid.uuid4().hex}", len(claim(asset, limit=CLAIM)))

        take()

    counts()


timer("windsock_latency", "windsock-latency", watched("windsock-latency", "SignalSource"))
timer("windsock_webhook", "windsock-webhook", hooked("windsock-webhook"))
counter("windsock_flood", watched("windsock-flood", "FloodSource", batch=CLAIM, high_water=2_000_000))
counter("windsock_hooks", hooked("windsock-hooks", batch=CLAIM))
