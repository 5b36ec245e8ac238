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

import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from windsock.events import Category, DeadLetter, Event, Verdict
from windsock.log.archive import Archive, ArchivedEvent, ArchiveFile, Receipt, Retained
from windsock.log.subjects import SubjectLog
from windsock.spec import WatcherSpec

__all__ = [
    "REMEMBERED",
    "Announcement",
    "Appended",
    "Beat",
    "ClaimRecord",
    "DeadRecord",
    "EventQuery",
    "EventRecord",
    "EventTrace",
    "Gap",
    "HeldEvent",
    "Kept",
    "Lease",
    "Log",
    "Mark",
    "Moved",
    "PlaceTrace",
    "Remembered",
    "Replay",
    "Scan",
    "Start",
    "State",
    "StoredEvent",
    "Subscription",
    "VerdictRecord",
    "WatcherHealth",
    "Write",
]


REMEMBERED = 10_000
"""Verdicts that are kept of one watcher."""


class State(enum.StrEnum):
    """Where an event stands for one subscription."""

    OPEN = "open"
    PENDING = "pending"
    BLOCKED = "blocked"
    CLAIMED = "claimed"
    DONE = "done"
    DEAD = "dead"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to read a source, until it expires or another owner takes it."""

    name: str
    owner: str
    epoch: int
    expires_at: float


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What the reader of a source says of itself, and the lease that it holds."""

    lease: Lease
    state: str
    lag: int | None = None
    error: str | None = None
    total: bool = False
    """Whether the reader wants to know the backlog of all watchers."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader learns in return: it still owns the source, and what it works for."""

    lease: Lease
    backlog: int
    """Events of the source's watchers that some active subscription has not settled."""
    specs: tuple[WatcherSpec, ...]
    """The watchers of the source; the same objects as long as their definition is the same."""
    total: int | None = None
    """Events of all watchers that some active subscription has not settled, if the beat asked for it."""
    rank: int = 0
    """How many lower priorities there are than that of the source, which is its watchers' highest."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """What one append brings to one watcher. ``dedup`` has one hash per event, or is empty for none."""

    watcher: str
    events: Sequence[Event]
    dedup: Sequence[bytes] = ()
    bodies: Sequence[bytes] = ()
    """The encoded events, if the caller has them already."""
    dead: Sequence[DeadLetter] = ()
    redriven: Sequence[int] = ()
    """Dead letters that these events are made of; they are closed with the append."""
    filtered: int = 0
    """How many events went no further."""
    verdicts: Sequence[Verdict] = ()
    """Those of them that are to be remembered; the log keeps the newest, see :data:`REMEMBERED`."""
    numbers: Sequence[int] = ()
    """One sequence number per event, if the watcher puts its events in order by a number."""
    flush: bool = False
    """Close the batch after these events."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one write: new events with their ``seq``, and duplicates with the first one's seq."""

    new: list[Event]
    duplicates: list[tuple[Event, int]]
    held: int = 0
    """How many wait for an event that comes before them in their sequence."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A Dag's own durable place in a watcher's events."""

    watcher: str
    asset: str | None
    dag_id: str
    active: bool
    paused: bool
    explicit: bool
    """Whether the Dag has called ``claim``; if not, a run is taken to have what it was triggered with."""
    pending: int
    claimed: int
    dead: int


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A wake-up call for the Dags of one watcher: events up to ``up_to`` can be claimed."""

    id: str
    watcher: str
    first: int
    up_to: int
    count: int
    reminder: bool
    events: list[Event]
    """The events themselves when they are few and small, else empty."""
    claims: dict[str, int] = {}
    """How often each woken Dag had claimed when this became due: a later claim makes it stale."""


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An event with what the log knows of it, for one subscription or, with no subscription, for itself."""

    event: Event
    watcher: str
    asset: str | None
    received_at: float
    batch: int | None
    dag_id: str | None
    state: State
    run_id: str | None
    attempts: int


class DeadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter with its place in the log."""

    id: int
    watcher: str
    seq: int | None
    dag_id: str | None
    run_id: str | None
    stage: str
    category: str
    reason: str
    error: str | None
    attempts: int
    first_at: float
    """When the event died for the first time; ``at`` is the last."""
    at: float
    event_id: str | None
    state: str
    """``dead``, ``redriven`` or ``discarded``."""
    settled_at: float | None
    retries: int
    """How often it was tried again: redriven, or redriven by its watcher's ``retry`` in vain."""
    body: bytes


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that the log remembers."""

    watcher: str
    stage: str
    verdict: str
    reason: str
    event: Event
    seq: int | None
    at: float


class PlaceTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What one Dag made, or will make, of an event."""

    dag_id: str
    active: bool
    paused: bool
    state: State
    attempts: int
    available_at: float
    """When it may be claimed again, if it came back."""
    replay: str | None
    run_id: str | None
    """The run that has or had it."""
    run_state: str | None
    claimed_at: float | None
    settled_at: float | None
    woken_at: float | None
    """When the Dag was last told, if it has not claimed since."""
    wake_at: float | None
    ahead: int
    """Pending events of the Dag before this one."""
    key_run_id: str | None
    """The run that has an earlier event of the same key, if one does."""


class EventTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stored event has been and where it stands."""

    event: Event
    watcher: str
    asset: str | None
    source: str
    received_at: float
    batch: int | None
    batch_reason: str | None
    batch_count: int | None
    batch_closed_at: float | None
    announced_at: float | None
    places: tuple[PlaceTrace, ...]


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took of one watcher."""

    watcher: str
    run_id: str
    state: str
    count: int
    claimed_at: float
    settled_at: float | None


class HeldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that waits for one that comes before it in its sequence."""

    event: Event
    watcher: str
    number: int
    next_number: int
    held_at: float


class WatcherHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher's counters and the heartbeat of the one that reads its source."""

    watcher: str
    asset: str | None
    source: str
    logged: int
    duplicates: int
    filtered: int
    dead: int
    backlog: int
    """Logged events that some active subscription has not settled."""
    state: str | None
    """``running``, ``paused``, ``backoff``, ``stopped``; None if nobody ever read it."""
    owner: str | None
    heartbeat_at: float | None
    lag: int | None
    error: str | None
    last_event_at: float | None
    held: int
    """Events that wait for one that comes before them in their sequence."""
    late: int
    """Events that came after one that follows them in their sequence."""


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to list, newest first; every field that is set narrows the answer."""

    id: str | None = None
    key: str | None = None
    type: str | None = None
    watcher: str | None = None
    asset: str | None = None
    dag_id: str | None = None
    state: State | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None
    """Found anywhere in the stored event."""
    before: int | None = None
    """Only events with a smaller seq: the next page."""
    limit: int = 100


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Which stored events to read, oldest first; every field that is set narrows the answer."""

    watchers: Sequence[str] | None = None
    asset: str | None = None
    key: str | None = None
    type: str | None = None
    ids: Sequence[str] | None = None
    seqs: Sequence[int] | None = None
    since: float | None = None
    """Received at or after this time."""
    until: float | None = None
    after: int = 0
    """Only events with a larger seq."""
    up_to: int | None = None
    limit: int | None = None


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it stands in the log."""

    event: Event
    watcher: str
    received_at: float


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay and how far it is; counts are deliveries, one for each event and Dag."""

    id: str
    dag_id: str | None
    cap: int
    """The most deliveries that may be under way at once."""
    created_at: float
    finished_at: float | None
    planned: int
    made: int
    skipped: int
    """The Dag had not settled the event, so it gets it anyway."""
    under_way: int


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a watcher is: the seq of its newest event, and its definition."""

    seq: int
    spec: WatcherSpec


Start = str | float
"""Where a Dag begins: ``"earliest"``, ``"latest"`` (the next event), or a time in epoch seconds."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What moving a Dag's place changed, or would change."""

    watcher: str
    dag_id: str
    position: int
    """The seq after which the place now stands."""
    skipped: int
    """Waiting events that the Dag will not get."""
    added: int
    """Events from before the Dag's beginning that it gets now."""
    seen: int
    """Events after the position that the Dag has had: only a replay delivers them again."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the log disagrees with itself."""

    kind: str
    """Which check found it; :meth:`Log.mend` takes it."""
    watcher: str | None
    dag_id: str | None
    count: int
    first: str
    """The first one: a seq, a letter's id, a key or a replay's name."""


Remembered = tuple[bytes, float | None]
"""What a source remembers of one key, and when that is due."""


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

    def redrive(self, ids: Sequence[int]) -> list[DeadRecord]:
        """Give dead events back to their Dag, in their old place and with their attempts forgotten.

        Returns the letters that never reached the log as events: they have to go through the watcher's
        pipeline again, and are closed by the append that names them in ``Write.redriven``.
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
        """What was filtered or a duplicate, newest first: the last :data:`REMEMBERED` of each watcher."""
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
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Delete what is stored of a key, whoever needs it; how many, by kind.

        With it go these letters and verdicts, and the snapshots of these subjects and those of its events.

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
