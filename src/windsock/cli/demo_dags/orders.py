"""Signed webhooks: every order is shipped by a mapped task of its own."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import claim
from windsock.watchers import WebhookAssetWatcher

placed = Asset(
    "demo/orders",
    watchers=[WebhookAssetWatcher(name="orders", auth="hmac", conn_id="demo_shop", batch=5, within="1s")],
)


@dag(schedule=[placed], max_active_runs=1, tags=["windsock-demo"])
def orders() -> None:
    """Ships what was ordered."""

    @task(retries=1, retry_delay=1)
    def ship(event: dict[str, Any]) -> str:
        print(f"shipping {event['data']}")
        return str(event["id"])

    ship.expand(event=claim(placed))


orders()
