"""Which files are news: compares scans with what is known and holds back what is still being written.

A file, from one scan to the next::

                 first seen, or other size or mtime
      (absent) ────────────────▶ SETTLING ──same for ``settle``──▶ KNOWN: created, or modified if known before
                                   ▲  │                             │ │
                 size or mtime     └──┘ changes again               │ └─ absent for ``settle``: deleted
                 changes             ◀──────────────────────────────┘

Times are handed in, from any clock that only goes forward.
"""

from __future__ import annotations

from typing import NamedTuple

from windsock.sources._files_memory import Memory
from windsock.sources._files_tree import Entry, Scan, Version
from windsock.sources.base import Cursor

__all__ = ["Change", "Changes"]

ROUND = 10_000
"""How many files are put in order together; bounds what a cursor lists in the middle of a burst."""


class Change(NamedTuple):
    """One thing that happened to one file; a deleted file is shown as it last was."""

    kind: str
    entry: Entry


class _Waiting(NamedTuple):
    entry: Entry | None
    since: float


class Changes:
    """The files' state between two restarts."""

    def __init__(self, memory: Memory, *, settle: float, events: tuple[str, ...]) -> None:
        self._memory = memory
        self._settle = settle
        self._events = events
        self._known: dict[str, Version] = {}
        self._recalled = False
        self._waiting: dict[str, _Waiting] = {}
        self._ready: list[Change] = []
        self._round: list[Change] = []

    def __len__(self) -> int:
        """How many changes wait to be announced."""
        deleted = "deleted" in self._events
        return sum(1 for waiting in self._waiting.values() if waiting.entry or deleted)

    @property
    def due(self) -> float | None:
        """When the next file will have settled, if nothing touches it."""
        first = min((waiting.since for waiting in self._waiting.values()), default=None)
        return None if first is None else first + self._settle

    def look(self, scan: Scan, *, began: float, ended: float) -> None:
        """Compare a scan, which took from ``began`` to ``ended``, with what is known."""
        if not self._recalled:
            self._known, self._recalled = self._memory.recall(scan), True
        self._memory.observe(scan)
        before, self._waiting = self._waiting, {}
        for path, entry in scan.files.items():
            if self._known.get(path) != entry.version:
                same = (last := before.get(path)) and last.entry and last.entry.version == entry.version
                self._waiting[path] = _Waiting(entry, last.since if last and same else ended)
        for path in self._known.keys() - scan.files.keys():
            if not scan.hides(path):
                same = (last := before.get(path)) and last.entry is None
                self._waiting[path] = _Waiting(None, last.since if last and same else ended)
        self._collect(began)

    def take(self, limit: int) -> tuple[list[Change], Cursor] | None:
        """The next changes by mtime and path, and the cursor after them; None if there are none."""
        if not self._round:
            self._round = sorted(self._ready[:ROUND], key=lambda c: (c.entry.mtime_ns, c.entry.path))
            del self._ready[:ROUND]
        taken = self._round[:limit]
        if not taken:
            return None
        del self._round[:limit]
        for change in taken:
            self._settled(change)
        announced = [change.entry for change in taken if change.kind != "deleted"]
        waiting = (waiting.entry for waiting in self._waiting.values() if waiting.entry)
        return taken, self._memory.cursor(announced, waiting, self._known)

    def _collect(self, began: float) -> None:
        """Part what has settled into changes to announce and those that nobody asked for."""
        # Settled is what was the same at the end of an earlier scan and at the beginning of this one.
        ages = {path: began - waiting.since for path, waiting in self._waiting.items()}
        settling = [
            self._memory.change(waiting.entry)
            for path, waiting in self._waiting.items()
            if waiting.entry and self._settle and ages[path] < self._settle
        ]
        first = min(settling, default=None)
        ready = []
        for path, waiting in list(self._waiting.items()):
            if self._settle and ages[path] < self._settle:
                continue
            if waiting.entry is None:
                change = Change("deleted", Entry(path, *self._known[path], 0))
            else:
                change = Change("modified" if path in self._known else "created", waiting.entry)
            if change.kind not in self._events:
                self._settled(change)
            elif first is None or self._memory.change(change.entry) < first or ages[path] > 2 * self._settle:
                # Otherwise an older file was seen later, for a scan is no snapshot: it goes first, but as
                # clocks can be wrong, it is not waited for longer than once more the time to settle.
                ready.append(change)
        self._ready = sorted(ready, key=lambda change: self._memory.change(change.entry))
        self._round = []

    def _settled(self, change: Change) -> None:
        del self._waiting[change.entry.path]
        if change.kind == "deleted":
            del self._known[change.entry.path]
        else:
            self._known[change.entry.path] = change.entry.version
