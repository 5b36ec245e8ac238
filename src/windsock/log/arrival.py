"""What arrives: events, dedup keys, dead letters, cursors and batches, in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windsock.events import Event, Verdict
from windsock.log.records import REMEMBERED, Appended, Lease, Remembered, Write
from windsock.log.rules import put_states
from windsock.log.sequence import Sequencer, letters_of, ordering_of
from windsock.log.subjects import indexed
from windsock.log.transaction import Row, SqlPart, Transaction, check_lease, known
from windsock.spec import Ordering


class Arrival(SqlPart):
    """The part of the log that takes events in and closes their batches."""

    def append(
        self,
        writes: Sequence[Write],
        *,
        source: str | None = None,
        cursor: dict[str, Any] | None = None,
        state: Mapping[str, Remembered | None] | None = None,
        lease: Lease | None = None,
    ) -> list[Appended]:
        now = self._clock()
        results: dict[int, Appended] = {}
        with self._transaction() as tx:
            if lease is not None:
                check_lease(tx, lease)
            # Watchers are locked in one order everywhere, so that two appends cannot wait for each other.
            for index, write in sorted(enumerate(writes), key=lambda item: (item[1].watcher, item[0])):
                results[index] = self._append_one(tx, write, now)
            if source is not None and cursor is not None:
                tx.run("put_cursor", source=source, cursor=msgspec.json.encode(cursor).decode())
            if source is not None and state:
                put_states(tx, source, state)
        return [results[index] for index in range(len(writes))]

    def _append_one(self, tx: Transaction, write: Write, now: float) -> Appended:
        watcher = known(tx.row("lock_watcher", name=write.watcher), write.watcher)
        events = list(write.events)
        bodies = list(write.bodies) or [event.encode() for event in events]
        seqs = tx.take_seqs(len(events)) if events else ()
        duplicates: list[tuple[Event, int]] = []
        numbers = list(write.numbers)
        if write.dedup:
            digests = _scoped(write.dedup, watcher)
            expires_at = None if watcher["dedupe"] is None else now + watcher["dedupe"]
            # Backwards, so that of two events with one key inside the write the earlier one stays.
            first = dict(zip(reversed(digests), reversed(seqs), strict=True))
            seen = tx.remember(list(first), list(first.values()), expires_at, now)
            if seen or len(first) < len(events):
                first |= seen
                fresh = [first[digest] == seq for digest, seq in zip(digests, seqs, strict=True)]
                duplicates = [
                    (event, first[digest])
                    for event, digest, new in zip(events, digests, fresh, strict=True)
                    if not new
                ]
                bodies = [body for body, new in zip(bodies, fresh, strict=True) if new]
                events = [event for event, new in zip(events, fresh, strict=True) if new]
                seqs = [seq for seq, new in zip(seqs, fresh, strict=True) if new]
                numbers = (
                    [number for number, new in zip(numbers, fresh, strict=True) if new] if numbers else []
                )
        held = 0
        ordering = ordering_of(watcher)
        if ordering is not None and numbers:
            released = Sequencer(tx, watcher, ordering, now).arrive(events, bodies, numbers)
            events, bodies, held = released.events, released.bodies, released.held
            seqs = tx.take_seqs(len(events)) if events else ()
            tx.run("count_held", id=watcher["id"], held=held, late=released.late)
        if events:
            tx.insert_events(watcher["id"], events, bodies, seqs, now, _subjects(watcher, events))
        self._batch(tx, watcher, write, bodies, seqs, len(duplicates), now)
        tx.many(
            "insert_dead_letter",
            [
                {
                    "watcher_id": watcher["id"], "seq": None, "dag_id": None, "run_id": None,
                    "stage": letter.stage, "category": letter.category.value, "reason": letter.reason,
                    "error": letter.error, "attempts": 0, "now": now, "body": letter.body,
                    "event_id": letter.event_id,
                }
                for letter in write.dead
            ],
        )  # fmt: skip
        for letter_id in write.redriven:
            tx.run("close_letter", id=letter_id, state="redriven", now=now)
        self._remember_verdicts(tx, watcher["id"], write, duplicates, now)
        return Appended(
            new=[msgspec.structs.replace(e, seq=s) for e, s in zip(events, seqs, strict=True)],
            duplicates=duplicates,
            held=max(held, 0),
        )

    def _remember_verdicts(
        self,
        tx: Transaction,
        watcher_id: int,
        write: Write,
        duplicates: Sequence[tuple[Event, int]],
        now: float,
    ) -> None:
        """Keep what explains later why an event went no further, for the newest such events."""
        seen = [
            Verdict(stage="dedupe", verdict="duplicate", event=event, seq=seq) for event, seq in duplicates
        ]
        verdicts = [*write.verdicts, *seen][-REMEMBERED:]
        if verdicts:
            tx.many(
                "insert_verdict",
                [
                    {
                        "watcher_id": watcher_id, "event_id": verdict.event.id, "stage": verdict.stage,
                        "verdict": verdict.verdict, "reason": verdict.reason, "seq": verdict.seq,
                        "body": verdict.event.encode(), "now": now,
                    }
                    for verdict in verdicts
                ],
            )  # fmt: skip
            tx.run("forget_verdicts", watcher_id=watcher_id, kept=REMEMBERED)

    def _batch(
        self,
        tx: Transaction,
        watcher: Row,
        write: Write,
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        duplicates: int,
        now: float,
    ) -> None:
        """Put new events into the watcher's open batch, closing it as often as a limit is reached."""
        first, count, size = watcher["open_first"], watcher["open_count"], watcher["open_bytes"]
        closed_seq, opened_at = watcher["closed_seq"], watcher["opened_at"]
        closed: list[dict[str, Any]] = []

        def shut(last: int, reason: str) -> None:
            nonlocal first, count, size, closed_seq, opened_at
            closed.append(
                {
                    "watcher_id": watcher["id"], "first_seq": first, "last_seq": last, "count": count,
                    "bytes": size, "reason": reason, "now": now,
                }
            )  # fmt: skip
            first, count, size, closed_seq, opened_at = None, 0, 0, last, None

        leads = watcher["batch_leading"] and not count and _paused(watcher, now)
        for seq, body in zip(seqs, bodies, strict=True):
            if first is None:
                first, opened_at = seq, now
            count += 1
            size += len(body)
            if leads:
                shut(seq, "leading")
                leads = False
            elif count >= watcher["batch_size"]:
                shut(seq, "size")
            elif size >= watcher["batch_bytes"]:
                shut(seq, "bytes")
        waits = watcher["batch_within"] or watcher["batch_quiet"]
        if watcher["batch_target"]:
            # Adaptive: an idle consumer gets what there is, a busy one finds more when it comes back.
            waits = waits or bool(tx.rows("busy_places", watcher_id=watcher["id"]))
        if count and (write.flush or not waits):
            shut(seqs[-1] if seqs else watcher["last_seq"], "flush" if write.flush else "append")
        tx.many("insert_batch", closed)
        tx.run(
            "update_watcher",
            id=watcher["id"],
            last_seq=seqs[-1] if seqs else watcher["last_seq"],
            closed_seq=closed_seq,
            open_first=first,
            open_count=count,
            open_bytes=size,
            opened_at=opened_at,
            last_event_at=now if seqs else watcher["last_event_at"],
            logged=len(seqs),
            duplicates=duplicates,
            filtered=write.filtered,
            dead=len(write.dead),
        )

    def close_batches(self) -> int:
        now = self._clock()
        with self._transaction(write=False) as tx:
            if not tx.rows("ripe_batches", now=now):
                return 0
        with self._transaction() as tx:
            ripe = tx.rows("ripe_batches", now=now)
            for row in ripe:
                tx.run(
                    "insert_batch",
                    watcher_id=row["id"],
                    first_seq=row["open_first"],
                    last_seq=row["last_seq"],
                    count=row["open_count"],
                    bytes=row["open_bytes"],
                    reason=_reason(row, now),
                    now=now,
                )
                tx.run("close_open_batch", id=row["id"])
            return len(ripe)

    def release_gaps(self) -> None:
        now = self._clock()
        with self._transaction(write=False) as tx:
            names = [row["name"] for row in tx.rows("waiting_sequences")]
        for name in names:
            with self._transaction() as tx:
                watcher = known(tx.row("lock_watcher", name=name), name)
                ordering = ordering_of(watcher) or Ordering(by="", wait=0.0)
                released, dead = Sequencer(tx, watcher, ordering, now).give_up()
                if not released.held:
                    continue
                seqs = tx.take_seqs(len(released.events)) if released.events else ()
                if released.events:
                    subjects = _subjects(watcher, released.events)
                    tx.insert_events(watcher["id"], released.events, released.bodies, seqs, now, subjects)
                write = Write(watcher=name, events=released.events)
                self._batch(tx, watcher, write, released.bodies, seqs, 0, now)
                tx.many("insert_dead_letter", letters_of(dead, watcher["id"], ordering, now))
                tx.run("count_held", id=watcher["id"], held=released.held, late=0)
                if dead:
                    tx.run("count_dead", watcher_id=watcher["id"], n=len(dead))


def _scoped(digests: Sequence[bytes], watcher: Row) -> Sequence[bytes]:
    """The dedup keys as they are stored: those that count for a whole asset carry its name."""
    if not watcher["dedupe_asset"]:
        return digests
    asset = (watcher["asset"] or watcher["name"]).encode()
    return [hashlib.blake2b(digest + asset, digest_size=16).digest() for digest in digests]


def _subjects(watcher: Row, events: Sequence[Event]) -> Sequence[str | None]:
    """What the events of a watcher with a history are found by."""
    if not watcher["history"]:
        return ()
    return [None if event.subject is None else indexed(event.subject) for event in events]


def _paused(watcher: Row, now: float) -> bool:
    """Whether nothing came for the watcher's quiet period."""
    last = watcher["last_event_at"]
    return last is None or bool(last + watcher["batch_quiet"] <= now)


def _reason(row: Row, now: float) -> str:
    """Which limit an open batch has reached."""
    if row["batch_within"] and row["opened_at"] + row["batch_within"] <= now:
        return "within"
    if row["batch_quiet"] and row["last_event_at"] + row["batch_quiet"] <= now:
        return "quiet"
    return "adaptive" if row["batch_target"] else "append"
