"""Events in a burst, with Windsock and with stock Airflow: what reaches a run?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetWatcher, dag, task
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from ledger import record

from windsock import claim
from windsock.watchers import WebhookAssetWatcher

burst = Asset("burst", watchers=[WebhookAssetWatcher(name="burst", auth="none", rate=0)])


@dag(schedule=[burst], max_active_runs=1)
def windsock_burst() -> None:
    """Takes what it is given."""

    @task(retries=2, retry_delay=timedelta(seconds=1))
    def take() -> None:
        record(event.data["n"] for event in claim(burst))

    take()


class NumbersTrigger(BaseEventTrigger):
    """A stock event trigger: five numbers in two seconds, then a thousand at once, when the file appears."""

    def __init__(self, signal: str) -> None:
        super().__init__()
        self.signal = signal

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "burst.NumbersTrigger", {"signal": self.signal}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while not Path(self.signal).exists():  # noqa: ASYNC240 - the simplest trigger there is
            await asyncio.sleep(0.2)
        for n in range(5):
            yield TriggerEvent({"n": n})
            await asyncio.sleep(0.4)
        for n in range(5, 1005):
            yield TriggerEvent({"n": n})
        await asyncio.Event().wait()


stock = Asset(
    "stock-burst",
    watchers=[AssetWatcher(name="stock", trigger=NumbersTrigger(os.environ["WINDSOCK_TEST_SIGNAL"]))],
)


@dag(schedule=[stock], max_active_runs=1)
def stock_burst() -> None:
    """Takes what stock Airflow links to the run."""

    @task
    def take(triggering_asset_events: Any = None) -> None:
        record(event.extra["payload"]["n"] for events in triggering_asset_events.values() for event in events)

    take()


windsock_burst()
stock_burst()
