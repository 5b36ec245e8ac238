"""Archived events, read again: the log says which files, the archive reads them."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator

from windsock.log import Log
from windsock.log.archive import Archive, ArchivedEvent, ArchiveError, ArchiveFile
from windsock.log.records import Scan

__all__ = ["archived", "archived_files", "read_file"]


def archived(
    log: Log, archive: Archive, query: Scan, *, newest_first: bool = False
) -> Iterator[tuple[ArchiveFile, ArchivedEvent]]:
    """Archived events that match the query, each with its file, in the order of the log.

    Files are opened when their turn comes and read one at a time; memory holds those that overlap.
    """
    matches = _condition(query)
    found = 0
    for file, stored in _in_order(archived_files(log, query), archive, -1 if newest_first else 1):
        if query.limit is not None and found >= query.limit:
            return
        if matches(stored):
            found += 1
            yield file, stored


def archived_files(log: Log, query: Scan) -> list[ArchiveFile]:
    """The files that may hold events that match the query."""
    watchers = query.watchers
    if query.asset is not None:
        of_asset = [spec.name for spec in log.watchers(asset=query.asset)]
        watchers = of_asset if watchers is None else [name for name in of_asset if name in watchers]
    last = query.up_to
    return [
        file
        for file in log.archives(watchers=watchers, since=query.since, until=query.until)
        if file.last_seq > query.after and (last is None or file.first_seq <= last)
    ]


def read_file(archive: Archive, file: ArchiveFile) -> list[ArchivedEvent]:
    """The events of a file, which must be the file that the log remembers."""
    content = archive.get(file.path)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ArchiveError(f"{file.path} is not the file that was archived: its SHA-256 differs")
    return list(archive.unpack(content, file.watcher))


def _in_order(
    files: Iterable[ArchiveFile], archive: Archive, sign: int
) -> Iterator[tuple[ArchiveFile, ArchivedEvent]]:
    """The events of all files by seq; files of one watcher may overlap, since what is late leaves late."""
    waiting = sorted(files, key=lambda file: sign * (file.first_seq if sign > 0 else file.last_seq))
    waiting.reverse()
    opened: list[tuple[int, int, ArchiveFile, list[ArchivedEvent]]] = []
    number = 0
    while waiting or opened:
        while waiting:
            file = waiting[-1]
            begins = sign * (file.first_seq if sign > 0 else file.last_seq)
            if opened and opened[0][0] < begins:
                break
            waiting.pop()
            events = read_file(archive, file)
            if sign > 0:
                events.reverse()
            number += 1
            heapq.heappush(opened, (sign * events[-1].seq, number, file, events))
        _, place, file, events = heapq.heappop(opened)
        yield file, events.pop()
        if events:
            heapq.heappush(opened, (sign * events[-1].seq, place, file, events))


def _condition(query: Scan) -> Callable[[ArchivedEvent], bool]:
    ids = None if query.ids is None else set(query.ids)
    seqs = None if query.seqs is None else set(query.seqs)

    def matches(stored: ArchivedEvent) -> bool:
        if stored.seq <= query.after or (query.up_to is not None and stored.seq > query.up_to):
            return False
        if query.since is not None and stored.received_at < query.since:
            return False
        if query.until is not None and stored.received_at >= query.until:
            return False
        if seqs is not None and stored.seq not in seqs:
            return False
        if ids is None and query.key is None and query.type is None:
            return True
        event = stored.event
        return (
            (ids is None or event.id in ids)
            and query.key in (None, event.key)
            and query.type in (None, event.type)
        )

    return matches
