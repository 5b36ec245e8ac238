"""state(): a subject's events, folded into what is true now or was true then.

::

    def balance(state, event):
        return (state or 0) + event.data["amount"]

    state("account-17", balance, log=log)
    state("account-17", balance, log=log, at=datetime(2026, 1, 31, tzinfo=UTC))

Every ``snapshot_every`` events the state is stored, and the next call goes on from there. A snapshot counts
for the reducer's name and version only, so a changed reducer begins at the first event again. What stands in
the log is the truth, a snapshot only saves time: with and without them the state is the same.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.subjects import Snapshot
from windsock.sourcing.base import code_version, function_name, plain

__all__ = ["SNAPSHOT_EVERY", "Reducer", "require_history", "state"]

Reducer = Callable[[Any, Event], Any]
"""(state so far, event) → state; the state is plain JSON, ``initial`` at first."""

SNAPSHOT_EVERY = 100


def state(
    subject: str,
    reducer: Reducer,
    *,
    log: Log,
    initial: Any = None,
    at: int | dt.datetime | None = None,
    rebuild: bool = False,
    snapshot_every: int = SNAPSHOT_EVERY,
    name: str | None = None,
    version: str | int | None = None,
) -> Any:
    """Fold a subject's events, oldest first; ``initial`` if it has none.

    :param at: as of a position in the log (a seq, included), or of a time at which events had been received
    :param rebuild: begin at the first event, and drop the snapshots that there were
    :param snapshot_every: store the state after so many events more; 0 never does
    :param name: of the reducer, for its snapshots; by default its module and name. A lambda, an inner
        function or an object has no name that lasts, and without one is folded from the first event
    :param version: of the reducer; by default made of its own code. Say it when what it calls has changed
    """
    up_to, until = _bounds(at)
    name = name or function_name(reducer)
    if name is None or snapshot_every < 1:
        value, read = _fold(log, subject, reducer, copy.deepcopy(initial), 0, up_to, until)
        if not read.count:
            require_history(log)
        return value
    code = code_version(reducer, initial) if version is None else code_version(None, str(version), initial)
    if rebuild:
        if at is None:
            log.drop_snapshots(subject, name)
        found = None
    else:
        found = log.snapshot(subject, name, code, up_to=up_to, until=until)
    start = copy.deepcopy(initial) if found is None else msgspec.json.decode(found.state)
    after, known = (0, 0) if found is None else (found.seq, found.events)
    value, read = _fold(log, subject, reducer, start, after, up_to, until)
    if not known and not read.count:
        require_history(log)
    if at is None and read.count >= snapshot_every:
        snapshot = Snapshot(
            subject=subject,
            reducer=name,
            version=code,
            seq=read.last,
            events=known + read.count,
            last_at=max(read.last_at, found.last_at if found else 0.0),
            state=plain(value, f"the state that {name} made of {subject!r}"),
        )
        log.put_snapshot(snapshot, after=after, folded=read.count)
    return value


class _Read(msgspec.Struct):
    """How far a fold came."""

    count: int = 0
    last: int = 0
    last_at: float = 0.0


def _fold(
    log: Log,
    subject: str,
    reducer: Reducer,
    value: Any,
    after: int,
    up_to: int | None,
    until: float | None,
) -> tuple[Any, _Read]:
    read = _Read()
    for stored in log.subject_events(subject, after=after, up_to=up_to, until=until):
        event = stored.event
        try:
            value = reducer(value, event)
        except Exception as error:
            error.add_note(f"the reducer failed on event {event.id!r} (seq {event.seq}) of {subject!r}")
            raise
        read.count += 1
        read.last, read.last_at = event.seq or 0, max(read.last_at, stored.received_at)
    return value, read


def _bounds(at: int | dt.datetime | None) -> tuple[int | None, float | None]:
    if at is None or (isinstance(at, int) and not isinstance(at, bool)):
        return at, None
    if isinstance(at, dt.datetime) and at.tzinfo is not None:
        return None, at.timestamp()
    raise WindsockError(f"at={at!r}: name a seq, or a time with a time zone")


def require_history(log: Log) -> None:
    """Refuse to answer from a log in which no event can be found by its subject."""
    if not any(spec.history for spec in log.watchers()):
        raise WindsockError(
            "no watcher of this log keeps a history: declare it with history=True, so that its events are "
            "found by their subject"
        )
