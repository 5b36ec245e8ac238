"""What is forgotten: events past their watcher's limits, first written to its archive if it has one."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import socket
import uuid
from collections.abc import Mapping, Sequence

from windsock.events import Event, LeaseLost
from windsock.log.archive import Archive, ArchivedEvent, ArchiveError, ArchiveFile, Outcome, Retained
from windsock.log.records import Lease
from windsock.log.registry import Registry, spec_of
from windsock.log.subjects import indexed
from windsock.log.transaction import LogError, Row, Transaction, check_lease
from windsock.spec import Retention

__all__ = ["Forgetting", "forget", "packed", "restore_event"]

_BATCH = 1000
_PAGE = 200
FILE_EVENTS, FILE_BYTES = 5000, 16_000_000
"""A file is full with so many events or bytes; they leave the log in one transaction."""

_LEASE = "windsock-archive"
_LEASE_SECONDS = 120.0
"""Longer than it takes to write a file."""

_GRACE = 3600.0
"""Seconds for which an event that came out of the archive stays, for a replay to plan it."""

_OVERDUE = "e.seq > :after AND e.seq <= :cut AND NOT EXISTS (SELECT 1 FROM restored r WHERE r.seq = e.seq)"
_RESTORED = "e.seq IN (SELECT r.seq FROM restored r WHERE r.at < :before)"


class Forgetting(Registry):
    """The part of the log that keeps it small."""

    def purge(self, *, before: float, archive: Archive | None = None) -> int:
        now = self._clock()
        with self._transaction(write=False) as tx:
            watchers = tx.rows("all_watchers")
        purged = 0
        for row in watchers:
            self._forget_restored(row["id"], now)
            if _limits(row).archive is None and not _kept(row):
                purged += self._forget_overdue(row, before, now)
        with self._transaction() as tx:
            tx.run("purge_claims", before=before)
            tx.run("purge_batches", before=before)
            tx.run("purge_announcements", before=before)
            tx.run("purge_letters", before=before)
            tx.run("purge_dedup", now=now)
        archiving = [row for row in watchers if _limits(row).archive is not None]
        if archive is not None and archiving:
            purged += self._archive_all(archiving, archive, before, now)
        return purged

    def retained(self) -> list[Retained]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("retained")
        return [
            Retained(
                retention=spec_of(row).retention,
                **{name: row[name] for name in Retained.__struct_fields__ if name != "retention"},
            )
            for row in rows
        ]

    def archives(
        self,
        *,
        watchers: Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[ArchiveFile]:
        pieces = {"since": "a.last_at >= :since", "until": "a.first_at < :until"}
        given = {name: value for name, value in (("since", since), ("until", until)) if value is not None}
        where = " AND ".join(pieces[name] for name in given) or "1 = 1"
        with self._transaction(write=False) as tx:
            rows = tx.rows(self._fill("list_archives", where), **given)
        return [ArchiveFile(**row) for row in rows if watchers is None or row["watcher"] in watchers]

    def restore(self, file: ArchiveFile, events: Sequence[ArchivedEvent]) -> int:
        now = self._clock()
        with self._transaction() as tx:
            known = tx.row("lock_archive", path=file.path)
            if known is None:
                raise LogError(f"archive file {file.path} has changed meanwhile: read it again")
            return sum(restore_event(tx, known["watcher_id"], event, now) for event in events)

    # limits

    def _cut(self, row: Row, before: float, now: float) -> int:
        """The newest event of the watcher that is past a limit: it and everything older may go."""
        limits, ids = _limits(row), {"watcher_id": row["id"]}
        if limits.age is not None:
            before = now - limits.age
        with self._transaction(write=False) as tx:
            young = tx.row("first_since", before=before, **ids)
            cuts = [young["seq"] - 1 if young else row["closed_seq"]]
            if limits.count is not None:
                cuts += [found["seq"] for found in tx.rows("beyond_count", count=limits.count, **ids)]
            if limits.bytes is not None:
                cuts += [found["seq"] for found in tx.rows("beyond_bytes", bytes=limits.bytes, **ids)]
        return int(max(cuts))

    def _forget_overdue(self, row: Row, before: float, now: float) -> int:
        cut, after, gone = self._cut(row, before, now), 0, 0
        statement = self._fill("unneeded_events", _OVERDUE)
        while True:
            with self._transaction() as tx:
                tx.rows("lock_places", watcher_id=row["id"])
                rows = tx.rows(statement, watcher_id=row["id"], after=after, cut=cut, size=_BATCH, bodies=0)
                forget(tx, row["id"], [found["seq"] for found in rows])
                if rows:
                    tx.run("count_forgotten", watcher_id=row["id"], purged=len(rows), erased=0)
            gone += len(rows)
            if len(rows) < _BATCH:
                return gone
            after = rows[-1]["seq"]

    def _forget_restored(self, watcher_id: int, now: float) -> None:
        """Events that came out of the archive for a replay go again when that is over."""
        statement = self._fill("unneeded_events", _RESTORED)
        while True:
            with self._transaction() as tx:
                tx.rows("lock_places", watcher_id=watcher_id)
                rows = tx.rows(statement, watcher_id=watcher_id, before=now - _GRACE, size=_BATCH, bodies=0)
                forget(tx, watcher_id, [found["seq"] for found in rows])
            if len(rows) < _BATCH:
                return

    # archive

    def _archive_all(self, watchers: Sequence[Row], archive: Archive, before: float, now: float) -> int:
        """Archive what is overdue; a watcher whose archive fails does not keep the others from theirs."""
        moved, troubles = 0, list[str]()
        lease = self._begin_archiving(archive)
        try:
            for row in watchers:
                try:
                    moved += self._archive(row, archive, self._cut(row, before, now), lease)
                except ArchiveError as error:
                    troubles.append(f"watcher {row['name']!r}: {error}")
        finally:
            self.release(lease)
        if troubles:
            raise ArchiveError(f"{'; '.join(troubles)} (its events stay in the log and are tried again)")
        return moved

    def _begin_archiving(self, archive: Archive) -> Lease:
        """Be the only one that writes archives, and remove what a process that was killed left behind."""
        owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        lease = self.acquire(_LEASE, owner, _LEASE_SECONDS)
        if lease is None:
            raise ArchiveError("another process is archiving: it goes on, or is taken over in 2 minutes")
        with self._transaction(write=False) as tx:
            loose = [row["path"] for row in tx.rows("loose_archives")]
        for path in loose:
            archive.drop(path)
            with self._transaction() as tx:
                tx.run("forget_archive", path=path)
        return lease

    def _archive(self, row: Row, archive: Archive, cut: int, lease: Lease) -> int:
        moved, after = 0, 0
        while events := self._next_file(row, after, cut):
            file, content = packed(archive, str(_limits(row).archive), events, self._clock())
            try:
                self._write_file(archive, row["id"], file, content, lease)
                moved += self._move(row["id"], file, [event.seq for event in events], lease)
            except LeaseLost as error:
                archive.drop(file.path)
                raise ArchiveError(f"{error}: the other one archives these events") from error
            after = events[-1].seq
        return moved

    def _next_file(self, row: Row, after: int, cut: int) -> list[ArchivedEvent]:
        """The oldest events that are overdue and that nobody needs, of one day, as many as fill a file."""
        statement = self._fill("unneeded_events", _OVERDUE)
        found: list[Row] = []
        size = 0
        with self._transaction(write=False) as tx:
            while len(found) < FILE_EVENTS and size < FILE_BYTES:
                page = tx.rows(statement, watcher_id=row["id"], after=after, cut=cut, size=_PAGE, bodies=1)
                today = [one for one in page if _day(one) == _day(found[0] if found else page[0])]
                found += today
                size += sum(len(one["body"]) for one in today)
                if len(today) < _PAGE:
                    break
                after = page[-1]["seq"]
            dags: dict[int, list[Outcome]] = {}
            if found:
                ends = {"first": found[0]["seq"], "last": found[-1]["seq"]}
                for one in tx.rows("outcomes_between", watcher_id=row["id"], **ends):
                    outcome = Outcome(**{name: one[name] for name in Outcome.__struct_fields__})
                    dags.setdefault(one["seq"], []).append(outcome)
        return [
            ArchivedEvent(
                seq=one["seq"],
                watcher=row["name"],
                received_at=one["received_at"],
                body=bytes(one["body"]),
                dags=tuple(dags.get(one["seq"], ())),
            )
            for one in found
        ]

    def _write_file(
        self, archive: Archive, watcher_id: int, file: ArchiveFile, content: bytes, lease: Lease
    ) -> None:
        """Note the file, then write it: whoever finds the note without the rest removes the file."""
        self.renew(lease, _LEASE_SECONDS)
        with self._transaction() as tx:
            check_lease(tx, lease)
            fields = {
                name: getattr(file, name) for name in ArchiveFile.__struct_fields__ if name != "watcher"
            }
            tx.run("note_archive", watcher_id=watcher_id, **fields)
        archive.put(file.path, content)

    def _move(self, watcher_id: int, file: ArchiveFile, seqs: Sequence[int], lease: Lease) -> int:
        """Let the file count and its events go; if one of them is needed again, neither."""
        statement = self._fill("unneeded_events", _OVERDUE)
        with self._transaction() as tx:
            check_lease(tx, lease)
            tx.rows("lock_places", watcher_id=watcher_id)
            tx.rows("lock_entries", watcher_id=watcher_id, first=file.first_seq, last=file.last_seq)
            ends = {"after": file.first_seq - 1, "cut": file.last_seq}
            left = tx.rows(statement, watcher_id=watcher_id, size=2 * FILE_EVENTS, bodies=0, **ends)
            if not {row["seq"] for row in left}.issuperset(seqs):
                tx.run("mark_archive", path=file.path, state="leaving")
                return 0
            tx.run("mark_archive", path=file.path, state="stored")
            forget(tx, watcher_id, seqs)
        return len(seqs)


def packed(
    archive: Archive, base: str, events: Sequence[ArchivedEvent], now: float
) -> tuple[ArchiveFile, bytes]:
    """The file that these events of one watcher and day make, and its content."""
    content = archive.pack(events)
    digest = hashlib.sha256(content).hexdigest()
    first, last = events[0].seq, events[-1].seq
    name = f"{first:012d}-{last:012d}-{digest[:12]}.parquet"
    day = dt.datetime.fromtimestamp(events[0].received_at, dt.UTC).date()
    file = ArchiveFile(
        path=f"{base.rstrip('/')}/watcher={events[0].watcher}/day={day}/{name}",
        watcher=events[0].watcher,
        first_seq=first,
        last_seq=last,
        first_at=min(event.received_at for event in events),
        last_at=max(event.received_at for event in events),
        count=len(events),
        bytes=len(content),
        sha256=digest,
        at=now,
    )
    return file, content


def restore_event(tx: Transaction, watcher_id: int, stored: ArchivedEvent, now: float) -> int:
    """Put an event back in its old place, settled for the Dags that had passed it; 0 if it is there."""
    event: Event = stored.event
    place = {"watcher_id": watcher_id, "seq": stored.seq}
    new = tx.run(
        "restore_event",
        id=event.id,
        type=event.type,
        key=event.key,
        subject=event.subject and indexed(event.subject),
        received_at=stored.received_at,
        body=stored.body,
        **place,
    )
    if not new:
        tx.run("stay_restored", seq=stored.seq, now=now)
        return 0
    for one in stored.dags:
        # What a Dag that was gone had not settled is not pending again because of somebody's replay.
        state = "dead" if one.state == "dead" else "done"
        tx.run("restore_entry", dag_id=one.dag_id, state=state, attempts=one.attempts, **place)
    tx.run("restore_other_entries", **place)
    tx.run("mark_restored", seq=stored.seq, now=now)
    return 1


def _limits(row: Row) -> Retention:
    return spec_of(row).retention or Retention()


def _kept(row: Row) -> bool:
    """Whether the events are the history that state is made of: that goes only by limits of its own."""
    return bool(row["history"]) and spec_of(row).retention is None


def _day(row: Mapping[str, float]) -> int:
    return int(row["received_at"] // 86400)


def forget(tx: Transaction, watcher_id: int, seqs: Sequence[int]) -> None:
    """Delete events and who had them."""
    tx.many("purge_event", [{"seq": seq} for seq in seqs])
    tx.many("purge_entry", [{"seq": seq, "watcher_id": watcher_id} for seq in seqs])
    tx.many("purge_restored", [{"seq": seq} for seq in seqs])
