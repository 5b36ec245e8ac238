"""A log of dicts and lists: what the real ones must agree with, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windsock.events import Event
from windsock.log.records import Appended, Lease, State
from windsock.spec import WatcherSpec

REMIND_AFTER, MAX_DELAY = 30.0, 3600.0


@dataclass
class Entry:
    """An event as one place sees it."""

    seq: int
    key: str | None
    state: State = State.PENDING
    run: str | None = None
    attempts: int = 0
    ready_at: float = 0.0


@dataclass
class Run:
    """What a run took from one place."""

    seqs: list[int]
    implicit: bool = False
    active: bool = True
    failed: bool = False
    settled_at: float = 0.0


@dataclass
class Place:
    """A Dag's place in a watcher's events."""

    watcher: Watched
    dag_id: str
    entries: dict[int, Entry] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    active: bool = True
    paused: bool = False
    explicit: bool = False
    claims: int = 0
    woken: bool = False
    wakes: int = 0
    remind_at: float = 0.0

    def wake(self) -> None:
        """Nobody is on the way any more; whatever can be claimed is to be told."""
        self.claims, self.woken, self.wakes = self.claims + 1, False, 0

    def busy(self, now: float) -> set[str]:
        """The keys that have an event in a run or waiting for its retry."""
        if self.watcher.spec.key is None:
            return set()
        return {
            entry.key
            for entry in self.entries.values()
            if entry.key is not None
            and (entry.state is State.CLAIMED or (entry.state is State.PENDING and entry.ready_at > now))
        }

    def claimable(self, now: float) -> list[Entry]:
        """What a new run could have, oldest first."""
        busy = self.busy(now)
        return [
            entry
            for seq, entry in sorted(self.entries.items())
            if entry.state is State.PENDING
            and entry.ready_at <= now
            and seq <= self.watcher.closed
            and entry.key not in busy
        ]

    def give_back(self, run_id: str) -> int:
        """The run's events are pending as they were."""
        held = [
            entry for entry in self.entries.values() if (entry.state, entry.run) == (State.CLAIMED, run_id)
        ]
        for entry in held:
            entry.state, entry.run, entry.ready_at = State.PENDING, None, 0.0
        return len(held)

    def let_go(self, run_id: str) -> None:
        """The run is as if it had never had anything from here."""
        del self.runs[run_id]
        for entry in self.entries.values():
            if entry.run == run_id:
                entry.run = None


@dataclass
class Watched:
    """A watcher with its events and its open batch."""

    spec: WatcherSpec
    received: dict[int, float] = field(default_factory=dict)
    last: int = 0
    closed: int = 0
    open: int = 0
    opened_at: float = 0.0
    last_at: float = 0.0

    def shut(self) -> None:
        """Everything so far may be claimed."""
        self.closed, self.open = self.last, 0


class LogModel:
    """The contract, one method per method of the log, in the plainest way."""

    def __init__(self, specs: Sequence[WatcherSpec]) -> None:
        self.watchers = {spec.name: Watched(spec) for spec in specs}
        self.places: dict[tuple[str, str], Place] = {}
        self.keys: dict[bytes, tuple[int, float | None]] = {}
        self.letters: list[tuple[str, str, int]] = []
        self.poison: set[tuple[str, str, int]] = set()
        self.cursor: dict[str, int] | None = None
        self.lease: Lease | None = None
        self.epoch = 0

    def places_of(self, dag_id: str, watchers: Iterable[str] | None = None) -> list[Place]:
        """The Dag's places in these watchers, or in all."""
        names = self.watchers if watchers is None else watchers
        return [self.places[name, dag_id] for name in names if (name, dag_id) in self.places]

    def subscribe(self, name: str, dag_id: str, paused: bool) -> None:
        place = self.places.setdefault((name, dag_id), Place(self.watchers[name], dag_id))
        if (place.active, place.paused) != (True, paused):
            place.active, place.paused = True, paused
            place.wake()

    def current(self, lease: Lease | None) -> bool:
        """Whether an append with this lease is allowed."""
        return lease is None or (self.lease is not None and lease.epoch == self.lease.epoch)

    def append(
        self,
        name: str,
        events: Sequence[Event],
        hashes: Sequence[bytes],
        flush: bool,
        answer: Appended,
        now: float,
    ) -> None:
        """Check the answer of one write and store what it says is new."""
        watched = self.watchers[name]
        new, duplicates = list(answer.new), list(answer.duplicates)
        window = watched.spec.dedupe
        for event, digest in zip(events, hashes, strict=True):
            known = self.keys.get(digest)
            if known is not None and (known[1] is None or known[1] > now):
                assert duplicates.pop(0) == (event, known[0])
                continue
            stored = new.pop(0)
            assert stored.id == event.id
            assert stored.seq is not None
            assert stored.seq > watched.last
            self.keys[digest] = (stored.seq, None if window is None else now + window)
            self._store(watched, stored.seq, event.key, now)
        assert (new, duplicates) == ([], [])
        batch = watched.spec.batch
        if watched.open and (flush or batch.immediate):
            watched.shut()

    def _store(self, watched: Watched, seq: int, key: str | None, now: float) -> None:
        watched.received[seq] = watched.last_at = now
        watched.last = seq
        if not watched.open:
            watched.opened_at = now
        watched.open += 1
        if watched.open >= watched.spec.batch.size:
            watched.shut()
        for place in self.places.values():
            if place.watcher is watched:
                place.entries[seq] = Entry(seq, key)

    def close_batches(self, now: float) -> int:
        closed = 0
        for watched in self.watchers.values():
            batch = watched.spec.batch
            waited = batch.within and watched.opened_at + batch.within <= now
            silent = batch.quiet and watched.last_at + batch.quiet <= now
            if watched.open and (waited or silent):
                watched.shut()
                closed += 1
        return closed

    def due(self, name: str, now: float) -> list[Place]:
        """The places that are to be told."""
        return [
            place
            for (watcher, _), place in self.places.items()
            if watcher == name
            and place.active
            and not place.paused
            and (not place.woken or place.remind_at <= now)
            and place.claimable(now)
        ]

    def announced(self, told: Sequence[tuple[Place, int]], now: float) -> None:
        """These places were told; one that has claimed since it became due is not on the way."""
        for place, claims in told:
            if place.active and place.claims == claims and (not place.woken or place.remind_at <= now):
                place.woken = True
                place.remind_at = now + min(MAX_DELAY, REMIND_AFTER * 2**place.wakes)
                place.wakes += 1

    def claim(
        self, names: Sequence[str], dag_id: str, run_id: str, limit: int, now: float
    ) -> list[tuple[int, int]]:
        """The (seq, attempt) that the run gets."""
        places = self.places_of(dag_id, names)
        held: list[Entry] = []
        found = False
        for place in places:
            run = place.runs.get(run_id)
            if run is None:
                continue
            if not run.seqs or (run.implicit and run.active):
                place.give_back(run_id)
                place.let_go(run_id)
                continue
            entries = [place.entries[seq] for seq in run.seqs if seq in place.entries]
            found = True
            if not run.active:
                self._take_back(place, run_id, entries)
            run.active, run.failed, run.implicit, place.explicit = True, False, False, True
            held += entries
        if not found:
            offers = [(entry.seq, place, entry) for place in places for entry in place.claimable(now)]
            taken = sorted(offers, key=lambda offer: offer[0])[:limit]
            for place in places:
                self._take(
                    place, run_id, [entry for _, owner, entry in taken if owner is place], implicit=False
                )
            held = [entry for _, _, entry in taken]
        return sorted((entry.seq, entry.attempts) for entry in held)

    def _take_back(self, place: Place, run_id: str, entries: list[Entry]) -> None:
        """A cleared run has its events again, but for those that another run has or has done."""
        for entry in entries:
            if entry.state in (State.PENDING, State.DEAD) or entry.run == run_id:
                entry.state, entry.run = State.CLAIMED, run_id
        gone = {(place.dag_id, run_id, entry.seq) for entry in entries}
        self.poison -= gone
        self.letters = [letter for letter in self.letters if letter not in gone]

    def _take(self, place: Place, run_id: str, entries: list[Entry], *, implicit: bool) -> None:
        place.wake()
        place.explicit = place.explicit or not implicit
        place.runs[run_id] = Run([entry.seq for entry in entries], implicit=implicit)
        for entry in entries:
            entry.state, entry.run = State.CLAIMED, run_id

    def claim_announced(self, name: str, dag_id: str, run_id: str, up_to: int, now: float) -> int:
        place = self.places[name, dag_id]
        if place.explicit or run_id in place.runs:
            return 0
        entries = [entry for entry in place.claimable(now) if entry.seq <= up_to]
        self._take(place, run_id, entries, implicit=True)
        return len(entries)

    def settle(self, dag_id: str, run_id: str, ok: bool, now: float) -> int:
        settled = 0
        for place in self.places_of(dag_id):
            run = place.runs.get(run_id)
            if run is not None and ok and run.failed:
                self._resume(place, run, run_id)
            if run is None or not run.active:
                continue
            run.active, run.settled_at, run.failed = False, now, not ok
            for entry in place.entries.values():
                if (entry.state, entry.run) != (State.CLAIMED, run_id):
                    continue
                settled += 1
                if ok:
                    entry.state = State.DONE
                else:
                    self._fail(place, entry, run_id, now)
        return settled

    def _resume(self, place: Place, run: Run, run_id: str) -> None:
        """A run that failed has succeeded after all: it has what no other run took, and what it buried."""
        run.active, run.failed = True, False
        for entry in (place.entries[seq] for seq in run.seqs if seq in place.entries):
            letter = (place.dag_id, run_id, entry.seq)
            buried = entry.state is State.DEAD and entry.run == run_id and letter in self.poison
            if entry.state is State.PENDING or buried:
                entry.state, entry.run = State.CLAIMED, run_id
        resumed = {(place.dag_id, run_id, seq) for seq in run.seqs} & self.poison
        self.letters = [letter for letter in self.letters if letter not in resumed]
        self.poison -= resumed

    def _fail(self, place: Place, entry: Entry, run_id: str, now: float) -> None:
        spec = place.watcher.spec
        entry.attempts += 1
        if entry.attempts >= spec.max_attempts:
            entry.state = State.DEAD
            self.letters.append((place.dag_id, run_id, entry.seq))
            self.poison.add((place.dag_id, run_id, entry.seq))
        else:
            entry.state, entry.run = State.PENDING, None
            entry.ready_at = now + min(MAX_DELAY, spec.retry_delay * 2 ** (entry.attempts - 1))

    def release_run(self, dag_id: str, run_id: str, now: float) -> int:
        released = 0
        for place in self.places_of(dag_id):
            run = place.runs.get(run_id)
            if run is not None and run.active:
                run.active, run.settled_at, run.failed = False, now, True
                released += place.give_back(run_id)
        return released

    def dead_letter(self, place: Place, run_id: str, seq: int) -> None:
        place.entries[seq].state = State.DEAD
        self.letters.append((place.dag_id, run_id, seq))

    def purge(self, before: float) -> int:
        purged = 0
        for name, watched in self.watchers.items():
            places = [place for (watcher, _), place in self.places.items() if watcher == name]
            waiting = {
                seq
                for place in places
                if place.active
                for seq, entry in place.entries.items()
                if entry.state not in (State.DONE, State.DEAD)
            }
            for seq in [seq for seq, at in watched.received.items() if at < before and seq <= watched.closed]:
                if seq not in waiting:
                    del watched.received[seq]
                    purged += 1
                    for place in places:
                        place.entries.pop(seq, None)
            # What a run had is remembered as long as one of its events, or one between them, is there.
            for place in places:
                for run_id, run in list(place.runs.items()):
                    kept = run.seqs and any(run.seqs[0] <= seq <= run.seqs[-1] for seq in place.entries)
                    if not run.active and run.settled_at < before and not kept:
                        del place.runs[run_id]
        return purged
