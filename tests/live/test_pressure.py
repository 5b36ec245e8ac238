"""The limit for all watchers together on a real Airflow: who matters less stops first, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.field import shut
from windsock.log import Log, open_log
from windsock.testing.stack import AirflowStack

pytestmark = pytest.mark.live

DAGS = """
import fcntl
from pathlib import Path

from airflow.sdk import Asset, dag, task
from windsock import claim
from windsock.watchers import FilesAssetWatcher


def takes(name, priority):
    folder = Path({folder!r}) / name
    files = FilesAssetWatcher(name=name, path=str(folder), settle=0.1, priority=priority)
    asset = Asset(name, watchers=[files])

    @dag(dag_id=name, schedule=[asset], max_active_runs=1)
    def made():
        @task
        def take():
            events = claim(asset)
            with (folder.parent / "gate").open("a") as gate:
                fcntl.flock(gate, fcntl.LOCK_SH)
            for event in events:
                (folder.parent / f"had-{{event.data['name']}}").touch()

        take()

    made()


takes("views", 0)
takes("payments", 10)
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[AirflowStack]:
    """An Airflow in which ten unsettled events are too many."""
    for name in ("dags", "views", "payments"):
        (tmp_path / name).mkdir()
    (tmp_path / "dags" / "pressed.py").write_text(DAGS.format(folder=str(tmp_path)))
    config = {"AIRFLOW__WINDSOCK__HIGH_WATER_TOTAL": "10", "AIRFLOW__WINDSOCK__LOW_WATER_TOTAL": "4"}
    with AirflowStack(tmp_path / "stack", tmp_path / "dags", config=config) as stack:
        yield stack


@pytest.fixture
def log(stack: AirflowStack) -> Iterator[Log]:
    """The log that Windsock makes by itself when none is named."""
    log = open_log(f"sqlite:///{stack.airflow_home / 'windsock.db'}")
    yield log
    log.close()


def test_sources_stop_by_priority_and_all_arrives(stack: AirflowStack, log: Log, tmp_path: Path) -> None:
    """At the total the less important source stops and says why; the other has more room; then all go on."""
    dropped: set[str] = set()

    def drop(watcher: str, count: int) -> None:
        for _ in range(count):
            name = f"{watcher}-{len(dropped)}.txt"
            dropped.add(name)
            (tmp_path / watcher / name).write_text("x")

    def state(watcher: str) -> str | None:
        return next(one.state for one in log.health() if one.watcher == watcher)

    def backlog(watcher: str) -> int:
        return log.backlog([watcher])

    for dag_id in ("views", "payments"):
        stack.wait_for(lambda dag_id=dag_id: log.subscriptions(dag_id=dag_id), 120, f"{dag_id}'s place")
    with shut(tmp_path / "gate"):
        drop("views", 10)
        stack.wait_for(lambda: state("views") == "paused", 60, "the less important source to stop")
        drop("views", 1)  # may be read: what a source was waiting for when it was paused is taken
        drop("payments", 1)
        stack.wait_for(lambda: backlog("payments") == 1, 60, "the more important one, which has room")
        stack.wait_for(lambda: state("payments") == "paused", 60, "the more important source to stop, too")
        drop("views", 9)
        drop("payments", 5)
        [views] = [one for one in log.health() if one.watcher == "views"]
        assert "high_water_total 10" in (views.error or "")
        assert backlog("views") in (10, 11)

    def had() -> set[str]:
        return {path.name.removeprefix("had-") for path in tmp_path.glob("had-*")}

    stack.wait_for(lambda: had() == dropped, 180, "every file")
    stack.wait_for(lambda: log.backlog(["views", "payments"]) == 0, 60, "all to be settled")
    stack.wait_for(lambda: {state("views"), state("payments")} == {"running"}, 60, "the sources to go on")
