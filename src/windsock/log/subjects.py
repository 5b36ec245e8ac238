"""What the log keeps for event sourcing: events by subject, snapshots, state machines, sagas, read models.

Two things hold here beside what :mod:`windsock.log.base` says. Events of one watcher become visible in the
order of their seq, but an append to another watcher may commit later with smaller ones; whoever remembers
how far it is (a snapshot, a read model) does so only where nothing can come in between any more. And no user
code runs inside a transaction: what was decided outside is stored only if what it was decided on still holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from windsock.events import Event, WindsockError
from windsock.log.records import StoredEvent

__all__ = [
    "SNAPSHOTS",
    "Move",
    "SagaRecord",
    "SagaStep",
    "Snapshot",
    "Standing",
    "SubjectLog",
    "View",
    "ViewGone",
    "identity",
    "indexed",
]

SNAPSHOTS = 10
"""Snapshots that are kept of one subject and reducer."""

_INDEXED_BYTES = 1000


def indexed(text: str) -> str:
    """The text as it is looked up: itself, or if it is too long for an index its beginning and a digest."""
    if len(text) * 4 <= _INDEXED_BYTES or len(text.encode("utf-8", "replace")) <= _INDEXED_BYTES:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
    return f"{text[:100]}…{digest}"


def identity(event: Event) -> str:
    """What tells an event from every other, however often it is stored or delivered: its source and id."""
    return indexed(f"{event.source}#{event.id}")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A subject's state after its events up to ``seq``."""

    subject: str
    reducer: str
    version: str
    """Of the reducer; a snapshot of another version is never used."""
    seq: int
    events: int
    """How many events are folded into it."""
    last_at: float
    """When the latest of them was received."""
    state: bytes


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state in which a machine has a subject."""

    machine: str
    subject: str
    state: str
    moves: int
    """How often it moved."""
    at: float
    """Since when."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine made of an event: it moved a subject, or refused the event."""

    machine: str
    subject: str
    event: str
    """The event's :func:`identity`: a machine moves once for it."""
    event_id: str
    event_type: str
    seq: int | None
    delivery: str = ""
    """The replay or redrive that brought it, if one did."""
    before: str
    after: str | None
    """None if the event was refused."""
    reason: str = ""
    """Why it was refused."""
    at: float = 0.0
    repeated: bool = False
    """Whether this was decided earlier, by a run before this one or an earlier try."""


class SagaStep(msgspec.Struct, frozen=True, kw_only=True):
    """How far a step of a saga is."""

    name: str
    state: str
    """``started``, ``done``, ``failed``; ``undoing``, ``stuck`` (its compensation failed), ``undone``."""
    attempts: int = 0
    undo_attempts: int = 0
    result: Any = None
    error: str | None = None
    at: float = 0.0


class SagaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far a saga is."""

    saga: str
    id: str
    state: str
    """``running`` ──▶ ``done``, or ``running`` ──▶ ``compensating`` ──▶ ``compensated``."""
    epoch: int
    """Counts who took the saga up: an older one can store nothing any more."""
    delivery: str = ""
    data: Any = None
    error: str | None = None
    """Why it was compensated, or is to be."""
    started_at: float = 0.0
    updated_at: float = 0.0
    steps: tuple[SagaStep, ...] = ()

    def step(self, name: str) -> SagaStep | None:
        """One step, if it was ever started."""
        return next((step for step in self.steps if step.name == name), None)


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A read model: rows by key, made of the events up to ``position``."""

    name: str
    generation: int
    """Grows with each rebuild; only the live one is read."""
    version: str
    position: int
    events: int
    live: bool
    updated_at: float


class ViewGone(WindsockError):
    """A generation of a read model was replaced by another process."""


class SubjectLog(Protocol):
    """The part of the :class:`~windsock.log.base.Log` that event sourcing stands on."""

    # events by subject

    def subject_events(
        self, subject: str, *, after: int = 0, up_to: int | None = None, until: float | None = None
    ) -> Iterator[StoredEvent]:
        """A subject's events, oldest first, read in pages; ``until`` leaves out what was received later.

        Only events of watchers with ``history`` are found by their subject.
        """
        ...

    def index_subjects(self, watcher: str) -> int:
        """Let the watcher's events that came before it had a ``history`` be found, too; how many.

        Drops the snapshots of their subjects.
        """
        ...

    def horizon(self, watchers: Sequence[str] | None = None) -> int:
        """A seq up to which every event of these watchers, or of all, is there. Waits for running appends."""
        ...

    # snapshots

    def snapshot(
        self,
        subject: str,
        reducer: str,
        version: str,
        *,
        up_to: int | None = None,
        until: float | None = None,
    ) -> Snapshot | None:
        """The latest snapshot of this version that has nothing in it from after ``up_to`` or ``until``."""

    def put_snapshot(self, snapshot: Snapshot, *, after: int, folded: int) -> bool:
        """Keep a snapshot that was made of the one at ``after`` (0 for none) and ``folded`` events more.

        Refused (False) if an event has come in between, or the one that it was made of is gone. Drops what
        is older than the last :data:`SNAPSHOTS`, and other versions.
        """
        ...

    def drop_snapshots(self, subject: str, reducer: str) -> int:
        """Forget the snapshots of one reducer; how many there were."""
        ...

    def forget_subject(self, subject: str) -> int:
        """Forget what was made of a subject: snapshots, standings, moves. Its events stay. How many rows."""
        ...

    # state machines

    def standing(self, machine: str, subject: str) -> Standing | None:
        """Where a machine has a subject, if it ever moved."""

    def standings(
        self, machine: str, *, state: str | None = None, after: str = "", limit: int = 100
    ) -> list[Standing]:
        """Subjects of a machine, all or those in one state, by name."""
        ...

    def put_move(self, move: Move, *, expected: int) -> Move | None:
        """Store a machine's decision that was made when the subject had moved ``expected`` times.

        None if it has moved since: decide again. If the event was decided on before, that decision comes
        back (``repeated``), except that a refusal gives way to a later delivery of the event.
        """
        ...

    def moves(
        self,
        *,
        machine: str | None = None,
        subject: str | None = None,
        event: str | None = None,
        limit: int = 100,
    ) -> list[Move]:
        """Decisions of machines, newest first; every argument narrows."""
        ...

    # sagas

    def open_saga(self, saga: str, id: str, data: Any, *, delivery: str = "") -> SagaRecord:
        """Begin a saga, or take it up where it is: whoever had it before can store nothing any more.

        A compensated saga begins anew when another delivery (a redrive, a replay) asks for it.
        """
        ...

    def put_saga(
        self,
        record: SagaRecord,
        *,
        step: SagaStep | None = None,
        state: str | None = None,
        error: str | None = None,
    ) -> SagaRecord:
        """Store a step, and the saga's new state if it has one; raises LeaseLost if it was taken up since."""
        ...

    def sagas(
        self, *, saga: str | None = None, id: str | None = None, unfinished: bool = False, limit: int = 100
    ) -> list[SagaRecord]:
        """Sagas with their steps, the latest first; every argument narrows."""
        ...

    def forget_sagas(self, saga: str, *, before: float) -> int:
        """Forget sagas that ended before that time; how many. Their events would begin them anew."""
        ...

    # read models

    def views(self, name: str | None = None) -> list[View]:
        """Every read model, or the generations of one."""
        ...

    def open_view(self, name: str, version: str, *, anew: bool = False) -> View:
        """The live generation, made if there is none; ``anew`` a further, empty one beside it."""
        ...

    def advance_view(
        self, view: View, rows: Mapping[str, bytes | None], *, position: int, events: int
    ) -> View | None:
        """Store changed rows (None deletes one) and the new position in one transaction.

        None if another process has advanced it: begin again from the position it is at now. Raises ViewGone
        if another generation has taken its place.
        """
        ...

    def publish_view(self, view: View) -> View:
        """Let readers see this generation, and drop every other."""
        ...

    def drop_view(self, name: str) -> int:
        """Forget a read model; how many generations it had."""
        ...

    def view_rows(
        self,
        name: str,
        *,
        generation: int | None = None,
        keys: Sequence[str] | None = None,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
    ) -> list[tuple[str, bytes]]:
        """Rows in the order of their keys, of the live generation unless another is named."""
        ...
