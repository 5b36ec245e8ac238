"""Reprocess dead letters

Orders whose total is text fail the watcher's schema and become dead letters. Every ten minutes a Dag lists
them, mends what it can and redrives it: the mended order reaches ``reprocess_dead_letters_orders`` under its
old id. What cannot be mended stays where it is, and the report says why.

- Listing: ``letters`` asks the log for the open letters of one watcher and category, oldest first.
- Repairing: ``repair`` gets a letter with its original bytes, and returns the event as it should have been,
  or None to leave the letter alone.
- Redriving: ``redrive`` sends what was mended through the watcher's present definition. Letters of a failed
  run return to their Dag as they are: there the Dag has to be mended.
- Reporting: ``reprocess`` returns how many went on, and by letter why the others did not.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import Event, claim, get_log, redrive
from windsock.watchers import WebhookAssetWatcher

TAGS = ["reference", "recovery", "intermediate", "success"]
WATCHER = "reprocess_orders"
MOST = 500

orders = Asset(
    "reprocess_dead_letters/orders",
    watchers=[
        WebhookAssetWatcher(
            name=WATCHER,
            auth="hmac",
            conn_id="reference_shop",
            schema={"required": ["total"], "properties": {"total": {"type": "number"}}},
        )
    ],
)


def repair(letter: Any) -> Event | None:
    """The order with its total as a number, if that is what is wrong with it."""
    event = Event.decode(letter.body)
    total = event.data.get("total")
    if not isinstance(total, str):
        return None
    return Event.from_dict(
        {**event.as_dict(), "data": {**event.data, "total": float(total.replace(",", "."))}}
    )


@dag(
    dag_id="reprocess_dead_letters",
    schedule="*/10 * * * *",
    catchup=False,
    max_active_runs=1,
    tags=TAGS,
    doc_md=__doc__,
)
def reprocess_dead_letters() -> None:
    @task
    def letters() -> list[int]:
        """The open letters that the watcher's schema refused."""
        found = get_log().dead_letters(watcher=WATCHER, category="invalid", limit=MOST)
        return sorted(letter.id for letter in found)

    @task
    def reprocess(ids: list[int]) -> dict[str, Any]:
        """Mend and redrive; what became of them."""
        result = redrive(get_log(), ids, repair=repair)
        left = {str(letter): why for letter, why in result.failed.items()}
        return {"redriven": result.appended + result.delivered, "left": left}

    reprocess(letters())


@dag(dag_id="reprocess_dead_letters_orders", schedule=[orders], tags=TAGS, doc_md=__doc__)
def reprocess_dead_letters_orders() -> None:
    @task
    def add_up() -> float:
        """What the run's orders come to."""
        return sum(event.data["total"] for event in claim(orders))

    add_up()


reprocess_dead_letters()
reprocess_dead_letters_orders()
