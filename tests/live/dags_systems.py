"""Dags on real brokers and a table; the test copies this file into the Dags folder."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import claim
from windsock.watchers import NatsAssetWatcher, RedisStreamAssetWatcher, SqlAssetWatcher

WATCHERS = {
    "from_redis": RedisStreamAssetWatcher(
        "systems_redis", conn_id="systems_redis", stream="orders", field="data", create=True
    ),
    "from_nats": NatsAssetWatcher("systems_nats", conn_id="systems_nats", stream="ORDERS", create=True),
    "from_table": SqlAssetWatcher(
        "systems_table", conn_id="systems_table", table="orders", cursor_column="n", poll=0.5
    ),
}


def consumer(name: str, watcher: Any) -> None:
    """A Dag that writes down what its watcher brought."""
    asset = Asset(name, watchers=[watcher])

    @dag(dag_id=name, schedule=[asset])
    def reads() -> None:
        @task
        def take() -> None:
            record(event.data["n"] for event in claim(asset))

        take()

    reads()


for name, watcher in WATCHERS.items():
    consumer(name, watcher)
