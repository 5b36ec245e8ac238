"""117.1.4 Event-Driven vs Polling Comparison

One question, "has the order been shipped?", answered three ways side by side. `make verify` plays it and
writes what it measured to `117_01_04_event_vs_polling.md` and `.svg` beside this file.

- Compare sensor polling vs watcher events: ``polling`` makes two Dags whose sensor asks the shop's API,
  every second and every ten seconds; ``event_vs_polling`` is told by a webhook.
- Analyze resource usage differences: a run of ``polling`` exists, holds a worker and keeps asking before
  anything has happened. ``schedule=[shipments]`` has no run and makes no request until then.
- Evaluate latency characteristics: all three end in ``arrived``, which returns the seconds from the
  shipment to its own start. A sensor trades requests for latency with ``poke_interval``; a watcher need not
  choose.
- Choose appropriate approach per use case: ``choose`` says which one to take, and why.
"""

from __future__ import annotations

import time
from typing import Any

import httpx
from airflow.sdk import Asset, Connection, PokeReturnValue, dag, task

from windsock import claim
from windsock.watchers import WebhookAssetWatcher

TAGS = ["reference", "patterns", "intermediate", "success"]

shipments = Asset(
    "event_vs_polling/shipments",
    watchers=[WebhookAssetWatcher(name="event_vs_polling", auth="hmac", conn_id="reference_shop")],
)


def seconds_since(order: dict[str, Any]) -> float:
    """How long ago the order was shipped."""
    return time.time() - order["shipped_at"]


def polling(every: int) -> None:
    """A Dag that is started for one order and asks until it is shipped."""

    @dag(
        dag_id=f"117_01_04_event_vs_polling_{every}s",
        schedule=None,
        params={"order": "A1"},
        tags=TAGS,
        doc_md=__doc__,
    )
    def ask() -> None:
        @task.sensor(poke_interval=every, timeout=600)
        def shipped(params: dict[str, Any]) -> PokeReturnValue:
            shop = Connection.get("reference_shop_api")
            url = f"http://{shop.host}:{shop.port}/orders/{params['order']}"
            order = httpx.get(url, headers={"User-Agent": f"{every}s"}, timeout=10).raise_for_status().json()
            return PokeReturnValue(is_done=order["shipped_at"] is not None, xcom_value=order)

        @task
        def arrived(order: dict[str, Any]) -> list[float]:
            return [seconds_since(order)]

        arrived(shipped())

    ask()


def choose(*, inside_a_run: bool, sender_can_call: bool) -> str:
    """Which way to take."""
    if inside_a_run:
        return "sensor, deferrable if it exists: a run that has begun can only wait in a task"
    if sender_can_call:
        return "webhook watcher: nothing waits, nobody asks"
    return "watcher that reads the source: one reader asks for all Dags, and no run waits"


@dag(dag_id="117_01_04_event_vs_polling", schedule=[shipments], tags=TAGS, doc_md=__doc__)
def event_vs_polling() -> None:
    @task
    def arrived() -> list[float]:
        print(choose(inside_a_run=False, sender_can_call=True))
        return [seconds_since(event.data) for event in claim(shipments)]

    arrived()


polling(every=1)
polling(every=10)
event_vs_polling()
