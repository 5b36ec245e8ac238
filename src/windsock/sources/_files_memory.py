"""What the files source remembers of the files it has announced, as a cursor.

Two ways, for two needs:

:class:`Watermark` stays small however many files there are. A file's change time moves forward when it is
written, replaced or renamed into place, and nobody can set it back, so "everything up to this change time
is announced" is one number. Around it:

* The number is never past a file that still waits, nor past the newest file of the scan before the last: a
  scan is not a snapshot, and may miss a file that is older than one it saw.
* It trails the newest announced file by a minute or by 500 files, whichever is less; what was announced
  in between is listed. This covers ties, late visibility on network file systems and a clock that is
  stepped back a little.
* Files that are moved in together with their directory keep their old change time, but the directory's own
  moves. So known directories are listed too, and what is in an unlisted one counts as changed when that
  directory last was.

Where it cannot be sure, it takes a file for new: announced again under the same id, a duplicate to the log.

:class:`Inventory` lists every file. It is exact, knows a created from a modified file and sees what was
deleted while nobody watched, and grows by some twenty bytes per file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from windsock.sources._files_tree import Directory, Entry, Scan, Version, parent
from windsock.sources.base import Cursor

__all__ = ["Inventory", "Memory", "Watermark"]

HORIZON_NS = 60 * 1_000_000_000
HORIZON_FILES = 500
MAX_DIRECTORIES = 2000
_FILE, _DIRECTORY = 8, 4  # bytes of a digest


class Memory(Protocol):
    """How announced files are remembered across a restart."""

    def recall(self, scan: Scan) -> dict[str, Version]:
        """The announced files, given the first scan after a restart."""
        ...

    def observe(self, scan: Scan) -> None:
        """Take note of a scan."""

    def change(self, entry: Entry) -> int:
        """When the file last changed or came here, in nanoseconds."""
        ...

    def cursor(
        self, announced: Sequence[Entry], waiting: Iterable[Entry], known: Mapping[str, Version]
    ) -> Cursor:
        """The cursor after these files were announced too, while those still wait."""
        ...


class Watermark:
    """A change time up to which everything is announced, and what little is announced beyond it."""

    def __init__(self, cursor: Cursor | None) -> None:
        cursor = cursor or {}
        mark = cursor.get("ctime", 0)
        if mark > time.time_ns() + HORIZON_NS:
            cursor, mark = {}, 0  # the clock was set back since: the mark says nothing about new files
        self._mark: int = mark
        self._recent: list[tuple[int, bytes]] = []
        self._seen = _split(cursor.get("seen", ""), _FILE)
        self._listed = _split(cursor.get("dirs", ""), _DIRECTORY)
        self._directories: dict[str, Directory] = {}
        self._arrivals: dict[str, int] = {}
        self._newest = self._limit = 0

    def recall(self, scan: Scan) -> dict[str, Version]:
        self._place(scan.directories)
        known = {}
        for entry in scan.files.values():
            change = self.change(entry)
            if change > self._mark:
                digest = _digest_file(entry)
                if digest not in self._seen:
                    continue
                self._recent.append((change, digest))
            known[entry.path] = entry.version
        return known

    def observe(self, scan: Scan) -> None:
        self._place(scan.directories)
        if any(self._arrivals.values()):
            # Its arrival matters only to files that look older than the mark.
            self._arrived_but(entry.path for entry in scan.files.values() if entry.ctime_ns <= self._mark)
        self._limit = self._newest
        self._newest = max((entry.ctime_ns for entry in scan.files.values()), default=self._newest)

    def change(self, entry: Entry) -> int:
        return max(entry.ctime_ns, self._arrivals.get(parent(entry.path), 0))

    def cursor(
        self, announced: Sequence[Entry], waiting: Iterable[Entry], known: Mapping[str, Version]
    ) -> Cursor:
        self._recent += [(self.change(entry), _digest_file(entry)) for entry in announced]
        self._recent.sort()
        # Past now, a mark would not be trusted after a restart.
        floor, arriving = min(self._limit + 1, time.time_ns() + HORIZON_NS), []
        for entry in waiting:
            change = self.change(entry)
            floor = min(floor, change)
            if change > entry.ctime_ns:
                arriving.append(entry.path)
        newest = self._recent[-1][0] if self._recent else 0
        keep = len(self._recent) - HORIZON_FILES
        for index, (change, _) in enumerate(self._recent):
            if change >= floor or (change > newest - HORIZON_NS and index >= keep):
                break
            self._mark = max(self._mark, change)
        self._recent = [recent for recent in self._recent if recent[0] > self._mark]
        self._arrived_but(arriving)
        listed = [path for path, arrival in self._arrivals.items() if not arrival]
        if len(listed) > MAX_DIRECTORIES:
            listed = sorted(listed, key=lambda path: self._directories[path].ctime_ns)[-MAX_DIRECTORIES:]
        return {
            "ctime": self._mark,
            "seen": _join(digest for _, digest in self._recent),
            "dirs": _join(_digest_directory(path, self._directories[path]) for path in listed),
        }

    def _arrived_but(self, waiting: Iterable[str]) -> None:
        """A directory has arrived, and is listed, when no file in or below it waits for its sake."""
        arriving: set[str] = set()
        for path in waiting:
            while path:
                path = parent(path)
                if path in arriving:
                    break
                arriving.add(path)
        for path in self._arrivals.keys() - arriving:
            self._arrivals[path] = 0

    def _place(self, directories: Mapping[str, Directory]) -> None:
        """Tell known directories from those that just came, which bring what is below them."""
        arrivals: dict[str, int] = {}
        for path in sorted(directories, key=lambda path: path.count("/") if path else -1):
            found, before = directories[path], self._directories.get(path)
            above = arrivals.get(parent(path), 0) if path else 0
            if before and before.inode == found.inode:
                arrivals[path] = self._arrivals[path]
            elif _digest_directory(path, found) in self._listed:
                arrivals[path] = 0
            else:
                arrivals[path] = max(above, found.ctime_ns)
        self._arrivals, self._directories = arrivals, dict(directories)


class Inventory:
    """Every announced file, by path."""

    def __init__(self, cursor: Cursor | None) -> None:
        self._known: dict[str, Version] = {}
        if packed := (cursor or {}).get("known"):
            fields = zlib.decompress(base64.b64decode(packed)).split(b"\0")
            for path, mtime, size in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
                self._known[os.fsdecode(path)] = (int(mtime), int(size))

    def recall(self, scan: Scan) -> dict[str, Version]:
        return self._known

    def observe(self, scan: Scan) -> None:
        """Nothing beyond the files themselves matters here."""

    def change(self, entry: Entry) -> int:
        return entry.ctime_ns

    def cursor(
        self, announced: Sequence[Entry], waiting: Iterable[Entry], known: Mapping[str, Version]
    ) -> Cursor:
        lines = (b"%b\0%d\0%d" % (os.fsencode(path), *version) for path, version in sorted(known.items()))
        return {"known": base64.b64encode(zlib.compress(b"\0".join(lines), 1)).decode() if known else ""}


def _digest_file(entry: Entry) -> bytes:
    text = b"%b\0%d\0%d" % (os.fsencode(entry.path), entry.mtime_ns, entry.size)
    return hashlib.blake2b(text, digest_size=_FILE).digest()


def _digest_directory(path: str, found: Directory) -> bytes:
    return hashlib.blake2b(b"%b\0%d" % (os.fsencode(path), found.inode), digest_size=_DIRECTORY).digest()


def _join(digests: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(digests)).decode()


def _split(text: str, size: int) -> set[bytes]:
    whole = base64.b64decode(text)
    return {whole[at : at + size] for at in range(0, len(whole), size)}
