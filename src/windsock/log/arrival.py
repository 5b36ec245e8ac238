"""What arrives: events, dedup keys, dead letters, cursors and batches, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windsock.events import Event, Verdict
from windsock.log.base import REMEMBERED, Appended, Lease, Write
from windsock.log.transaction import Row, SqlPart, Transaction, check_lease, known


class Arrival(SqlPart):
    """The part of the log that takes events in and closes their batches."""

    def append(
        self,
        writes: Sequence[Write],
        *,
        source: str | None = None,
        cursor: dict[str, Any] | None = None,
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
        return [results[index] for index in range(len(writes))]

    def _append_one(self, tx: Transaction, write: Write, now: float) -> Appended:
        watcher = known(tx.row("lock_watcher", name=write.watcher), write.watcher)
        events = list(write.events)
        bodies = list(write.bodies) or [event.encode() for event in events]
        seqs = tx.take_seqs(len(events)) if events else ()
        duplicates: list[tuple[Event, int]] = []
        if write.dedup:
            expires_at = None if watcher["dedupe"] is None else now + watcher["dedupe"]
            # Backwards, so that of two events with one key inside the write the earlier one stays.
            first = dict(zip(reversed(write.dedup), reversed(seqs), strict=True))
            seen = tx.remember(list(first), list(first.values()), expires_at, now)
            if seen or len(first) < len(events):
                first |= seen
                fresh = [first[digest] == seq for digest, seq in zip(write.dedup, seqs, strict=True)]
                duplicates = [
                    (event, first[digest])
                    for event, digest, new in zip(events, write.dedup, fresh, strict=True)
                    if not new
                ]
                bodies = [body for body, new in zip(bodies, fresh, strict=True) if new]
                events = [event for event, new in zip(events, fresh, strict=True) if new]
                seqs = [seq for seq, new in zip(seqs, fresh, strict=True) if new]
        if events:
            tx.insert_events(watcher["id"], events, bodies, seqs, now)
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

        for seq, body in zip(seqs, bodies, strict=True):
            if first is None:
                first, opened_at = seq, now
            count += 1
            size += len(body)
            if count >= watcher["batch_size"]:
                shut(seq, "size")
            elif size >= watcher["batch_bytes"]:
                shut(seq, "bytes")
        if count and (write.flush or not (watcher["batch_within"] or watcher["batch_quiet"])):
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
                waited = row["batch_within"] and row["opened_at"] + row["batch_within"] <= now
                tx.run(
                    "insert_batch",
                    watcher_id=row["id"],
                    first_seq=row["open_first"],
                    last_seq=row["last_seq"],
                    count=row["open_count"],
                    bytes=row["open_bytes"],
                    reason="within" if waited else "quiet",
                    now=now,
                )
                tx.run("close_open_batch", id=row["id"])
            return len(ripe)
