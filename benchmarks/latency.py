"""Part C: how long after an event the task that it causes begins.

One event at a time, a random moment after the one before. Stock Airflow and Windsock look for the same kind
of signal, equally often, inside the same triggerer, so that only the way of the event differs. The third door
is a webhook. The doors take turns, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator

from field import Field
from report import Finding, number, percentile, progress

__all__ = ["measure_latency"]

DOORS = ("stock-latency", "windsock-latency", "windsock-webhook")


def measure_latency(field: Field, *, quick: bool) -> Iterator[Finding]:
    """Event to task start, in the median and at the 90th percentile."""
    rounds = 5 if quick else 15
    chance = random.Random(3)
    seconds: dict[str, list[float]] = {door: [] for door in DOORS}
    for n in range(1, rounds + 2):
        progress(f"latency: event {n} of {rounds + 1} at each of {len(DOORS)} doors")
        for door in DOORS:
            made = time.time()
            if door == "windsock-webhook":
                field.post(door, {"n": n})
            else:
                field.signal(door, n, made)
            seconds[door].append(field.await_note(f"{door}-{n}-start") - made)
            time.sleep(chance.uniform(0.5, 1.5))
    for values in seconds.values():
        del values[0]  # the first run of each Dag warms caches up
    stock = seconds["stock-latency"]
    for door, what in (("windsock-latency", "signal file"), ("windsock-webhook", "webhook")):
        mine = seconds[door]
        ratio = statistics.median(mine) / statistics.median(stock)
        aimed = door == "windsock-latency"
        yield Finding(
            part="latency",
            what=f"event → task start, {what}",
            baseline=f"stock watcher {_times(stock)}",
            windsock=_times(mine),
            ratio=ratio,
            target="median no slower" if aimed else "",
            reached=ratio <= 1 if aimed else None,
            raw={"stock_s": stock, "windsock_s": mine},
        )


def _times(values: list[float]) -> str:
    return f"{number(statistics.median(values))} s (p90 {number(percentile(values, 0.9))} s)"
