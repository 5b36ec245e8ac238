"""What the log hands out and takes in: its records, queries and states.

Values without behaviour; what may be done with them is said by :class:`windsock.log.base.Log`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from windsock.events import DeadLetter, Event, Verdict
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
    "Mark",
    "Moved",
    "NextRetry",
    "PlaceTrace",
    "Remembered",
    "Replay",
    "Revived",
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


class Revived(msgspec.Struct, frozen=True, kw_only=True):
    """What redriving made of letters."""

    delivered: int
    """Events that wait for their Dag again, in their old place."""
    others: list[DeadRecord]
    """Letters that never reached the log as events; they are still open."""
    missing: list[int]
    """Ids of no open letter: unknown, or redriven or discarded before."""


class NextRetry(msgspec.Struct, frozen=True, kw_only=True):
    """When a dead letter is redriven by itself."""

    at: float
    left: int
    """How many attempts its watcher's ``retry`` has left for it, this one included."""


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that the log remembers."""

    watcher: str
    stage: str
    verdict: str
    reason: str
    event: Event
    seq: int | None
    at: float


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took of one watcher."""

    watcher: str
    run_id: str
    state: str
    count: int
    claimed_at: float
    settled_at: float | None


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
    earlier: tuple[ClaimRecord, ...] = ()
    """The runs that had it before, if it came back or was delivered again; oldest first."""


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
    """Which check found it; :meth:`~windsock.log.base.Log.mend` takes it."""
    watcher: str | None
    dag_id: str | None
    count: int
    first: str
    """The first one: a seq, a letter's id, a key or a replay's name."""


Remembered = tuple[bytes, float | None]
"""What a source remembers of one key, and when that is due."""
