"""Files: CSV files that are dropped into a folder are added up, one run for each batch of up to five."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from airflow.sdk import Asset, dag, task

from windsock import claim, dead_letter
from windsock.watchers import FilesAssetWatcher

drops = Asset(
    "demo/reports",
    watchers=[
        FilesAssetWatcher(
            name="reports",
            path=os.environ["WINDSOCK_DEMO_INBOX"],
            pattern="*.csv",
            settle=0.5,
            batch=5,
            within="1s",
        )
    ],
)


@dag(schedule=[drops], max_active_runs=1, tags=["windsock-demo"])
def reports() -> None:
    """Adds up the `amount` column of every file of the batch."""

    @task(retries=1, retry_delay=1)
    def add_up() -> list[str | None]:
        events = claim(drops)
        for event in events:
            try:
                with Path(event.data["path"]).open(newline="") as file:
                    table = csv.DictReader(file)
                    if "amount" not in (table.fieldnames or ()):
                        raise ValueError("there is no column 'amount'")
                    total = sum(float(row["amount"]) for row in table)
            except (OSError, ValueError, TypeError, csv.Error) as error:
                dead_letter(event, f"not a report: {error}")
            else:
                print(f"{event.subject}: {total:.2f}")
        return [event.subject for event in events]

    add_up()


reports()
