"""Stock Airflow: an event trigger and Dags as its documentation shows them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetWatcher, dag, task
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from place import folder, note, signals
from samples import orders


class StockSignalTrigger(BaseEventTrigger):
    """Yields one event for each signal."""

    def __init__(self, door: str) -> None:
        super().__init__()
        self.door = door

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "bench_stock.StockSignalTrigger", {"door": self.door}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for n, made in signals(Path(self.door), -1):
            yield TriggerEvent({"n": n, "made": made})


class StockFloodTrigger(BaseEventTrigger):
    """On a signal with content ``count`` yields ``count`` orders as fast as they are taken."""

    def __init__(self, door: str) -> None:
        super().__init__()
        self.door = door

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "bench_stock.StockFloodTrigger", {"door": self.door}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async for flood, count in signals(Path(self.door), 0):
            events = orders(0, int(count))
            note(f"stock-flood-{flood}-read", time.time())
            for event in events:
                yield TriggerEvent(event.as_dict())


def watched(name: str, trigger: type[BaseEventTrigger]) -> Asset:
    """An asset with a stock watcher on the door of its name."""
    door = str(folder() / "signals" / name)
    return Asset(name, watchers=[AssetWatcher(name=name, trigger=trigger(door))])


latency, flood = watched("stock-latency", StockSignalTrigger), watched("stock-flood", StockFloodTrigger)
rest = Asset("stock-rest")


@dag(schedule=[latency])
def stock_latency() -> None:
    """Says when it began."""

    @task
    def take(triggering_asset_events: Any = None) -> None:
        started = time.time()
        for events in triggering_asset_events.values():
            for event in events:
                note(f"stock-latency-{event.extra['payload']['n']}-start", started)

    take()


def counter(dag_id: str, asset: Asset) -> None:
    """A Dag that counts what stock Airflow links to its runs."""

    @dag(dag_id=dag_id, schedule=[asset])
    def counts() -> None:
        @task
        def take(triggering_asset_events: Any = None) -> int:
            return sum(len(events) for events in triggering_asset_events.values())

        take()

    counts()


stock_latency()
counter("stock_flood", flood)
counter("stock_rest", rest)
