"""Part C: how long after an event the task that it causes begins.

One event at a time, a random moment after the one before. Stock Airflow and Windsock look for the same kind
of signal, equally often, inside the same triggerer, so that only the way of the event differs. The third door
is a webhook. The doors take turns in a random order, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from field import Field
from report import Finding, number, percentile, progress

__all__ = ["measure_latency"]

DOORS = ("stock-latency", "windsock-latency", "windsock-webhook")


def measure_latency(field: Field, *, quick: bool) -> Iterator[Finding]:
    """Event to task start, in the median and at the 90th percentile."""
    rounds = 5 if quick else 15
    chance = random.Random(3)
    trips: dict[str, list[_Trip]] = {door: [] for door in DOORS}
    for n in range(rounds + 1):
        progress(f"latency: event {n} of {rounds} at each of {len(DOORS)} doors")
        for door in chance.sample(DOORS, len(DOORS)):
            trip = _travel(field, door, n)
            if n:  # the first run of each Dag warms caches up
                trips[door].append(trip)
            time.sleep(chance.uniform(0.5, 1.5))
    seconds = {door: [trip.total for trip in trips[door]] for door in DOORS}
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
            raw={
                "stock_s": stock,
                "windsock_s": mine,
                "stock_hops_median_s": _hops(trips["stock-latency"]),
                "windsock_hops_median_s": _hops(trips[door]),
            },
        )


@dataclass(frozen=True)
class _Trip:
    """The way of one event, in seconds since it was made."""

    announced: float
    """Airflow has the asset event."""
    queued: float
    """Airflow has the run."""
    total: float
    """The task has begun."""


def _travel(field: Field, door: str, n: int) -> _Trip:
    made = time.time()
    if door == "windsock-webhook":
        field.post(door, {"n": n})
    else:
        field.signal(door, n, made)
    started = field.await_note(f"{door}-{n}-start")
    announced, queued = field.airflow.execute(
        "SELECT e.timestamp, r.queued_at FROM asset_event e JOIN asset a ON a.id = e.asset_id"
        " JOIN dagrun_asset_event x ON x.event_id = e.id JOIN dag_run r ON r.id = x.dag_run_id"
        " WHERE a.name = %s ORDER BY e.id DESC LIMIT 1",
        (door,),
    ).fetchone() or (None, None)
    if announced is None or queued is None:
        raise RuntimeError(f"{door}: the task of event {n} began, but Airflow has no asset event for its run")
    return _Trip(announced.timestamp() - made, queued.timestamp() - made, started - made)


def _hops(trips: list[_Trip]) -> dict[str, float]:
    return {
        "event_to_asset_event": statistics.median(trip.announced for trip in trips),
        "asset_event_to_run": statistics.median(trip.queued - trip.announced for trip in trips),
        "run_to_task_start": statistics.median(trip.total - trip.queued for trip in trips),
    }


def _times(values: list[float]) -> str:
    return f"{number(statistics.median(values))} s (p90 {number(percentile(values, 0.9))} s)"
