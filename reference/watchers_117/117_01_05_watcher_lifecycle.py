"""117.1.5 Watcher Lifecycle Management

A Dag that takes deliveries from a folder, and a second one that says how its watcher is: alive, waiting, or
in trouble, and what to do about it.

- Understand watcher startup and shutdown: the reader starts in the triggerer once ``watcher_lifecycle`` is
  parsed and unpaused, goes on where the last one stopped, and stops when the Dag is paused or gone. Its
  ``heartbeat_at`` tells which it is.
- Handle watcher registration with scheduler: ``schedule=[deliveries]`` makes a subscription, the Dag's own
  place in the events. ``places`` lists it with what is pending, claimed and dead.
- Monitor watcher health status: ``inspect`` reads state, backlog and heartbeat from the log. Give its Dag a
  schedule such as ``*/5 * * * *`` and an alert.
- Debug watcher connection issues: a source that cannot be reached is tried again with growing pauses, in
  state ``backoff``; ``diagnose`` turns that into a sentence. The error names the remedy.
"""

from __future__ import annotations

import os
import time
from typing import Any

from airflow.sdk import Asset, dag, task

from windsock import claim, get_log
from windsock.watchers import FilesAssetWatcher

FOLDER = os.environ.get("WINDSOCK_REFERENCE_INBOX", "/data/inbox") + "/watcher_lifecycle"
TAGS = ["reference", "core", "intermediate", "success"]

deliveries = Asset(
    "watcher_lifecycle/deliveries",
    watchers=[FilesAssetWatcher(name="watcher_lifecycle", path=FOLDER, settle=1)],
)


def diagnose(state: str | None, silent: float, error: str | None) -> str:
    """What is wrong with a watcher, in one sentence; nothing if it is well."""
    if state is None:
        return "nobody has read it yet: is the triggerer running, and a Dag on its asset unpaused?"
    if state == "backoff":
        return f"its source cannot be read: {error}"
    if silent > 10:
        return (
            f"its reader was last heard of {silent:.0f} s ago: its Dags are paused, or the triggerer is down"
        )
    return ""


@dag(dag_id="117_01_05_watcher_lifecycle", schedule=[deliveries], tags=TAGS, doc_md=__doc__)
def watcher_lifecycle() -> None:
    @task
    def receive() -> list[str | None]:
        """The files of this run."""
        return [event.subject for event in claim(deliveries)]

    receive()


@dag(dag_id="117_01_05_watcher_lifecycle_health", schedule=None, tags=TAGS, doc_md=__doc__)
def watcher_health() -> None:
    @task
    def inspect(watcher: str) -> dict[str, Any]:
        """How the watcher is, and who gets its events."""
        log = get_log()
        health = next(health for health in log.health() if health.watcher == watcher)
        silent = time.time() - (health.heartbeat_at or 0)
        places = [
            {"dag": place.dag_id, "paused": place.paused, "pending": place.pending, "dead": place.dead}
            for place in log.subscriptions(watcher=watcher)
        ]
        trouble = diagnose(health.state, silent, health.error)
        return {"state": health.state, "backlog": health.backlog, "trouble": trouble, "places": places}

    inspect("watcher_lifecycle")


watcher_lifecycle()
watcher_health()
