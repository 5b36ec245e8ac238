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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg

from windsock.testing.chart import Figures
from windsock.testing.processes import LOOPBACK
from windsock.testing.scenarios import Runs, scenario, service
from windsock.testing.stage import Stage

NAME = "117_01_04_event_vs_polling"
ORDERS = ("A1", "B2")
WAYS = {"": "watcher", "_poke": "sensor, poke", "_reschedule": "sensor, reschedule"}
POKES = 3
"""So often is the shop asked for each order before anything happens."""


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
    others={"_poke": Runs(2, 2), "_reschedule": Runs(2, 2)},
    alone=True,
)
def event_vs_polling(stage: Stage) -> None:
    """Two orders are shipped after a while; sensors have asked all the time, the watcher is told."""
    server: Shop = stage.service("shop")
    began = time.time()
    for order in ORDERS:
        for suffix in ("_poke", "_reschedule"):
            stage.trigger(suffix, {"order": order})
    asking = [(mode, order) for mode in ("poke", "reschedule") for order in ORDERS]
    stage.wait(lambda: all(server.asked[who] >= POKES for who in asking), "the sensors to have asked a while")
    stage.check(stage.runs() == [], "no run of the watcher's Dag while nothing has happened")
    happened = time.time()
    server.shipped = dict.fromkeys(ORDERS, happened)
    for order in ORDERS:
        stage.hook("event_vs_polling", {"order": order, "shipped_at": happened})
    stage.wait(
        lambda: all(len(stage.returned("arrived", suffix)) == len(ORDERS) for suffix in WAYS),
        "both orders to arrive in every way",
    )
    figures = _measure(stage, server, began, happened)
    stage.publish(f"watchers_117/{NAME}.svg", figures.svg())
    stage.publish(
        f"watchers_117/{NAME}.md",
        f"# {figures.title}\n\n{figures.markdown()}\n![the same as bars]({NAME}.svg)\n\nMeasured by"
        f" `make verify` on {dt.datetime.now(dt.UTC):%d %B %Y}: two orders, sensors that ask every five seconds.\n",
    )
    stage.notes.append(f"{figures.title}\n{figures.markdown()}")
    held = dict(zip(WAYS, (values[0] for _, values in figures.rows), strict=True))
    stage.check(held[""] == 0, "the watcher to hold no worker while nothing has happened")
    stage.check(0 < held["_reschedule"] < held["_poke"], f"sensors to hold workers, not {held}")


def _measure(stage: Stage, server: Shop, began: float, happened: float) -> Figures:
    rows = []
    for suffix, label in WAYS.items():
        held = sum(max(0.0, min(end, happened) - max(start, began)) for start, end in _at_work(stage, suffix))
        mode = suffix.removeprefix("_")
        requests = sum(server.asked[mode, order] for order in ORDERS) if mode else len(ORDERS)
        latency = statistics.median(stage.returned("arrived", suffix))
        rows.append((label, [round(held, 1), requests, round(latency, 1)]))
    waited = happened - began
    return Figures(
        f"Waiting {waited:.0f} s for two shipments",
        [("workers held while waiting", "worker-seconds"), ("requests made", "count"), ("latency", "s")],
        rows,
    )


def _at_work(stage: Stage, suffix: str) -> list[tuple[float, float]]:
    """When a worker was busy with a task of the Dag; a rescheduled sensor has been so many times."""
    with psycopg.connect(stage.world.database) as airflow:
        again = airflow.execute(
            "SELECT task_instance.id::text, task_reschedule.start_date, task_reschedule.end_date"
            " FROM task_reschedule JOIN task_instance ON task_instance.id = task_reschedule.ti_id"
            " WHERE task_instance.dag_id = %s",
            [stage.dag_id(suffix)],
        ).fetchall()
        last = airflow.execute(
            "SELECT id::text, start_date, end_date FROM task_instance WHERE dag_id = %s"
            " AND start_date IS NOT NULL AND end_date IS NOT NULL",
            [stage.dag_id(suffix)],
        ).fetchall()
    rested = {task: max(end for other, _, end in again if other == task) for task, _, _ in again}
    spans = [(start, end) for _, start, end in again]
    spans += [(max(start, rested.get(task, start)), end) for task, start, end in last]
    return [(start.timestamp(), end.timestamp()) for start, end in spans]
