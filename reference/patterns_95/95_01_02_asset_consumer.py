"""95.1.2 Asset Consumer Pattern

Orders and payments of a day come from two systems, in any order. When both have closed their day, one run
matches them.

- schedule=[Asset()] pattern: ``schedule=[orders, payments]``; no time, no sensor.
- Multiple Asset dependencies: a list means all of them, so the run starts once both assets were updated. An
  update stands for a whole day: ``flush`` closes the batch with the event that ends the day.
- Consumer DAG structure: ``collect`` takes the events, ``match`` works on plain values, ``unpaid`` reports.
  Only the first task knows where they came from; a retry or a clear gets the same events.
- Event correlation: an order and its payment have the same CloudEvents ``subject``, the order's number.
"""

from __future__ import annotations

from airflow.sdk import Asset, dag, task

from windsock import claim
from windsock.watchers import WebhookAssetWatcher


def daily(what: str) -> Asset:
    """An asset that is updated once a day, when its sender says that the day is closed."""
    watcher = WebhookAssetWatcher(
        name=f"asset_consumer_{what}",
        auth="hmac",
        conn_id="reference_shop",
        within="24h",
        flush="type == 'day.closed'",
    )
    return Asset(f"asset_consumer/{what}", watchers=[watcher])


orders, payments = daily("orders"), daily("payments")


@dag(
    dag_id="95_01_02_asset_consumer",
    schedule=[orders, payments],
    max_active_runs=1,
    tags=["reference", "core", "beginner", "success"],
    doc_md=__doc__,
)
def asset_consumer() -> None:
    @task(multiple_outputs=True)
    def collect() -> dict[str, dict[str, int]]:
        """Both sides of the day: amounts by order number."""
        return {
            "ordered": {event.subject: event.data["amount"] for event in claim(orders) if event.data},
            "paid": {event.subject: event.data["amount"] for event in claim(payments) if event.data},
        }

    @task
    def match(ordered: dict[str, int], paid: dict[str, int]) -> dict[str, int]:
        """What is still owed, by order number."""
        return {number: amount - paid.get(number, 0) for number, amount in ordered.items()}

    @task
    def unpaid(owed: dict[str, int]) -> list[str]:
        """The orders to remind somebody of."""
        return sorted(number for number, amount in owed.items() if amount > 0)

    day = collect()
    unpaid(match(day["ordered"], day["paid"]))


asset_consumer()
