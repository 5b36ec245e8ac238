"""Dags that run on what is found in other watchers' events: a join, a silence, a broken expectation."""

from __future__ import annotations

from airflow.sdk import Asset, dag, task
from ledger import record

from windsock import claim
from windsock.rules import absence, all_of
from windsock.watchers import CorrelatedAssetWatcher, ExpectationAssetWatcher, WebhookAssetWatcher

paid = Asset(
    "paid-orders",
    watchers=[
        WebhookAssetWatcher("joined-orders", auth="none", rate=0, expect={"every": "5s"}),
        WebhookAssetWatcher("joined-payments", auth="none", rate=0),
        CorrelatedAssetWatcher(
            "paid-orders", rule=all_of("joined-orders", "joined-payments", within="1h", by="data.order")
        ),
    ],
)
silent = Asset(
    "silent-devices",
    watchers=[
        WebhookAssetWatcher("heartbeats", auth="none", rate=0),
        CorrelatedAssetWatcher("silent-devices", rule=absence("heartbeats", within="3s", by="data.device")),
    ],
)
broken = Asset("broken-expectations", watchers=[ExpectationAssetWatcher("broken-expectations")])


@dag(schedule=[paid])
def joins() -> None:
    """Writes down what each joined event has of both legs."""

    @task
    def take() -> None:
        for event in claim(paid):
            legs = event.data["legs"]
            record([[event.key, legs["joined-orders"]["item"], legs["joined-payments"]["by"]]])

    take()


@dag(schedule=[silent])
def hears_silence() -> None:
    """Writes down which devices are silent."""

    @task
    def take() -> None:
        record(event.data["key"] for event in claim(silent))

    take()


@dag(schedule=[broken])
def hears_breaches() -> None:
    """Writes down what is broken."""

    @task
    def take() -> None:
        record(f"{event.key}:{event.type.rpartition('.')[2]}" for event in claim(broken))

    take()


joins()
hears_silence()
hears_breaches()
