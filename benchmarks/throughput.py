"""Parts B and D: how many events a second get from their source to the end of the runs that they cause.

Stock Airflow's watcher is timed until all events are asset events, which is the kinder of two ways to count:
the runs have not ended by then, and some events are linked to none. Windsock is timed until the last event is
settled, that is: claimed by a run, and the run has succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from field import Field
from memory import sampled
from report import Finding, number, progress

__all__ = ["measure_memory", "measure_throughput"]

TARGET = 100
_REST_EVENTS = 100
_WARM_UP = 5000
_MEMORY_EVENTS = 200_000
"""The memory target is for so many; a process takes some of them to reach its working size."""


def measure_throughput(field: Field, *, quick: bool) -> Iterator[Finding]:
    """Stock watcher, stock REST and Windsock, one after the other; then the memory over Windsock's part."""
    stock_events = 150 if quick else 400
    persisted, ended, linked = _stock_watcher(field, stock_events)
    stock = stock_events / persisted
    rest, hooks = _one_by_one(field)
    yield Finding(
        part="throughput",
        what=f"one HTTP request after the other, n={_REST_EVENTS}",
        baseline=f"stock REST {number(rest)}/s",
        windsock=f"webhook {number(hooks)}/s",
        ratio=hooks / rest,
    )
    events = 20_000 if quick else 200_000
    flood = _flood(field, events)
    windsock = events / flood.settled
    yield Finding(
        part="throughput",
        what=f"source → settled, {events:,} events",
        baseline=f"stock watcher {number(stock)}/s (to asset event)",
        windsock=f"{number(windsock)}/s",
        ratio=windsock / stock,
        target=f"≥ {TARGET}x stock",
        reached=windsock / stock >= TARGET,
        raw={
            "stock_events": stock_events,
            "stock_persisted_s": persisted,
            "stock_runs_ended_s": ended,
            "stock_events_linked_to_a_run": linked,
            "windsock_events": events,
            "windsock_logged_s": flood.logged,
            "windsock_settled_s": flood.settled,
            "windsock_runs": flood.runs,
        },
    )
    yield Finding(
        part="throughput",
        what="the same, until stock's last run ended",
        baseline=f"stock watcher {number(stock_events / ended)}/s, {linked} of {stock_events} in a run",
        windsock=f"{number(windsock)}/s, {events:,} of {events:,}",
        ratio=windsock / (stock_events / ended),
    )
    yield flood.memory
    yield _webhook_memory(field, quick=quick)


def measure_memory(field: Field, *, quick: bool) -> Iterator[Finding]:
    """Only the memory, of the trigger runner and of the API server."""
    yield _flood(field, 20_000 if quick else 200_000).memory
    yield _webhook_memory(field, quick=quick)


def _stock_watcher(field: Field, events: int) -> tuple[float, float, int]:
    """Seconds until all are asset events, seconds until the last run ended, and events that a run had."""
    progress(f"throughput: {events} events through the stock watcher")
    field.signal("stock-flood", 1, events)
    began = field.await_note("stock-flood-1-read")
    stored = (
        "SELECT count(*) FROM asset_event e JOIN asset a ON a.id = e.asset_id WHERE a.name = 'stock-flood'"
    )
    field.wait(lambda: field.count(stored) >= events, "stock's events to be stored", 120.0)
    persisted = time.time() - began
    field.wait(lambda: field.stock_quiet("stock_flood"), "stock's runs to end", 120.0, every=0.2)
    ended = max(
        run.end_date.timestamp() for run in field.stack.api.runs("stock_flood") if run.end_date is not None
    )
    linked = field.count(
        "SELECT count(DISTINCT x.event_id) FROM dagrun_asset_event x JOIN dag_run r ON r.id = x.dag_run_id"
        " WHERE r.dag_id = 'stock_flood'"
    )
    return persisted, ended - began, linked


def _one_by_one(field: Field) -> tuple[float, float]:
    """Requests a second of stock's REST API and of a webhook, in turns of ten."""
    progress(f"throughput: {_REST_EVENTS} events by REST, {_REST_EVENTS} by webhook")
    api = field.stack.api
    found = api.request("GET", "assets", params={"name_pattern": "stock-rest"})["assets"]
    asset_id = next(asset["id"] for asset in found if asset["name"] == "stock-rest")
    spent = {"rest": 0.0, "hooks": 0.0}
    for start in range(0, _REST_EVENTS, 10):
        began = time.perf_counter()
        for n in range(start, start + 10):
            api.request("POST", "assets/events", json={"asset_id": asset_id, "extra": {"n": n}})
        spent["rest"] += time.perf_counter() - began
        began = time.perf_counter()
        for n in range(start, start + 10):
            field.post("windsock-hooks", {"n": n})
        spent["hooks"] += time.perf_counter() - began
    field.wait(lambda: field.stock_quiet("stock_rest"), "stock's runs to end", 120.0, every=0.2)
    field.wait(lambda: field.settled("windsock_hooks", _REST_EVENTS), "the webhooks to settle", every=0.2)
    return _REST_EVENTS / spent["rest"], _REST_EVENTS / spent["hooks"]


@dataclass(frozen=True)
class _Flood:
    """What a flood of events did."""

    logged: float
    """Seconds from the first read until the last event was in the log."""
    settled: float
    """Seconds from the first read until the last event was settled."""
    runs: int
    memory: Finding
    """The trigger runner's."""


def _flood(field: Field, events: int) -> _Flood:
    """Send a small flood to warm up, then the one that counts."""
    progress(f"throughput: {events:,} events through Windsock")
    field.signal("windsock-flood", 1, _WARM_UP)
    field.wait(lambda: field.settled("windsock_flood", _WARM_UP), "the first flood to settle", every=0.25)
    warm = len(field.stack.api.runs("windsock_flood"))
    total = _WARM_UP + events
    with sampled(lambda: field.stack.children("triggerer")) as samples:
        field.signal("windsock-flood", 2, events)
        began = field.await_note("flood-2-read")
        field.wait(
            lambda: field.logged("windsock-flood") >= total, "the flood to be logged", 240.0, every=0.25
        )
        logged = time.time() - began
        field.wait(lambda: field.settled("windsock_flood", total), "the flood to settle", 240.0, every=0.25)
        settled = time.time() - began
    _check_count(field, "windsock_flood", total)
    runs = len(field.stack.api.runs("windsock_flood")) - warm
    what = f"trigger runner, {events:,} events"
    return _Flood(logged, settled, runs, samples.finding(what, aimed=events >= _MEMORY_EVENTS))


def _webhook_memory(field: Field, *, quick: bool) -> Finding:
    """The API server's memory while webhooks come, eight at a time."""
    before = _counted(field, "windsock_hooks")
    requests = 500 if quick else 3000
    progress(f"memory: {requests:,} webhooks")
    with (
        sampled(lambda: field.stack.processes("api-server")) as samples,
        ThreadPoolExecutor(8) as pool,
    ):
        began = time.perf_counter()
        list(pool.map(lambda n: field.post("windsock-hooks", {"n": n}), range(requests)))
        rate = requests / (time.perf_counter() - began)
    field.wait(
        lambda: field.settled("windsock_hooks", before + requests), "the webhooks to settle", every=0.2
    )
    _check_count(field, "windsock_hooks", before + requests)
    what = f"API server, {requests:,} webhooks ({number(rate)}/s, 8 at a time)"
    return samples.finding(what, aimed=not quick)


def _counted(field: Field, dag_id: str) -> int:
    return sum(int(path.read_text()) for path in (field.folder / "notes" / "counted" / dag_id).glob("[!.]*"))


def _check_count(field: Field, dag_id: str, events: int) -> None:
    """A number for events that did not all arrive, or arrived twice, would be worth nothing."""
    counted = _counted(field, dag_id)
    if counted != events:
        raise RuntimeError(f"{dag_id}: {events} events went in, the runs counted {counted}")
