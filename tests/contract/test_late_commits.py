"""On PostgreSQL an append may commit after another that has larger positions: nothing is missed for it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from windsock.events import Event
from windsock.log.postgres import PostgresLog
from windsock.log.records import Write
from windsock.log.transaction import known
from windsock.sourcing import Projection, state
from windsock.spec import WatcherSpec
from windsock.testing.postgres import PostgresServer

PATIENCE = 60.0


class Scene:
    """A log with two watchers, and an append to one of them that takes its time to commit."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.log = PostgresLog(url)
        for name in ("quick", "slow"):
            self.log.register(WatcherSpec(name=name, kind="memory", history=True), source="s")

    def tell(self, id: str) -> None:
        """An event that commits at once."""
        self.log.append([Write(watcher="quick", events=[told(id)])])

    @contextmanager
    def slowly(self, id: str) -> Iterator[None]:
        """An append that has its position already and commits at the end of the block."""
        with self.log._transaction() as tx:
            watcher = known(tx.row("lock_watcher", name="slow"), "slow")
            [seq] = tx.take_seqs(1)
            event = told(id)
            tx.insert_events(watcher["id"], [event], [event.encode()], [seq], 0.0, [event.subject])
            tx.run("close_open_batch", id=watcher["id"])
            tx._db.execute("UPDATE watchers SET last_seq = %s WHERE name = 'slow'", (seq,))  # type: ignore[attr-defined]
            yield

    def wait_for_a_waiter(self) -> None:
        """Until some session waits for the slow append."""
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self.url, autocommit=True) as db:
            while not db.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                assert time.monotonic() < deadline, "nobody waited for the append"


def told(id: str) -> Event:
    """An event of the subject ``a``."""
    return Event(id=id, source="s", type="told", subject="a")


def ids(value: Any, event: Event) -> Any:
    """The order of the events."""
    return [*(value or []), event.id]


@pytest.fixture
def scene(postgres: PostgresServer) -> Iterator[Scene]:
    """On a database of its own."""
    scene = Scene(postgres.url(f"late{uuid.uuid4().hex}"))
    yield scene
    scene.log.close()


def test_a_snapshot_does_not_hide_what_commits_late(scene: Scene) -> None:
    """The state that was folded without it is not kept, so the next call has it, in its place."""
    with ThreadPoolExecutor(1) as pool:
        with scene.slowly("first"):
            scene.tell("second")
            early = pool.submit(state, "a", ids, log=scene.log, snapshot_every=1)
            scene.wait_for_a_waiter()
        assert early.result(PATIENCE) == ["second"]
    assert state("a", ids, log=scene.log, snapshot_every=1) == ["first", "second"]
    assert state("a", ids, log=scene.log) == ["first", "second"]


def test_a_read_model_waits_for_what_commits_late(scene: Scene) -> None:
    """Its position never passes an event that is not there yet."""
    view = Projection("v", ids, log=scene.log)
    with ThreadPoolExecutor(1) as pool:
        with scene.slowly("first"):
            scene.tell("second")
            update = pool.submit(view.update)
            scene.wait_for_a_waiter()
        assert update.result(PATIENCE).events == 2
    assert view.get("a") == ["first", "second"]
