"""Deletion on request: everything that is stored of one key, with a receipt.

::

    receipt = erase(log, key="customer-17", requested_by="privacy@example.com", archive=ParquetArchive())
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from windsock.archive import ParquetArchive
from windsock.events import Event, InvalidEvent, WindsockError
from windsock.log import Log
from windsock.log.archive import Archive, ArchivedEvent, Receipt
from windsock.pipeline.expressions import Evaluate, compile_text
from windsock.rules.tide import ReadsLog
from windsock.sources import source_class, source_key

__all__ = ["erase"]


def erase(
    log: Log,
    *,
    key: str,
    watcher: str | None = None,
    requested_by: str = "",
    archive: Archive | None = None,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> Receipt:
    """Delete what the log and its archives hold of a key, of one watcher or of all; what was deleted.

    Events go, whoever still needs them, and with them what Dags have of them, what waits for its turn, dead
    letters, verdicts, what rules remember, snapshots and rows of read models; archive files are written anew
    without them. Correlations that run begin anew with what is left. Dedup hashes stay, so that the source
    cannot bring the events back. May be asked again: it deletes what is left. A dry run counts, and keeps no
    receipt.
    """
    if watcher is not None and log.watcher(watcher) is None:
        raise WindsockError(f"watcher {watcher!r} is not registered in the log: see windsock retention")
    archive = archive or ParquetArchive()
    name = uuid.uuid4().hex
    receipt = Receipt(
        id=name,
        key_hash=hashlib.sha256(f"{name}:{key}".encode()).hexdigest(),
        watcher=watcher,
        requested_by=requested_by,
        begun_at=clock(),
    )
    deleted: Counter[str] = Counter()
    subjects: set[str] = set()

    def unwanted(stored: ArchivedEvent) -> bool:
        event = stored.event
        if event.key == key and event.subject:
            subjects.add(event.subject)
        return event.key == key

    def from_log() -> Receipt:
        letters, unread = _matching(log, "letters", key, watcher)
        verdicts, _ = _matching(log, "verdicts", key, watcher)
        found = log.erase(
            key,
            watcher=watcher,
            letters=letters,
            verdicts=verdicts,
            subjects=subjects,
            readers=_readers(log),
            dry_run=dry_run,
        )
        deleted.update(found)
        return msgspec.structs.replace(receipt, deleted=dict(deleted), unread=tuple(unread))

    if not dry_run:
        log.put_receipt(receipt)
    receipt = from_log()
    if not dry_run:
        log.put_receipt(receipt)
    files = log.rewrite_archives(archive, unwanted, watcher=watcher, dry_run=dry_run)
    if dry_run:
        return msgspec.structs.replace(receipt, files=files)
    # Once more, for what was restored from a file meanwhile.
    receipt = msgspec.structs.replace(from_log(), files=files, finished_at=clock())
    log.put_receipt(receipt)
    return receipt


def _readers(log: Log) -> set[str]:
    """The sources that read the log itself, and may have something of a key in mind."""
    found = set()
    for spec in log.watchers():
        with contextlib.suppress(WindsockError):  # a kind that is not installed here
            if issubclass(source_class(spec.kind), ReadsLog):
                found.add(source_key(spec.kind, spec.options))
    return found


def _matching(
    log: Log, kind: Literal["letters", "verdicts"], key: str, watcher: str | None
) -> tuple[list[int], list[int]]:
    """The letters or verdicts of a key, and those that contain its text but are no events."""
    keys: dict[str, Evaluate | None] = {}
    mine, unread = [], []
    text = key.encode()
    for number, name, body in log.stored_bodies(kind, watcher=watcher):
        try:
            event = Event.decode(body)
        except InvalidEvent:
            if text in body:
                unread.append(number)
            continue
        if name not in keys:
            spec = log.watcher(name)
            found = spec.key if spec else None
            keys[name] = compile_text(found, watcher=name, option="key") if found else None
        expression = keys[name]
        # What ended before the key was taken has none yet.
        has = event.key if event.key is not None or expression is None else expression(event)
        if has == key:
            mine.append(number)
    return mine, unread
