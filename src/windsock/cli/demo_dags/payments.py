"""When things go wrong: an impossible payment is set aside, and a run that fails gets its events again."""

from __future__ import annotations

from airflow.sdk import Asset, dag, task

from windsock import claim, dead_letter
from windsock.watchers import WebhookAssetWatcher

made = Asset(
    "demo/payments",
    watchers=[
        WebhookAssetWatcher(
            name="payments", auth="hmac", conn_id="demo_shop", within="1s", max_attempts=3, retry_delay="2s"
        )
    ],
)


@dag(schedule=[made], max_active_runs=1, tags=["windsock-demo"])
def payments() -> None:
    """Books payments, in a world where the bank does not answer at first."""

    @task
    def book() -> list[str]:
        events = claim(made)
        for event in events:
            payment = event.data if isinstance(event.data, dict) else {}
            amount = payment.get("amount")
            if not isinstance(amount, int | float) or amount <= 0:
                dead_letter(event, f"a payment of {amount!r} cannot be booked")
            elif payment.get("bank") == "away" and event.attempt == 0:
                raise ConnectionError("the bank does not answer: the run fails, its events come back")
        return [event.id for event in events]

    book()


payments()
