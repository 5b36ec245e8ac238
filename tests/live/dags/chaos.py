"""The Dags of the kill test: slow enough to be killed in the middle."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import claim
from windsock.watchers import FilesAssetWatcher, WebhookAssetWatcher

inbox = os.environ["WINDSOCK_TEST_INBOX"] + "/chaos"
retry: dict[str, Any] = {"retry_delay": "2s", "max_attempts": 10}
hooks = Asset("chaos-hooks", watchers=[WebhookAssetWatcher(name="chaos-hooks", auth="none", rate=0, **retry)])
files = Asset(
    "chaos-files", watchers=[FilesAssetWatcher(name="chaos-files", path=inbox, settle=0.5, **retry)]
)


def consumer(dag_id: str, asset: Asset) -> None:
    """A Dag that takes events, works a moment, and writes them down."""

    @dag(dag_id=dag_id, schedule=[asset], max_active_runs=2)
    def chaos() -> None:
        @task(retries=2, retry_delay=timedelta(seconds=1))
        def take() -> None:
            events = claim(asset)
            time.sleep(0.5)
            record(event.id for event in events)

        take()

    chaos()


consumer("chaos_hooks", hooks)
consumer("chaos_files", files)
