"""The demo without Airflow: what it counts, shows, and keeps in its place."""

from __future__ import annotations

import datetime as dt
import io
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest
from rich.console import Console
from typer.testing import CliRunner

from windsock.cli import app
from windsock.cli.demo.doors import Parcel, parcels
from windsock.cli.demo.screen import LiveScreen, PlainScreen, describe
from windsock.cli.demo.site import DAGS, DemoError, Site
from windsock.cli.demo.trail import Row, Summary, Trail
from windsock.events import Event
from windsock.log.records import State, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec
from windsock.testing.airflow_api import AirflowApi, ApiError, DagRun
from windsock.testing.clock import VirtualClock

BEGAN = 1_700_000_000.0


class Airflow:
    """Says of runs, of what their tasks returned, and of asset events what a test tells it."""

    def __init__(self) -> None:
        self.returned: dict[str, list[Any]] = {}
        self.reach: list[tuple[int, int]] = []
        self.run_type = "asset_triggered"

    def runs(self, dag_id: str) -> list[DagRun]:
        """The runs of `orders`."""
        return [self.run(dag_id, run_id) for run_id in self.returned] if dag_id == "orders" else []

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """One run, which took half a minute."""
        queued = dt.datetime.fromtimestamp(BEGAN + 1, dt.UTC)
        end = queued + dt.timedelta(seconds=30)
        return DagRun(dag_id, run_id, "success", self.run_type, None, queued, queued, end)

    def request(self, method: str, path: str, *, params: Mapping[str, Any] | None = None) -> Any:
        """Asset events, or what a run's task returned."""
        if path == "assets/events":
            notes = [{"watcher": "orders", "first": first, "up_to": up_to} for first, up_to in self.reach]
            return {"asset_events": [{"extra": {"payload": {"windsock": note}}} for note in notes]}
        run_id = unquote(path.split("/")[3])
        if not self.returned[run_id]:
            raise ApiError(method, path, 404, "no such XCom entry")
        return {"value": self.returned[run_id]}


class Scene:
    """A log with the demo's orders, and an Airflow to go with it."""

    def __init__(self, log: SqliteLog, clock: VirtualClock) -> None:
        self.log, self.airflow = log, Airflow()
        self.trail = Trail(log, cast(AirflowApi, self.airflow), began=BEGAN)
        log.register(WatcherSpec(name="orders", kind="webhook"), source="webhook:orders", asset="demo/orders")
        log.subscribe("orders", "orders")
        clock.advance(1)

    def arrive(self, *names: str) -> None:
        """Orders arrive."""
        events = [Event(id=name, source="webhook:orders", type="order") for name in names]
        self.log.append([Write(watcher="orders", events=events)])

    def run(self, run_id: str, *, reject: str = "") -> None:
        """A run takes what is there and succeeds."""
        events = self.log.claim(["orders"], "orders", run_id)
        self.airflow.returned[run_id] = [event.as_dict() for event in events]
        for event in events:
            if event.id == reject:
                self.log.dead_letter("orders", run_id, event.seq or 0, "not wanted")
        self.log.settle("orders", run_id, ok=True)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Nothing has happened yet."""
    clock = VirtualClock(BEGAN)
    with closing(SqliteLog(":memory:", clock=clock)) as log:
        yield Scene(log, clock)


SENT = [Parcel("orders", name, {}) for name in ("a", "b", "c")]


def test_what_ended_once_is_clean(scene: Scene) -> None:
    """Done and set aside are both an end; every number comes from the log and from Airflow."""
    scene.arrive("a", "b", "c", "of somebody else")
    scene.airflow.reach = [(1, 4)]
    scene.run("run+1", reject="b")
    summary = scene.trail.summary(SENT, 12.34)
    assert summary == Summary(
        sent=3, logged=3, announced=3, runs=1, done=2, dead=1, lost=0, duplicated=0, seconds=12.3
    )
    assert summary.clean
    assert scene.trail.settled(SENT)


def test_what_never_arrived_or_never_ended_is_lost(scene: Scene) -> None:
    """An event that is not in the log, and one that no run has taken, are lost to the one who waited."""
    scene.arrive("a")
    scene.run("run-1")
    scene.arrive("b")
    summary = scene.trail.summary(SENT, 1)
    assert (summary.logged, summary.done, summary.lost, summary.clean) == (2, 1, 2, False)
    assert not scene.trail.settled(SENT)


def test_what_is_logged_twice_is_duplicated(scene: Scene) -> None:
    """One sent event that is two events in the log is counted."""
    scene.arrive("a", "b", "c", "a")
    scene.run("run-1")
    summary = scene.trail.summary(SENT, 1)
    assert (summary.lost, summary.duplicated, summary.clean) == (0, 1, False)


def test_what_two_runs_had_is_duplicated(scene: Scene) -> None:
    """One event that the tasks of two successful runs got is counted, whatever the log says."""
    scene.arrive("a", "b", "c")
    scene.run("run-1")
    scene.run("run-2")
    assert scene.trail.summary(SENT, 1).duplicated == 0
    scene.airflow.returned["run-2"] = ["c"]
    assert scene.trail.summary(SENT, 1).duplicated == 1


def test_announced_is_what_airflow_was_told_of(scene: Scene) -> None:
    """An event counts if an asset event covers it, or if a run that an asset event started took it."""
    scene.arrive("a", "b", "c")
    scene.airflow.reach = [(1, 2)]
    assert scene.trail.summary(SENT, 1).announced == 2
    scene.run("run-1")
    assert scene.trail.summary(SENT, 1).announced == 3
    scene.airflow.run_type = "manual"
    assert scene.trail.summary(SENT, 1).announced == 2


def test_rows_follow_an_event_to_its_end(scene: Scene) -> None:
    """A row says who has the event, why it was set aside, and how long that took."""
    scene.arrive("a", "b")
    assert [(row.name, row.door, row.state, row.seconds) for row in scene.trail.rows(10)] == [
        ("b", "webhook", State.PENDING, None),
        ("a", "webhook", State.PENDING, None),
    ]
    scene.run("run-1", reject="b")
    rejected, done = scene.trail.rows(10)
    assert (done.run_id, done.state, done.reason, done.seconds) == ("run-1", State.DONE, None, 30.0)
    assert describe(rejected) == "dead: not wanted"


def test_parcels_are_new_each_time_and_go_to_the_demos_dags() -> None:
    """Twelve for each door, for every Dag some, and no name is used a second time."""
    first, second = parcels(), parcels()
    assert [parcel.door for parcel in first].count("file") == 12
    assert [parcel.door for parcel in first].count("webhook") == 12
    assert {parcel.watcher for parcel in first} == set(DAGS)
    assert len({parcel.name for parcel in [*first, *second]}) == 48


def row(seq: int, name: str, state: State, **fields: Any) -> Row:
    """A row about which nothing else matters."""
    blank = {"dag_id": "orders", "run_id": None, "attempts": 0, "reason": None, "seconds": None}
    return Row(
        seq=seq, name=name, state=state, door="webhook", received_at=time.time(), **cast(Any, blank | fields)
    )


def test_plain_lines_are_said_once() -> None:
    """Without a terminal each step of each event is one line, and a repeated look adds none."""
    output = io.StringIO()
    screen = PlainScreen(Console(file=output, width=80, highlight=False))
    waiting = [row(2, "b", State.PENDING), row(1, "a", State.PENDING, attempts=1)]
    screen.show(waiting, "")
    screen.show(waiting, "")
    screen.show([waiting[0], row(1, "a", State.DONE, run_id="run-1", seconds=3.21)], "")
    lines = [line.split(None, 2)[2] for line in output.getvalue().splitlines()]
    assert lines == ["a  pending, run 1 failed", "b  pending", "a  orders run-1  done  3.2 s"]


def test_the_live_table_fits_a_small_terminal() -> None:
    """In 80 columns no line is wrapped and the narrow columns stay whole, however long the names are."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    screen = LiveScreen(console)
    long = row(1, "n" * 100, State.DEAD, reason="r" * 300, seconds=12.0, run_id="run-1")
    with console.capture() as capture:
        console.print(screen._table([long, row(2, "b", State.CLAIMED)]))
    lines = capture.get().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert all(word in lines[2].split("  ") for word in ("webhook", "orders", "dead: …", "12.0"))
    assert "claimed" in lines[3]


def test_a_place_is_used_by_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same place is refused with the remedy, and may start when the first has ended."""
    with (
        Site(tmp_path / "demo").open(),
        pytest.raises(DemoError, match="--home"),
        Site(tmp_path / "demo").open(),
    ):
        pass
    with Site(tmp_path / "demo").open():
        pass


def test_a_place_keeps_its_secret_to_itself(tmp_path: Path) -> None:
    """The webhooks' secret is the same at every start, readable by its owner only, and ignored by git."""
    site = Site(tmp_path / "demo")
    with site.open():
        secret = site.secret()
    assert len(secret) == 24
    assert Site(tmp_path / "demo").secret() == secret
    assert (site.home / "webhook-secret").stat().st_mode & 0o777 == 0o600
    assert (site.home / ".gitignore").read_text() == "*\n"


def test_a_place_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    """A home that is a file ends the command with exit code 2 and a sentence."""
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--once", "--home", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert "name another place with --home" in result.stderr


def test_json_is_for_once() -> None:
    """`--json` without `--once` is refused instead of being ignored."""
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 2
    assert "--once" in result.stderr
