"""117.1.2 Watcher Configuration Options

Large orders reach the warehouse through a signed webhook. Every option of a watcher is one argument of it,
and a mistake in any of them is refused when the Dag is parsed.

- Configure watcher timeout and retry settings: ``within`` is how long a batch may fill and ``tolerance``
  how old a signature may be; when a run fails its events come back after ``retry_delay``, doubled each
  time, until ``max_attempts`` is reached. ``event["attempt"]`` says how often that has happened.
- Set up event filtering parameters: ``where`` keeps orders of 100 and more, ``dedupe`` takes an order once
  a day however often it is sent, ``max_bytes`` caps its size.
- Handle watcher metadata extraction: ``key`` is computed from the payload, so that one customer's orders
  stay in order; an order without a customer goes to the dead letters and does not fail the others.
  ``describe`` reads the key with the CloudEvents attributes: type, time and delivery id.
- Define watcher-specific connection references: ``conn_id`` names the Airflow Connection whose password
  signs the requests. The secret is in no Dag file and in no log.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import claim
from windsock.watchers import WebhookAssetWatcher

orders = Asset(
    "watcher_config/orders",
    watchers=[
        WebhookAssetWatcher(
            name="watcher_config",
            auth="hmac",
            conn_id="reference_shop",
            tolerance=60,
            type_header="X-Shop-Event",
            where="type == 'order.placed' && data.total >= 100",
            key="data.customer",
            dedupe="24h",
            max_bytes=10_000,
            batch=100,
            within="1s",
            max_attempts=3,
            retry_delay="1s",
        )
    ],
)


@dag(
    dag_id="117_01_02_watcher_config",
    schedule=[orders],
    max_active_runs=1,
    tags=["reference", "core", "beginner", "success"],
    doc_md=__doc__,
)
def watcher_config() -> None:
    @task
    def pack(event: dict[str, Any]) -> dict[str, Any]:
        """Pack one order; a warehouse that is counting its stock cannot do so at the first attempt."""
        if event["data"].get("warehouse") == "counting" and not event.get("attempt"):
            raise RuntimeError("the warehouse is counting: the run fails, and its events come back")
        return event

    @task
    def describe(event: dict[str, Any]) -> dict[str, Any]:
        """What is known of an order beside its payload."""
        known = {name: event[name] for name in ("id", "type", "time", "key")}
        return {**known, "attempt": event.get("attempt", 0), "total": event["data"]["total"]}

    describe.expand(event=pack.expand(event=claim(orders)))


watcher_config()
