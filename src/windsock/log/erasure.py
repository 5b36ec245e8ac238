"""What is erased on request: everything that is stored of one key, in the log and in its archives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec

from windsock.events import Event, LeaseLost
from windsock.log.archive import Archive, ArchivedEvent, ArchiveError, ArchiveFile, Receipt
from windsock.log.records import Lease
from windsock.log.retention import Forgetting, forget, packed
from windsock.log.subjects import indexed
from windsock.log.transaction import Row, check_lease

_BATCH = 1000


class Erasure(Forgetting):
    """The part of the log that forgets what it is asked to forget."""

    def stored_bodies(
        self, kind: Literal["letters", "verdicts"], *, watcher: str | None = None
    ) -> Iterator[tuple[int, str, bytes]]:
        after = 0
        while True:
            with self._transaction(write=False) as tx:
                rows = tx.rows(f"stored_{kind}", watcher=watcher or "", after=after, size=_BATCH)
            for row in rows:
                yield row["id"], row["watcher"], bytes(row["body"])
            if len(rows) < _BATCH:
                return
            after = rows[-1]["id"]

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
        found: Counter[str] = Counter(letters=len(letters), verdicts=len(verdicts))
        with self._transaction(write=False) as tx:
            watchers = [row for row in tx.rows("all_watchers") if watcher in (None, row["name"])]
            found.update(dict(tx.rows("count_derived", key=key)[0]))
            for row in watchers:
                found.update(dict(tx.rows("count_of_key", key=key, watcher_id=row["id"])[0]))
        if not dry_run:
            found, seen = Counter(), {key, *subjects}
            for row in watchers:
                found += self._erase_watcher(row, key, seen)
            with self._transaction() as tx:
                # First of all: an append that is under way is waited for, and what it stored goes below.
                tx.many("end_lease", [{"name": name} for name in sorted(readers)])
                found["letters"] += sum(tx.run("erase_letter", id=letter) for letter in letters)
                found["verdicts"] += sum(tx.run("erase_verdict", id=verdict) for verdict in verdicts)
                tx.run("erase_saga_steps", key=key)
                for kind in ("rule_states", "view_rows", "sagas"):
                    found[kind] += tx.run(f"erase_{kind}", key=key)
                for kind in ("moves", "standings"):
                    found[kind] += tx.run(f"forget_{kind}", subject=indexed(key))
                for subject in sorted(map(indexed, seen)):
                    found["snapshots"] += tx.run("forget_snapshots", subject=subject)
        return {kind: count for kind, count in found.items() if count}

    def _erase_watcher(self, row: Row, key: str, subjects: set[str]) -> Counter[str]:
        """Erase one watcher's part, and add the subjects of its events."""
        gone: Counter[str] = Counter()
        place = {"watcher_id": row["id"], "key": key}
        while True:
            with self._transaction() as tx:
                tx.rows("lock_places", watcher_id=row["id"])
                events = tx.rows("events_of_key", size=_BATCH, **place)
                subjects.update(subject for one in events if (subject := Event.decode(one["body"]).subject))
                forget(tx, row["id"], [one["seq"] for one in events])
                # What came back is counted already: as purged, or by its file, until that is written anew.
                erased = sum(one["restored_at"] is None for one in events)
                if erased:
                    tx.run("count_forgotten", watcher_id=row["id"], purged=0, erased=erased)
                tx.run("pass_nothing", watcher_id=row["id"])
            gone["events"] += len(events)
            if len(events) < _BATCH:
                break
        with self._transaction() as tx:
            tx.rows("lock_watcher", name=row["name"])
            gone["held"] += tx.run("erase_held", **place)
            if gone["held"]:
                tx.run("count_held", id=row["id"], held=-gone["held"], late=0)
            gone["sequences"] += tx.run("erase_sequence", **place)
        return gone

    def rewrite_archives(
        self,
        archive: Archive,
        unwanted: Callable[[ArchivedEvent], bool],
        *,
        watcher: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, int]:
        files = self.archives(watchers=None if watcher is None else [watcher])
        if not files:
            return {}
        lease = None if dry_run else self._begin_archiving(archive)
        removed: dict[str, int] = {}
        try:
            for file in self.archives(watchers=None if watcher is None else [watcher]):
                events = list(archive.unpack(archive.get(file.path), file.watcher))
                kept = [event for event in events if not unwanted(event)]
                if len(kept) == len(events):
                    continue
                removed[file.path] = len(events) - len(kept)
                if lease is not None:
                    self._replace(archive, file, kept, lease)
        except LeaseLost as error:
            raise ArchiveError(f"{error}: ask again when the other one is done") from error
        finally:
            if lease is not None:
                self.release(lease)
        return removed

    def _replace(
        self, archive: Archive, file: ArchiveFile, kept: Sequence[ArchivedEvent], lease: Lease
    ) -> None:
        """Write a file anew; the old one counts until the new one does, and is then removed."""
        with self._transaction(write=False) as tx:
            watcher_id = tx.rows("get_watcher", name=file.watcher)[0]["id"]
        new = None
        if kept:
            base = file.path.rpartition("/watcher=")[0]
            new, content = packed(archive, base, kept, self._clock())
            self._write_file(archive, watcher_id, new, content, lease)
        with self._transaction() as tx:
            check_lease(tx, lease)
            tx.run("mark_archive", path=file.path, state="leaving")
            if new is not None:
                tx.run("mark_archive", path=new.path, state="stored")
            tx.run("count_forgotten", watcher_id=watcher_id, purged=0, erased=file.count - len(kept))
        archive.drop(file.path)
        with self._transaction() as tx:
            tx.run("forget_archive", path=file.path)

    def put_receipt(self, receipt: Receipt) -> None:
        with self._transaction() as tx:
            text = msgspec.json.encode(receipt).decode()
            tx.run("put_receipt", id=receipt.id, begun_at=receipt.begun_at, receipt=text)

    def receipts(self) -> list[Receipt]:
        with self._transaction(write=False) as tx:
            return [msgspec.json.decode(row["receipt"], type=Receipt) for row in tx.rows("list_receipts")]
