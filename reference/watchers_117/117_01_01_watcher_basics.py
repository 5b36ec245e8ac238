"""117.1.1 AssetWatcher Concept Introduction

Invoices land in a folder; each batch of them becomes a run that adds them up. No task waits for a file.

- Understand AssetWatcher vs traditional sensors: a sensor is a task, so a run must exist before anything
  has happened, and it holds a worker or keeps asking. The watcher lives in the triggerer: ``add_up`` is the
  first thing that runs, after the file has come.
- Define watcher attached to Asset definition: ``watchers=[…]`` of the ``invoices`` asset.
- Configure basic watcher with trigger source: ``FilesAssetWatcher`` watches a directory for ``*.csv``. Its
  trigger is made for you; ``settle=1`` holds a file back until nobody has written to it for a second.
- Demonstrate event-driven DAG scheduling: ``schedule=[invoices]``, and ``claim(invoices)`` hands the run
  its events, one per mapped task.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import claim
from windsock.watchers import FilesAssetWatcher

INBOX = os.environ.get("WINDSOCK_REFERENCE_INBOX", "/data/inbox")

invoices = Asset(
    "watcher_basics/invoices",
    watchers=[
        FilesAssetWatcher(name="watcher_basics", path=f"{INBOX}/watcher_basics", pattern="*.csv", settle=1)
    ],
)


@dag(
    dag_id="117_01_01_watcher_basics",
    schedule=[invoices],
    tags=["reference", "core", "beginner", "success"],
    doc_md=__doc__,
)
def watcher_basics() -> None:
    @task
    def add_up(event: dict[str, Any]) -> dict[str, Any]:
        """The total of one invoice."""
        with Path(event["data"]["path"]).open(newline="") as file:
            total = sum(int(row["amount"]) for row in csv.DictReader(file))
        return {"invoice": event["subject"], "total": total}

    @task
    def report(totals: list[dict[str, Any]]) -> dict[str, int]:
        """What this run found, by invoice."""
        return {total["invoice"]: total["total"] for total in totals}

    report(add_up.expand(event=claim(invoices)))


watcher_basics()
