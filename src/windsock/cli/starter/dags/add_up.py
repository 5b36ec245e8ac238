"""Reacts to files: adds up each CSV file that lands in inbox/."""

import csv
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import claim
from windsock.watchers import FilesAssetWatcher

INBOX = Path(__file__).resolve().parent.parent / "inbox"

reports = Asset(
    "reports",
    watchers=[
        FilesAssetWatcher(name="reports", path=str(INBOX), pattern="*.csv", max_attempts=2, retry_delay="5s")
    ],
)


@dag(schedule=[reports])
def add_up() -> None:
    @task
    def total(event: dict[str, Any]) -> float:
        with open(event["data"]["path"], newline="") as file:
            amounts = [float(row["amount"]) for row in csv.DictReader(file)]
        print(f"{event['subject']}: {sum(amounts)}")
        return sum(amounts)

    total.expand(event=claim(reports))


add_up()
