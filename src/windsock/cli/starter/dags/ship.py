"""Reacts to signed webhooks: POST /windsock/hooks/orders."""

from airflow.sdk import Asset, dag, task

from windsock import claim, dead_letter
from windsock.watchers import WebhookAssetWatcher

orders = Asset(
    "orders",
    watchers=[WebhookAssetWatcher(name="orders", auth="hmac", conn_id="shop", batch=100, within="1s")],
)


@dag(schedule=[orders])
def ship() -> None:
    @task
    def pack() -> None:
        for event in claim(orders):
            if event.data["amount"] > 0:
                print(f"packing {event.data['amount']} x {event.data['item']}")
            else:
                dead_letter(event, "there is nothing to pack")

    pack()


ship()
