"""The log contract: the durable place between the world and Airflow.

The log is authoritative for what arrived, who has it and how that ended. Airflow's asset events are only
wake-up calls. Every method is one transaction (those that forget are several), blocking, and safe to call
from any thread and process; async callers use ``asyncio.to_thread``. A crash at any point leaves the state
before or after the method, never between.

An event, seen from one subscription (a Dag's place in a watcher's events)::

                    batch closes           claim()               run succeeded
      (append) ──▶ OPEN ──────▶ PENDING ───────────▶ CLAIMED ─────────────────▶ DONE
                                  ▲  ▲                │   │ │
                     key is free  │  │  run failed,   │   │ └─ dead_letter() ──▶ DEAD
                                  │  └─ after backoff ┘   │                       ▲
                               BLOCKED                    └─ failed max_attempts ─┘

A batch: ``open`` ──size | bytes | within | quiet | flush──▶ ``closed`` ──▶ ``announced``. A watcher has at
most one open batch, so batches close in the order of the log.

An announcement is due for a watcher when an active, unpaused subscription has claimable events and either
was not woken since its last claim or its reminder time has come::

      IDLE ──claimable──▶ DUE ──Airflow committed the asset event──▶ WOKEN ──claim()──▶ IDLE
                           ▲                                           │
                           └────────── unclaimed for 30 s, 60 s, … ────┘

A lease: ``free`` ──acquire, epoch+1──▶ ``held`` ──renew──▶ ``held``; ``held`` ──release | expires──▶ free.
An append that carries a lease whose epoch is no longer current raises ``LeaseLost`` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from windsock.events import Category, Event
from windsock.log.archive import Archive, ArchivedEvent, ArchiveFile, Receipt, Retained
from windsock.log.records import (
    Announcement,
    Appended,
    Beat,
    ClaimRecord,
    DeadRecord,
    EventQuery,
    EventRecord,
    EventTrace,
    Gap,
    HeldEvent,
    Kept,
    Lease,
    Mark,
    Moved,
    NextRetry,
    Remembered,
    Replay,
    Revived,
    Scan,
    Start,
    StoredEvent,
    Subscription,
    VerdictRecord,
    WatcherHealth,
    Write,
)
from windsock.log.subjects import SubjectLog
from windsock.spec import WatcherSpec

__all__ = ["Log"]


class Log(SubjectLog, Protocol):
    """See the module's docstring for what holds across the methods."""

    def close(self) -> None:
        """Let go of the database."""

    # who is there

    def register(self, spec: WatcherSpec, *, source: str, asset: str | None = None) -> None:
        """Make the watcher known, or bring its definition up to date. ``asset=None`` keeps the known one."""

    def watchers(self, *, source: str | None = None, asset: str | None = None) -> list[WatcherSpec]:
        """The registered definitions, of one source or one asset if named."""
        ...

    def watcher(self, name: str) -> WatcherSpec | None:
        """One registered definition."""

    def subscribe(
        self, watcher: str, dag_id: str, *, paused: bool = False, start: Start | None = None
    ) -> None:
        """Give the Dag its place, or make it active again.

        A new place begins at ``start``, by default at the watcher's own ``start``. Without either the first
        Dag of a watcher begins at the watcher's first event, a later one at the next event.
        """

    def move(self, watcher: str, dag_id: str, to: Start, *, dry_run: bool = False) -> Moved:
        """Move a Dag's place. Forward, waiting events are passed over; what a run has stays with it.

        Back, the Dag gets events from before its beginning; what it has had it gets only by a replay.
        """
        ...

    def unsubscribe(self, watcher: str, dag_id: str) -> None:
        """The Dag is gone: its events no longer count as backlog and wake nobody."""

    def subscriptions(
        self, *, watcher: str | None = None, dag_id: str | None = None, counts: bool = True
    ) -> list[Subscription]:
        """Every Dag's place; without the counts (all 0) the answer costs next to nothing."""
        ...

    def unwanted(self) -> set[str]:
        """Sources that no Dag wants any more: they have subscriptions, and none of them is active."""
        ...

    # who reads

    def acquire(self, name: str, owner: str, ttl: float) -> Lease | None:
        """Take the lease, or None while another owner holds it. The same owner gets a new epoch too."""

    def renew(self, lease: Lease, ttl: float) -> Lease:
        """Hold the lease longer; raises LeaseLost if it was taken over."""
        ...

    def beat(self, beats: Sequence[Beat], ttl: float) -> list[Kept | None]:
        """Renew the leases of all these readers and store how they are, in one transaction.

        None for a lease that was taken over: its reader must stop.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give the lease back; does nothing if it was taken over."""

    def cursor(self, source: str) -> dict[str, Any] | None:
        """The source's position after the last append that carried one."""

    # what arrives

    def append(
        self,
        writes: Sequence[Write],
        *,
        source: str | None = None,
        cursor: dict[str, Any] | None = None,
        state: Mapping[str, Remembered | None] | None = None,
        lease: Lease | None = None,
    ) -> list[Appended]:
        """Store events, dedup keys, dead letters, counters and the source's cursor in one transaction.

        ``state`` is what the source remembers by key, as far as it changed; None forgets a key.
        """
        ...

    def tick(self) -> None:
        """Do what is due by the clock: :meth:`close_batches`, :meth:`release_gaps`, :meth:`expire` and
        :meth:`advance_replays`. Costs a few reads when there is nothing to do."""

    def close_batches(self) -> int:
        """Close every batch whose time window or quiet period has passed; how many were closed."""
        ...

    def release_gaps(self) -> None:
        """Go on behind every gap in a sequence that was waited for long enough."""

    def expire(self) -> int:
        """Set aside what has waited longer than its watcher's ``max_age``; how many."""
        ...

    # who is told

    def due(self, watchers: Sequence[str], *, inline: int = 0, inline_bytes: int = 0) -> list[Announcement]:
        """The announcements to make now. Changes nothing: what is never confirmed is due again."""
        ...

    def announced(self, announcement: Announcement) -> None:
        """Airflow has committed the asset event."""

    # who has it

    def claim(
        self, watchers: Sequence[str], dag_id: str, run_id: str, *, limit: int | None = None
    ) -> list[Event]:
        """The run's events of these watchers: the same ones on every call, else up to ``limit`` new ones.

        Oldest first. By default as many as the largest batch of the watchers. Events whose key is busy
        (claimed by another run, or waiting for a retry) are left for a later claim.
        """
        ...

    def claim_announced(self, watcher: str, dag_id: str, run_id: str, up_to: int) -> int:
        """Take for the run what it was triggered with, unless the Dag claims for itself; how many events."""
        ...

    def note_failure(
        self,
        dag_id: str,
        run_id: str,
        task: str,
        *,
        error: str,
        category: Category | None = None,
        seqs: Sequence[int] = (),
    ) -> None:
        """Say what a task of the run failed with, before the run is settled; the last word of a task counts.

        ``seqs`` are the events that are to blame: the run's others then return with no attempt counted.
        Nothing is stored for a Dag that has no place in any watcher's events.
        """

    def settle(self, dag_id: str, run_id: str, *, ok: bool, reason: str = "") -> int:
        """The run ended: its events are done, or return with one more attempt, or are dead; how many.

        Why it failed is what :meth:`note_failure` was told: ``invalid`` buries at once, ``transient`` is the
        category of what is buried after the last attempt; anything else, or nothing, is ``poison``.
        A run that failed before and succeeded now takes back what no other run has taken.
        """
        ...

    def reopen(self, dag_id: str, run_id: str) -> int:
        """A failed run was cleared and runs again: it has its events back, less those that another run took.

        What its Dag had set aside stays aside. A run that then succeeds is settled as usual.
        """
        ...

    def release_run(self, dag_id: str, run_id: str) -> int:
        """The run is gone without an outcome: its events return with no attempt counted; how many."""
        ...

    def dead_letter(self, dag_id: str, run_id: str, seq: int, reason: str) -> None:
        """Set one claimed event of the run aside; the run's other events are not touched."""

    def active_runs(self) -> list[tuple[str, str]]:
        """(dag_id, run_id) of every claim that is not settled."""
        ...

    def failed_runs(self, *, since: float) -> list[tuple[str, str]]:
        """(dag_id, run_id) of every claim that was settled as failed or given back since then."""
        ...

    # what was set aside

    def dead_letters(
        self,
        *,
        ids: Sequence[int] | None = None,
        watcher: str | None = None,
        dag_id: str | None = None,
        category: str | None = None,
        stage: str | None = None,
        event_id: str | None = None,
        text: str | None = None,
        since: float | None = None,
        until: float | None = None,
        before: int | None = None,
        state: str | None = "dead",
        limit: int = 100,
    ) -> list[DeadRecord]:
        """Dead letters, newest first; every argument narrows. ``text`` is looked for in reason and error.

        ``state=None`` also shows what was redriven or discarded; ``before`` is the id of the last page's end.
        """
        ...

    def redrive(self, ids: Sequence[int]) -> Revived:
        """Give dead events back to their Dag, in their old place and with their attempts forgotten.

        Letters that never reached the log as events come back as ``others``: they have to go through the
        watcher's pipeline again, and are closed by the append that names them in ``Write.redriven``.
        """
        ...

    def discard(self, ids: Sequence[int]) -> int:
        """Close dead letters for good; how many were open."""
        ...

    def letters_to_retry(self, *, limit: int = 1000) -> list[int]:
        """Open letters that their watcher's ``retry`` wants redriven now, by their ids.

        Not those of events that are older than the watcher's ``max_age``.
        """
        ...

    def next_retries(self, ids: Sequence[int]) -> dict[int, NextRetry]:
        """When :meth:`letters_to_retry` will name these letters; without those that it never will."""
        ...

    def retried_in_vain(self, ids: Sequence[int]) -> None:
        """These letters were redriven and failed again: one of their retries is used up."""

    def count_letters(self, *, since: float) -> dict[str, int]:
        """How many letters were set aside since then and are still open, by watcher."""
        ...

    # what was

    def scan(self, query: Scan) -> Iterator[StoredEvent]:
        """Stored events, oldest first, read in pages: memory stays flat however many there are."""
        ...

    def plan_replay(
        self, replay_id: str, seqs: Sequence[int], *, dag_id: str | None = None, cap: int = 1000
    ) -> Replay:
        """Deliver these events again, to all subscribed Dags or one; the same replay twice does nothing new.

        Deliveries carry the replay's id (``event.replay``). At most ``cap`` of them are under way at once;
        :meth:`advance_replays` makes the next ones real.
        """
        ...

    def advance_replays(self) -> int:
        """Make planned deliveries real as far as the caps allow; how many."""
        ...

    def replays(self) -> list[Replay]:
        """Every replay, newest first."""
        ...

    # what rules remember

    def remembered(self, source: str) -> Iterator[tuple[str, Remembered]]:
        """Everything that a source remembers, by key, read in pages."""
        ...

    def recall(self, source: str, key: str) -> Remembered | None:
        """What a source remembers of one key."""

    def marks(self) -> dict[str, Mark]:
        """How far every watcher is. Costs one small read, however much is stored."""
        ...

    def behind(self, positions: Mapping[str, int]) -> int:
        """How many events are stored after these positions, watcher → seq."""
        ...

    def arrivals(self, watcher: str, *, since: float, limit: int) -> list[float]:
        """When the watcher's newest events came, oldest first: at most ``limit`` of them."""
        ...

    # what is known

    def events(self, query: EventQuery) -> list[EventRecord]:
        """Matching events, newest first: one record per subscription, or one if nobody is subscribed."""
        ...

    def trace(self, event_id: str, *, watcher: str | None = None) -> list[EventTrace]:
        """Where every stored event with this id has been, oldest first."""
        ...

    def held(self, *, event_id: str | None = None, watcher: str | None = None) -> list[HeldEvent]:
        """Events that wait for one that comes before them in their sequence."""
        ...

    def claims(self, dag_id: str, *, since: float, until: float) -> list[ClaimRecord]:
        """The runs of a Dag that took events in that time, oldest first."""
        ...

    def verdicts(
        self, *, event_id: str | None = None, watcher: str | None = None, limit: int = 100
    ) -> list[VerdictRecord]:
        """What was filtered or a duplicate, newest first.

        Of each watcher the last :data:`~windsock.log.records.REMEMBERED`.
        """
        ...

    def backlog(self, watchers: Sequence[str]) -> int:
        """Events of these watchers that some active subscription has not settled."""
        ...

    def heartbeat(
        self, source: str, owner: str, state: str, *, lag: int | None = None, error: str | None = None
    ) -> None:
        """The reader of ``source`` says how it is."""

    def health(self) -> list[WatcherHealth]:
        """Counters and heartbeats of every watcher."""
        ...

    def gaps(self, *, grace: float, older: float) -> list[Gap]:
        """Everything in which the log disagrees with itself.

        ``grace``: what may be late by so many seconds; ``older``: what may wait so long for a Dag.
        """
        ...

    def mend(self, kind: str, *, grace: float) -> int:
        """Repair every gap of a kind that :meth:`gaps` finds; how many rows were changed.

        Does nothing where nothing is wrong.
        """
        ...

    def totals(self) -> dict[str, int]:
        """How many rows of each sort the log has: what :meth:`gaps` compared."""
        ...

    # what is forgotten

    def retained(self) -> list[Retained]:
        """What every watcher is to keep, and what it holds. Counts everything: not for the hot path."""
        ...

    def purge(self, *, before: float, archive: Archive | None = None) -> int:
        """Delete events that are past their watcher's ``retention`` and that nobody needs; how many.

        ``before`` is the time for watchers that name no age. What some active subscription has not settled,
        or a replay is about to deliver, stays. The events of a watcher with an archive are written there
        first; without ``archive`` they stay. Several transactions, each of a bounded number of events.
        Raises ArchiveError at the end if an archive could not be written: its events are still here.
        """
        ...

    def archives(
        self,
        *,
        watchers: Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[ArchiveFile]:
        """The files that hold archived events, oldest first."""
        ...

    def restore(self, file: ArchiveFile, events: Sequence[ArchivedEvent]) -> int:
        """Put archived events back in their old place, settled as they were, for a replay; how many.

        They stay in the file, and leave the log again an hour later or when the replay is over.
        """
        ...

    def stored_bodies(
        self, kind: Literal["letters", "verdicts"], *, watcher: str | None = None
    ) -> Iterator[tuple[int, str, bytes]]:
        """(id, watcher, body) of every dead letter or verdict, read in pages."""
        ...

    def erase(
        self,
        key: str,
        *,
        watcher: str | None = None,
        letters: Sequence[int] = (),
        verdicts: Sequence[int] = (),
        subjects: Collection[str] = (),
        readers: Collection[str] = (),
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Delete what is stored of a key, whoever needs it; how many, by kind.

        With it go these letters and verdicts, and the snapshots of these subjects and those of its events.
        Whoever reads one of the sources ``readers`` loses its lease: it stores nothing of what it has in
        mind, and begins anew with what is left.

        See :func:`windsock.erasure.erase`, which finds them and does the archives, too.
        """
        ...

    def rewrite_archives(
        self,
        archive: Archive,
        unwanted: Callable[[ArchivedEvent], bool],
        *,
        watcher: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Write every archive file that holds unwanted events anew without them; how many, by file."""
        ...

    def put_receipt(self, receipt: Receipt) -> None:
        """Keep a receipt, or bring it up to date."""

    def receipts(self) -> list[Receipt]:
        """Every erasure, newest first."""
        ...
