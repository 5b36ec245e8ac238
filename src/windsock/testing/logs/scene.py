"""The stage on which the log's contract plays: fixtures, and the few verbs that every scene uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from windsock.events import Event, dedup_hash
from windsock.log.base import Log
from windsock.log.records import EventQuery, State, Write
from windsock.spec import WatcherSpec
from windsock.testing.clock import VirtualClock

__all__ = ["LogScene", "OpenLog", "event", "ids", "keys_of", "put", "states", "watch"]

OpenLog = Callable[[VirtualClock], Log]

SOURCE = "memory://suite"


class LogScene:
    """Fixtures of the suite; a test class defines ``open_log``."""

    @pytest.fixture
    def clock(self) -> VirtualClock:
        """The time that the log sees."""
        return VirtualClock()

    @pytest.fixture
    def open_log(self) -> OpenLog:
        """Open the log under test; each test starts with an empty one."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture open_log(): clock -> log")

    @pytest.fixture
    def log(self, open_log: OpenLog, clock: VirtualClock) -> Iterator[Log]:
        """The log under test."""
        log = open_log(clock)
        yield log
        log.close()


def event(id: object, *, key: str | None = None, data: Any = None) -> Event:
    """A small event."""
    return Event(id=str(id), source="suite", type="suite.tested", key=key, data=data)


def watch(
    log: Log, name: str, *dags: str, asset: str | None = "stock", source: str = SOURCE, **options: Any
) -> WatcherSpec:
    """Register a watcher and subscribe the Dags to it."""
    spec = WatcherSpec(name=name, kind="memory", **options)
    log.register(spec, source=source, asset=asset)
    for dag_id in dags:
        log.subscribe(name, dag_id)
    return spec


def put(
    log: Log, watcher: str, *names: object, keyed: bool = False, dedup: bool = False, flush: bool = False
) -> list[int]:
    """Append one event per name in one write; the seqs. ``keyed``: the name's first letter is the key."""
    events = [event(name, key=str(name)[0] if keyed else None) for name in names]
    hashes = keys_of(names) if dedup else ()
    [appended] = log.append([Write(watcher=watcher, events=events, dedup=hashes, flush=flush)])
    return [stored.seq for stored in appended.new if stored.seq is not None]


def keys_of(names: Iterable[object], scope: str = "suite") -> list[bytes]:
    """The dedup hashes of these names."""
    return [dedup_hash(scope, str(name)) for name in names]


def ids(events: Iterable[Event]) -> list[str]:
    """The ids of the events, in their order."""
    return [item.id for item in events]


def states(log: Log, dag_id: str) -> dict[str, State]:
    """Where each event stands for the Dag, by id."""
    return {record.event.id: record.state for record in log.events(EventQuery(dag_id=dag_id, limit=10_000))}
