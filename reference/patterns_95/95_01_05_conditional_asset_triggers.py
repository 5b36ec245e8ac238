"""95.1.5 Conditional Asset Triggers

Payments are looked at in four steps, each of which lets fewer of them through: only large ones reach the
Dag that asks a human.

- Filter Asset events: ``where`` is decided before anything is stored. Refunds never start a run.
- Conditional triggering logic: ``escalate`` is the only task with ``outlets=[alerts]``. When it is skipped
  the asset is not updated, so ``ask_a_human`` does not run.
- Event validation: ``check`` sets a payment that makes no sense aside with ``dead_letter`` and a reason.
  The others of the run go on.
- Skip patterns: ``any_large`` is a short circuit. A run without a large payment ends in success, with
  ``escalate`` skipped.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import claim, dead_letter
from windsock.watchers import WebhookAssetWatcher

TAGS = ["reference", "patterns", "intermediate", "success"]

payments = Asset(
    "conditional_triggers/payments",
    watchers=[
        WebhookAssetWatcher(
            name="conditional_triggers",
            auth="hmac",
            conn_id="reference_shop",
            where="type == 'payment.made'",
            within="1s",
        )
    ],
)
alerts = Asset("conditional_triggers/alerts")


@dag(
    dag_id="95_01_05_conditional_asset_triggers",
    schedule=[payments],
    max_active_runs=1,
    tags=TAGS,
    doc_md=__doc__,
)
def conditional_asset_triggers() -> None:
    @task
    def check() -> list[dict[str, Any]]:
        """The payments of this run that make sense."""
        good = []
        for event in claim(payments):
            if event.data.get("amount", 0) > 0:
                good.append({"id": event.id, **event.data})
            else:
                dead_letter(event, f"a payment of {event.data.get('amount')!r} makes no sense")
        return good

    @task.short_circuit
    def any_large(checked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The large ones; the run ends here if there are none."""
        return [payment for payment in checked if payment["amount"] >= 10_000]

    @task(outlets=[alerts])
    def escalate(large: list[dict[str, Any]], *, outlet_events: Any) -> None:
        """Update the asset on which the alerting Dag is scheduled."""
        outlet_events[alerts].extra = {"payments": large}

    escalate(any_large(check()))


@dag(dag_id="95_01_05_conditional_asset_triggers_alert", schedule=[alerts], tags=TAGS, doc_md=__doc__)
def ask_a_human() -> None:
    @task
    def ask(triggering_asset_events: Any) -> list[str]:
        """Whose payments need a second look."""
        return [
            payment["id"] for alert in triggering_asset_events[alerts] for payment in alert.extra["payments"]
        ]

    ask()


conditional_asset_triggers()
ask_a_human()
