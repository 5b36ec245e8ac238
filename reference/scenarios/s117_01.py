"""117.1 AssetWatcher Fundamentals: what happens to each Dag, and what must come of it."""

from __future__ import annotations

import time
from typing import Any

from windsock.testing.scenarios import Runs, scenario
from windsock.testing.stage import Stage


@scenario("117_01_01_watcher_basics", events=3, runs=Runs(2, 4))
def watcher_basics(stage: Stage) -> None:
    """Files are dropped: no run exists before the first one, and each is added up once."""
    stage.check(stage.runs() == [], "no run before there is a file")
    stage.drop("april.csv", "item,amount\nkite,12\nlantern,30\n")

    def reported() -> dict[str, int]:
        return {invoice: total for run in stage.returned("report") for invoice, total in run.items()}

    stage.wait(lambda: reported() == {"april.csv": 42}, "the first invoice to be added up")
    stage.drop("may.csv", "item,amount\nkite,8\n")
    stage.drop("june.csv", "item,amount\n")
    stage.wait(
        lambda: reported() == {"april.csv": 42, "may.csv": 8, "june.csv": 0}, "every invoice to be added up"
    )


@scenario("117_01_02_watcher_config", events=4, runs=Runs(1, 5, failed=1), dead=1)
def watcher_config(stage: Stage) -> None:
    """Signed orders: small and repeated ones start nothing, those of a failed run come back by themselves."""

    def order(number: str, answer: str | int = "accepted", signed: bool = True, **data: Any) -> None:
        headers = {"X-Shop-Event": "order.placed", "X-Windsock-Delivery": number}
        stage.hook("watcher_config", data, headers=headers, signed=signed, answer=answer)

    order("1", customer="ada", total=250)
    order("2", customer="bob", total=99, answer="filtered")
    order("3", customer="bob", total=100)
    order("4", customer="ada", total=120)
    order("5", customer="cyd", total=500, warehouse="counting")
    order("6", total=700, answer="dead")
    order("1", customer="ada", total=250, answer="duplicate")
    order("7", customer="eve", total=900, signed=False, answer=401)
    stage.wait(lambda: len(stage.returned("describe")) == 4, "four orders to be described")
    described = {known["id"]: known for known in stage.returned("describe")}
    stage.check(sorted(described) == ["1", "3", "4", "5"], f"orders 1, 3, 4 and 5, not {sorted(described)}")
    stage.check(described["5"]["attempt"] == 1, "order 5 to come back with its failed attempt counted")
    stage.check({known["type"] for known in described.values()} == {"order.placed"}, "the type of the header")
    stage.check(described["4"]["key"] == "ada", "the key of the payload")
    health = stage.health("watcher_config")
    stage.check((health.filtered, health.duplicates) == (1, 1), "one order filtered and one a duplicate")


@scenario("117_01_03_asset_with_watcher", events=4, runs=Runs(2, 4))
def asset_with_watcher(stage: Stage) -> None:
    """Events through both doors of one asset; those of a paused Dag wait and arrive after it is unpaused."""

    def updated() -> list[str]:
        return sorted(name for run in stage.returned("update") for name in run)

    stage.drop("list.json", "[]")
    stage.hook("asset_with_watcher_till", {"name": "kite"})
    first = ["windsock.file.created: list.json", "windsock.webhook: kite"]
    stage.wait(lambda: updated() == first, "an update through each door")
    stage.api.pause(stage.dag_id())
    stage.wait(lambda: all(place.paused for place in stage.subscriptions()), "the log to know of the pause")
    runs = len(stage.runs())
    stage.drop("paused.json", "[]")
    stage.hook("asset_with_watcher_till", {"name": "lantern"})
    stage.wait(lambda: stage.health("asset_with_watcher_files").logged == 2, "the second file to be logged")
    stage.check(len(stage.runs()) == runs, "no run while the Dag is paused")
    stage.api.unpause(stage.dag_id())
    both = sorted([*first, "windsock.file.created: paused.json", "windsock.webhook: lantern"])
    stage.wait(lambda: updated() == both, "what waited to arrive after the pause")
    names = ["asset_with_watcher_files", "asset_with_watcher_till"]
    stage.check(all(run == names for run in stage.returned("registered")), "both watchers to be registered")


@scenario(
    "117_01_05_watcher_lifecycle",
    events=2,
    runs=Runs(2, 4),
    others={"_health": Runs(3, 3)},
    inbox=False,
)
def watcher_lifecycle(stage: Stage) -> None:
    """The folder is missing, then there; the Dag is paused, then not: the health Dag says so each time."""
    name = "watcher_lifecycle"

    def received() -> list[str]:
        return [file for run in stage.returned("receive") for file in run]

    def inspected() -> dict[str, Any]:
        run = stage.trigger("_health")
        stage.wait(lambda: stage.api.run(run.dag_id, run.run_id).finished, "the health Dag to end")
        last: dict[str, Any] = stage.returned("inspect", "_health")[-1]
        return last

    stage.wait(lambda: stage.health(name).state == "backoff", "the missing folder to be noticed")
    found = inspected()
    stage.check("create it" in found["trouble"], f"a remedy for the missing folder, not {found}")
    stage.drop("first.txt", "1")
    stage.wait(lambda: received() == ["first.txt"], "the first delivery, by itself once the folder is there")
    found = inspected()
    stage.check(found["trouble"] == "" and found["state"] == "running", f"a healthy watcher, not {found}")
    stage.check([place["dag"] for place in found["places"]] == [stage.dag_id()], "the Dag's subscription")
    stage.api.pause(stage.dag_id())
    stage.reparse()
    stage.wait(lambda: time.time() - (stage.health(name).heartbeat_at or 0) > 12, "the reader to stop")
    stage.drop("second.txt", "2")
    found = inspected()
    stage.check("paused" in found["trouble"], f"a reader that is gone, not {found}")
    stage.api.unpause(stage.dag_id())
    stage.reparse()
    stage.wait(lambda: received() == ["first.txt", "second.txt"], "the reader to go on where it stopped")
