"""117.1 AssetWatcher Fundamentals: what happens to each Dag, and what must come of it."""

from __future__ import annotations

from typing import Any

from windsock.testing.scenarios import Runs, scenario
from windsock.testing.stage import Stage


@scenario("117_01_01_watcher_basics", events=3, runs=Runs(2, 3))
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


@scenario("117_01_02_watcher_config", events=4, runs=Runs(1, 4, failed=1), dead=1)
def watcher_config(stage: Stage) -> None:
    """Signed orders: small and repeated ones start nothing, a failed run's order comes back by itself."""

    def order(number: str, answer: str | int = "accepted", signed: bool = True, **data: Any) -> None:
        headers = {"X-Shop-Event": "order.placed", "X-Windsock-Delivery": number}
        stage.hook("watcher_config", data, headers=headers, signed=signed, answer=answer)

    order("1", customer="ada", total=250)
    order("2", customer="bob", total=99, answer="filtered")
    order("3", customer="bob", total=100)
    order("4", customer="ada", total=120)
    order("5", customer="cyd", total=500, warehouse="counting")
    order("6", customer="dan", answer="dead")
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
