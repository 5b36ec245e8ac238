"""95.1.1 Asset Producer Pattern

Raw readings land in a folder; the producer cleans them and says so by updating an asset, on which whoever
is interested is scheduled. It knows nothing of them.

- Define Asset URIs: ``raw`` and ``clean`` are named once, here. The ``uri`` of ``clean`` is where the data
  is.
- Outlet declaration: ``outlets=[clean]`` on the one task that writes it.
- Asset update emission: when ``publish`` succeeds, Airflow emits one asset event; ``outlet_events`` adds
  what a consumer wants to know, with the ids of the events that caused it. A run that has nothing to
  publish is skipped by ``AirflowSkipException`` and emits nothing.
- Producer DAG pattern: take (``claim``), work, write, emit, in this order: an asset event never speaks of
  data that is not there. ``asset_consumer`` is one of its readers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from windsock import claim
from windsock.watchers import FilesAssetWatcher

INBOX = os.environ.get("WINDSOCK_REFERENCE_INBOX", "/data/inbox") + "/asset_producer"
OUTBOX = os.environ.get("WINDSOCK_REFERENCE_OUTBOX", "/data/outbox") + "/asset_producer"
TAGS = ["reference", "core", "beginner", "success"]

raw = Asset(
    "asset_producer/raw",
    watchers=[FilesAssetWatcher(name="asset_producer", path=INBOX, pattern="*.json", settle=1)],
)
clean = Asset(name="asset_producer/clean", uri=f"file://{OUTBOX}")


@dag(dag_id="95_01_01_asset_producer", schedule=[raw], max_active_runs=1, tags=TAGS, doc_md=__doc__)
def asset_producer() -> None:
    @task(outlets=[clean])
    def publish(run_id: str, *, outlet_events: Any) -> int:
        """Write the plausible readings of this run's files; how many there are."""
        events = claim(raw)
        found = [reading for event in events for reading in json.loads(Path(event.data["path"]).read_text())]
        good = [reading for reading in found if -50 <= reading["celsius"] <= 60]
        if not good:
            raise AirflowSkipException("nothing to publish")
        path = Path(OUTBOX) / f"{run_id}.json".replace(":", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(good))
        outlet_events[clean].extra = {
            "path": str(path),
            "rows": len(good),
            "caused_by": [event.id for event in events],
        }
        return len(good)

    publish()


@dag(dag_id="95_01_01_asset_producer_consumer", schedule=[clean], tags=TAGS, doc_md=__doc__)
def asset_consumer() -> None:
    @task
    def read(triggering_asset_events: Any) -> list[Any]:
        """The readings behind the updates that started this run."""
        paths = [Path(update.extra["path"]) for update in triggering_asset_events[clean]]
        return [reading for path in paths for reading in json.loads(path.read_text())]

    read()


asset_producer()
asset_consumer()
