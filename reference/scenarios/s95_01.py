"""95.1 Asset-Based Event Triggers: what happens to each Dag, and what must come of it."""

from __future__ import annotations

import json
from typing import Any

from windsock.testing.scenarios import Runs, scenario
from windsock.testing.stage import Stage


@scenario("95_01_01_asset_producer", events=3, runs=Runs(2, 4), others={"_consumer": Runs(1, 2)})
def asset_producer(stage: Stage) -> None:
    """Files of readings: the good ones are published and consumed, a file of bad ones emits nothing."""
    stage.drop("broken.json", json.dumps([{"celsius": 999}]))
    stage.wait(lambda: {ti.state for ti in stage.tasks()} == {"skipped"}, "the broken file to be skipped")
    stage.check(stage.emitted() == [], "no asset event from a skipped task")
    stage.drop("north.json", json.dumps([{"celsius": 3}, {"celsius": -200}]))
    stage.drop("south.json", json.dumps([{"celsius": 21}]))

    def consumed() -> list[int]:
        return sorted(reading["celsius"] for run in stage.returned("read", "_consumer") for reading in run)

    stage.wait(lambda: consumed() == [3, 21], "the good readings to be consumed, once each")
    extras = [update["extra"] for update in stage.emitted()]
    stage.check(sum(extra["rows"] for extra in extras) == 2, "asset events that speak of two rows")
    causes = sorted(cause.partition("#")[0] for extra in extras for cause in extra["caused_by"])
    stage.check(causes == ["north.json", "south.json"], f"the files as cause, not {causes}")


@scenario("95_01_02_asset_consumer", events=7, runs=Runs(1, 2))
def asset_consumer(stage: Stage) -> None:
    """Orders and payments of a day, mixed: one run has them all, once both sides have closed the day."""

    def send(what: str, kind: str, subject: str, data: Any = None) -> None:
        stage.cloudevent(f"asset_consumer_{what}", data, type=kind, subject=subject)

    send("payments", "payment.made", "N-2", {"amount": 20})
    for number, amount in (("N-1", 10), ("N-2", 20), ("N-3", 30)):
        send("orders", "order.placed", number, {"amount": amount})
    send("orders", "day.closed", "2026-05-04")
    stage.wait(lambda: _waiting(stage, "asset_consumer_orders") == 4, "the orders' batch to be closed")
    stage.check(stage.runs() == [], "no run while the payments' day is open")
    send("payments", "payment.made", "N-1", {"amount": 10})
    send("payments", "day.closed", "2026-05-04")
    stage.wait(lambda: ["N-3"] in stage.returned("unpaid"), "the one unpaid order to be found")


@scenario("95_01_03_multi_asset_dependencies", events=3, runs=Runs(2, 4))
def multi_asset_dependencies(stage: Stage) -> None:
    """Prices alone start nothing; prices and stock do; a recall does so by itself."""
    stage.drop("prices-may.csv", "kite,12\n")
    stage.wait(lambda: _updates(stage, "multi_asset_prices"), "Airflow to know of the prices")
    stage.check(stage.runs() == [], "no run for prices alone")
    stage.drop("stock-may.csv", "kite,3\n")
    both = {"window": "rebuilt", "files": ["prices-may.csv", "stock-may.csv"], "recalled": []}
    stage.wait(lambda: both in stage.returned("rebuild"), "a run with prices and stock")
    stage.hook("multi_asset_recalls", {"product": "lantern"})
    recall = {"window": "corrected", "files": [], "recalled": ["lantern"]}
    stage.wait(lambda: recall in stage.returned("rebuild"), "a run for the recall alone")


@scenario("95_01_04_asset_event_metadata", events=3, runs=Runs(1, 3), others={"_reader": Runs(1, 3)})
def asset_event_metadata(stage: Stage) -> None:
    """CloudEvents with a schema and an extension: what the second Dag reads is what the first one told."""
    for station, celsius in (("oslo", -3.5), ("rome", 24.0), ("lima", 18.0)):
        stage.cloudevent(
            "asset_event_metadata",
            {"celsius": celsius},
            type="station.reading",
            subject=station,
            dataschema="https://example.org/reading/1",
            firmware="7.2",
        )

    def read() -> list[dict[str, Any]]:
        return [summary for run in stage.returned("read", "_reader") for summary in run]

    def stations() -> list[str]:
        return sorted(station for summary in read() for station in summary["stations"])

    stage.wait(lambda: stations() == ["lima", "oslo", "rome"], "every station to be told of, once")
    stage.check(min(summary["low"] for summary in read()) == -3.5, "the lowest reading")
    stage.check(max(summary["high"] for summary in read()) == 24.0, "the highest reading")
    stage.check(
        all(
            (summary["schemas"], summary["firmware"]) == (["https://example.org/reading/1"], ["7.2"])
            for summary in read()
        ),
        "schema and extension to be carried along",
    )
    counts = [count for run in stage.returned("announced") for count in run]
    stage.check(sum(counts) >= 3, f"announcements of all three events, not {counts}")


@scenario(
    "95_01_05_conditional_asset_triggers",
    events=3,
    runs=Runs(2, 4),
    others={"_alert": Runs(1, 1)},
    dead=1,
)
def conditional_asset_triggers(stage: Stage) -> None:
    """A refund starts nothing, a small payment alerts nobody, nonsense is set aside, a large one alerts."""

    def pay(number: str, amount: int, kind: str = "payment.made", answer: str = "accepted") -> None:
        stage.cloudevent("conditional_triggers", {"amount": amount}, id=number, type=kind, answer=answer)

    pay("refund", 50_000, kind="payment.refunded", answer="filtered")
    pay("small", 12)
    stage.wait(lambda: [{"id": "small", "amount": 12}] in stage.returned("check"), "a checked small payment")
    stage.check(
        {ti.state for ti in stage.tasks() if ti.task_id == "escalate"} == {"skipped"},
        "escalate to be skipped for a small payment",
    )
    pay("nonsense", -5)
    pay("large", 25_000)
    stage.wait(lambda: stage.returned("ask", "_alert") == [["large"]], "the large payment to be asked about")
    (letter,) = stage.log.dead_letters(watcher="conditional_triggers")
    stage.check(
        "-5" in letter.reason and letter.category == "rejected", "the nonsense among the dead letters"
    )


def _waiting(stage: Stage, watcher: str) -> int:
    return sum(place.pending for place in stage.subscriptions() if place.watcher == watcher)


def _updates(stage: Stage, asset: str) -> int:
    """How many events Airflow has of an asset, and so has told the scheduler of."""
    answer = stage.api.request("GET", "assets/events", params={"name_pattern": asset, "limit": 1})
    return int(answer["total_entries"])
