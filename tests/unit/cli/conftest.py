"""A log file with a little history, and the command line pointed at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from windsock.cli import app
from windsock.events import Category, DeadLetter, Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock

RUN = "asset_triggered__2026-11-15T09:16:53.513226+00:00_QEHh3SGe"
EARLIER = 1_700_000_000.0

Windsock = Callable[..., Result]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the caller's log nor the caller's terminal changes what is printed."""
    monkeypatch.delenv("WINDSOCK_LOG", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """Two watchers. Of the orders one is done, one rejected, one waits; of the files one has no Dag."""
    path, clock = tmp_path / "windsock.db", VirtualClock(EARLIER)
    with closing(SqliteLog(path, clock=clock)) as log:
        orders = WatcherSpec(name="orders", kind="webhook", options={"auth": "none"}, max_attempts=1)
        log.register(orders, source="webhook:orders", asset="shop/orders")
        log.register(WatcherSpec(name="files", kind="files"), source="file:///in", asset="in")
        log.subscribe("orders", "fulfil")
        log.heartbeat("webhook:orders", "host:1", "running")
        log.heartbeat("file:///in", "host:1", "backoff", error="the directory is not there")
        log.append([Write(watcher="orders", events=[_order("o1", "kite"), _order("o2", "brick")])])
        _, brick = log.claim(["orders"], "fulfil", RUN)
        log.dead_letter("fulfil", RUN, brick.seq or 0, "bricks do not fly")
        log.settle("fulfil", RUN, ok=True)
        clock.advance(1000)
        log.append([Write(watcher="orders", events=[_order("o3", "100% kite")])])
        file = Event(id="f1", source="file:///in", type="windsock.file.created", subject="[bold]a.csv")
        broken = DeadLetter(stage="parse", category=Category.INVALID, reason="not JSON", body=b"\xff\x00")
        log.append([Write(watcher="files", events=[file], dead=[broken])])
    return path


@pytest.fixture
def windsock(log_file: Path) -> Windsock:
    """Runs a command on that log."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--log", f"sqlite:///{log_file}"])

    return run


@pytest.fixture
def windsock_json(windsock: Windsock) -> Callable[..., Any]:
    """Runs a command on that log; the JSON on its standard output."""

    def run(*arguments: str) -> Any:
        result = windsock(*arguments)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run


def _order(id: str, item: str) -> Event:
    return Event(id=id, source="webhook:orders", type="order", key=item, data={"item": item})
