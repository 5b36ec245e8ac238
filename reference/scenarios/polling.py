"""117.1.4: the shop that is asked or that tells, and what each way of waiting for it costs."""

from __future__ import annotations

import datetime as dt
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from windsock.testing.chart import Figures
from windsock.testing.processes import LOOPBACK
from windsock.testing.scenarios import Runs, scenario, service
from windsock.testing.stage import Stage

NAME = "117_01_04_event_vs_polling"
ORDERS = ("A1", "B2")
WAYS = {"": "watcher", "_1s": "sensor, every 1 s", "_10s": "sensor, every 10 s"}


class Shop(ThreadingHTTPServer):
    """An API that says when an order was shipped, and counts how often it is asked, and by whom."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Answer)
        self.shipped: dict[str, float] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self.counting = threading.Lock()

    @property
    def env(self) -> dict[str, str]:
        """The Connection under which the Dags find it."""
        connection = {"conn_type": "http", "host": LOOPBACK, "port": self.server_address[1]}
        return {"AIRFLOW_CONN_REFERENCE_SHOP_API": json.dumps(connection)}


class _Answer(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        """`/orders/<number>`."""
        order = self.path.rpartition("/")[2]
        with self.server.counting:
            self.server.asked[self.headers["User-Agent"], order] += 1
        body = json.dumps({"order": order, "shipped_at": self.server.shipped.get(order)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the counts are what matters."""


@service
@contextmanager
def shop(folder: Path) -> Iterator[Shop]:
    """The shop, while scenarios are played."""
    with Shop() as server:
        thread = threading.Thread(target=server.serve_forever, name="shop")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@scenario(
    NAME,
    events=len(ORDERS),
    runs=Runs(1, len(ORDERS)),
    others={"_1s": Runs(2, 2), "_10s": Runs(2, 2)},
    alone=True,
)
def event_vs_polling(stage: Stage) -> None:
    """Two orders are shipped, one after the other; sensors have asked all the time, the watcher is told."""
    server: Shop = stage.service("shop")
    began = time.time()
    for order in ORDERS:
        for suffix in ("_1s", "_10s"):
            stage.trigger(suffix, {"order": order})
    asking = [(suffix.removeprefix("_"), order) for suffix in ("_1s", "_10s") for order in ORDERS]
    stage.wait(lambda: all(server.asked[who] >= 2 for who in asking), "every sensor to have asked twice")
    stage.check(stage.runs() == [], "no run of the watcher's Dag while nothing has happened")
    happened = time.time()
    for order in ORDERS:
        # Not both at once: a sensor that asks seldom may be lucky or not.
        asked = server.asked["1s", ORDERS[-1]]
        server.shipped[order] = time.time()
        stage.hook("event_vs_polling", {"order": order, "shipped_at": server.shipped[order]})
        if order != ORDERS[-1]:
            stage.wait(partial(_asked, server, asked + 5), "five seconds to pass")
    stage.wait(
        lambda: all(len(_latencies(stage, suffix)) == len(ORDERS) for suffix in WAYS),
        "both orders to arrive in every way",
    )
    figures = _measure(stage, server, began, happened)
    stage.publish(f"watchers_117/{NAME}.svg", figures.svg())
    stage.publish(
        f"watchers_117/{NAME}.md",
        f"# {figures.title}\n\n{figures.markdown()}\n![the same as bars]({NAME}.svg)\n\n"
        f"Measured by `make verify` on {dt.datetime.now(dt.UTC):%d %B %Y}, on a machine that did other things"
        " too. Workers are counted until the first shipment, the latency is the median of the two orders.\n",
    )
    stage.notes.append(f"{figures.title}\n{figures.markdown()}")
    held = {label: values[0] for label, values in figures.rows}
    stage.check(held.pop(WAYS[""]) == 0, "the watcher to hold no worker while nothing has happened")
    stage.check(all(seconds > 0 for seconds in held.values()), f"sensors to hold workers, not {held}")


def _asked(server: Shop, often: int) -> bool:
    return server.asked["1s", ORDERS[-1]] >= often


def _latencies(stage: Stage, suffix: str) -> list[float]:
    return [seconds for run in stage.returned("arrived", suffix) for seconds in run]


def _requests(stage: Stage, server: Shop, suffix: str) -> int:
    """How often a sensor asked the shop; or, the other way round, how often the shop called the watcher."""
    if suffix:
        return sum(server.asked[suffix.removeprefix("_"), order] for order in ORDERS)
    received = stage.health("event_vs_polling")
    return received.logged + received.duplicates + received.filtered


def _measure(stage: Stage, server: Shop, began: float, happened: float) -> Figures:
    rows = []
    for suffix, label in WAYS.items():
        held = sum(
            max(0.0, min(task.end_date.timestamp(), happened) - max(task.start_date.timestamp(), began))
            for task in stage.tasks(suffix)
            if task.start_date and task.end_date
        )
        requests = _requests(stage, server, suffix)
        latency = statistics.median(_latencies(stage, suffix))
        rows.append((label, [round(held, 1), requests, round(latency, 1)]))
    return Figures(
        f"Waiting {happened - began:.0f} s for the first of two shipments",
        [("workers held while waiting", "worker-seconds"), ("requests made", "count"), ("latency", "s")],
        rows,
    )
