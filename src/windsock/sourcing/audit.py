"""audit(): everything that happened to a subject, who said so, and what each Dag made of it."""

from __future__ import annotations

from typing import Any

import msgspec

from windsock.events import Event
from windsock.log import Log
from windsock.log.records import DeadRecord, PlaceTrace
from windsock.log.subjects import Move
from windsock.sourcing.fold import require_history

__all__ = ["AuditEntry", "DagRecord", "audit"]


class DagRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one Dag made of an event."""

    dag_id: str
    state: str
    run_id: str | None
    run_state: str | None
    attempts: int
    claimed_at: float | None
    settled_at: float | None
    replay: str | None
    reason: str | None = None
    """Why it was set aside, if it was."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a subject, and what came of it."""

    seq: int
    event_id: str
    type: str
    source: str
    """Who said it."""
    watcher: str
    time: str | None
    """When it happened, as its source says."""
    received_at: float
    correlation: str | None
    cause: str | None
    data: Any
    dags: list[DagRecord]
    moves: list[Move]
    """What state machines made of it."""


def audit(subject: str, *, log: Log, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
    """The events of a subject, oldest first, up to ``limit`` of them behind the position ``after``."""
    moves: dict[int | None, list[Move]] = {}
    for move in reversed(log.moves(subject=subject, limit=100_000)):
        moves.setdefault(move.seq, []).append(move)
    entries: list[AuditEntry] = []
    for stored in log.subject_events(subject, after=after):
        if len(entries) >= limit:
            break
        event = stored.event
        value = event.as_dict()
        entries.append(
            AuditEntry(
                seq=event.seq or 0,
                event_id=event.id,
                type=event.type,
                source=event.source,
                watcher=stored.watcher,
                time=value["time"],
                received_at=stored.received_at,
                correlation=event.correlation,
                cause=event.cause,
                data=value["data"],
                dags=_dags(log, event, stored.watcher),
                moves=moves.get(event.seq, []),
            )
        )
    if not entries:
        require_history(log)
    return entries


def _dags(log: Log, event: Event, watcher: str) -> list[DagRecord]:
    places = [
        place
        for trace in log.trace(event.id, watcher=watcher)
        if trace.event.seq == event.seq
        for place in trace.places
    ]
    letters = log.dead_letters(event_id=event.id, watcher=watcher, state=None) if places else []
    reasons = {letter.dag_id: letter for letter in reversed(letters) if letter.seq == event.seq}
    return [_record(place, reasons.get(place.dag_id)) for place in places]


def _record(place: PlaceTrace, letter: DeadRecord | None) -> DagRecord:
    copied = ("dag_id", "run_id", "run_state", "attempts", "claimed_at", "settled_at", "replay")
    return DagRecord(
        **{name: getattr(place, name) for name in copied},
        state=place.state.value,
        reason=letter.reason if letter else None,
    )
