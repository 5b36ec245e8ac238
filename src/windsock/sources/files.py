"""Files that appear or change in a directory.

::

    source = FilesSource(FilesConfig(path="/data/in", pattern="**/*.csv"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.subject for event in delivery.events])   # ['shop/orders.csv', ...]
        await delivery.ack()

**Events.** ``windsock.file.created``, ``windsock.file.modified`` and, if asked for,
``windsock.file.deleted``; source ``file://<directory>``, subject and key the path relative to it. A renamed
file is created under its new name (and deleted under the old one). ``data`` has ``path``, ``name``,
``directory``, ``uri``, ``size`` and ``mtime``. The id is made of path, mtime and size, so that a file
announced again is a duplicate to the log; the inode is left out because network file systems change it at
will. To have an unchanged file processed again, replay its event or ``touch`` it.

**Guarantee.** Every version of a file that stays for ``settle`` seconds is announced at least once, with
the same id each time. A file is held back while its size or mtime changes; a writer that pauses for longer
is announced before it is done, and again as modified when it goes on. Writers that rename the finished
file into place need no settling at all. Files come in the order of mtime and path, burst by burst.

**Where it resumes.** The cursor is a change-time watermark (see :mod:`windsock.sources._files_memory`), a
few kilobytes however many files there are: what came, changed or was moved in while nobody watched is
announced at the next start, what was announced before is not. A file that was *modified* while nobody
watched is then called created. With ``events`` other than created and modified, the cursor lists every
file instead: exact, deletions while nobody watched included, for directories of some 10,000 files.

**Names** that are not UTF-8 are shown with ``\\xNN`` for each odd byte; ``uri`` always leads back to the
exact name (``os.fsdecode(unquote_to_bytes(uri.removeprefix("file://")))``, from ``urllib.parse``). Links to
files count as files, links to directories are not followed, directories that may not be read are skipped
with a warning.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import os
import threading
import time
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from windsock.events import Category, DeadLetter, Event, InvalidEvent, SourceError
from windsock.sources._files_changes import Change, Changes
from windsock.sources._files_memory import Inventory, Watermark
from windsock.sources._files_tree import Bell, Scan, Tree
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

__all__ = ["FilesConfig", "FilesSource"]

_TEMPORARY = ("*.tmp", "*.temp", "*.part", "*.partial", "*.filepart", "*.crdownload", "*.swp", "*.swx", "*~")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LONGEST_ID = 500


class FilesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files to watch."""

    path: Annotated[
        str, msgspec.Meta(description="The directory to watch, as an absolute path.", min_length=1)
    ]
    pattern: Annotated[
        str,
        msgspec.Meta(
            description="Which files, as a glob relative to the directory: `*.csv` for files directly in it, "
            "`*/*.csv` for those one level down, `**/*.csv` for every level.",
            min_length=1,
        ),
    ] = "*"
    recursive: Annotated[
        bool,
        msgspec.Meta(
            description="Look into subdirectories at every level, as if the pattern began with `**/`. Off by "
            "default, so that a Dag may move what it has processed into a subdirectory."
        ),
    ] = False
    settle: Annotated[
        float,
        msgspec.Meta(
            description="Seconds for which size and mtime must not change before a file is announced. "
            "0 if files are renamed into place.",
            ge=0,
        ),
    ] = 2.0
    rescan: Annotated[
        float,
        msgspec.Meta(
            description="Seconds between full scans, which find what file notifications do not tell, such as "
            "changes made on another host of a network file system.",
            gt=0,
        ),
    ] = 10.0
    events: Annotated[
        tuple[Literal["created", "modified", "deleted"], ...],
        msgspec.Meta(description="What to announce: `created`, `modified`, `deleted`.", min_length=1),
    ] = ("created", "modified")
    hidden: Annotated[
        bool, msgspec.Meta(description="Include files and directories whose name begins with a dot.")
    ] = False
    ignore: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Names of files and directories to leave out, as globs; by default the usual names "
            "of unfinished downloads and editors' copies."
        ),
    ] = _TEMPORARY

    def __post_init__(self) -> None:
        if not os.path.isabs(self.path):
            raise ValueError(f"path {self.path!r} is not absolute: processes differ in where they start")
        if self.pattern.startswith("/") or ".." in self.pattern.split("/"):
            raise ValueError(
                f"pattern {self.pattern!r} must stay inside the directory: leave out '/' and '..'"
            )


class FilesSource:
    """Watches a directory for files."""

    kind: ClassVar[str] = "files"
    config: ClassVar[type[FilesConfig]] = FilesConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        position="log", tested="a local file system", notes="Ordered by the time of change, then the name."
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"settle", "rescan"})

    def __init__(self, config: FilesConfig) -> None:
        self._config = config
        self._root = os.path.normpath(config.path)
        pattern = config.pattern
        if config.recursive and not pattern.startswith("**/"):
            pattern = f"**/{pattern}"
        self._tree = Tree(self._root, pattern, hidden=config.hidden, ignore=config.ignore)
        self._watch: _Watch | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        watch = _Watch(self._config, self._tree, cursor)
        try:
            await watch.look()
        except BaseException:
            await watch.close()
            raise
        self._watch = watch

    async def read(self) -> AsyncIterator[Delivery]:
        watch = self._watch
        if watch is None:
            raise SourceError(f"directory {self._root} is not being watched: call connect first")
        while not watch.closed:
            while taken := await watch.take():
                changes, cursor = taken
                events, dead = await asyncio.to_thread(self._announce, changes)
                yield Delivery(events, cursor=cursor, dead=dead)
            await watch.wait()
            await watch.look()

    async def lag(self) -> int | None:
        try:
            return await self._watch.waiting() if self._watch else None
        except SourceError:
            return None  # the read says why

    async def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch:
            await watch.close()

    def _announce(self, changes: Sequence[Change]) -> tuple[list[Event], list[DeadLetter]]:
        events, dead = [], []
        for change in changes:
            try:
                events.append(self._event(change))
            except InvalidEvent as error:
                path = f"{self._root}/{change.entry.path}"
                dead.append(
                    DeadLetter(
                        stage="source",
                        category=Category.INVALID,
                        reason=f"file {_text(path)}: {error}",
                        body=os.fsencode(path),
                    )
                )
        return events, dead

    def _event(self, change: Change) -> Event:
        entry = change.entry
        relative, directory = _text(entry.path), os.path.dirname(f"{self._root}/{entry.path}")
        try:
            mtime = _EPOCH + dt.timedelta(microseconds=entry.mtime_ns // 1000)
        except OverflowError as error:
            raise InvalidEvent(f"its mtime of {entry.mtime_ns} ns is no date: set it with touch") from error
        data = {
            "path": f"{_text(self._root)}/{relative}",
            "name": relative.rpartition("/")[2],
            "directory": _text(directory),
            "uri": _uri(f"{self._root}/{entry.path}"),
            "size": entry.size,
            "mtime": mtime.isoformat(),
        }
        return Event(
            id=_identity(change),
            source=_uri(self._root),
            type=f"windsock.file.{change.kind}",
            time=mtime,
            subject=relative,
            key=relative,
            data=data,
        )


class _Watch:
    """One connection: from ``connect`` to ``close``."""

    def __init__(self, config: FilesConfig, tree: Tree, cursor: Cursor | None) -> None:
        self._config = config
        self._tree = tree
        exact = set(config.events) != {"created", "modified"}
        memory = Inventory(cursor) if exact else Watermark(cursor)
        self._changes = Changes(memory, settle=config.settle, events=config.events)
        self._stop = threading.Event()
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._bell = Bell(self._ring)
        # Held by threads, which outlive the cancelled task that started them.
        self._lock = threading.Lock()
        self._root: int | None = None
        self._waiting = 0
        self._due: float | None = None
        self._scanned = 0.0
        self._took = 0.0

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    async def look(self) -> None:
        """Scan the directory and find out what is news."""
        await asyncio.to_thread(self._look)

    async def take(self) -> tuple[list[Change], Cursor] | None:
        """The next changes to announce and the cursor after them."""
        return None if self.closed else await asyncio.to_thread(self._take)

    async def waiting(self) -> int:
        """How many files wait; while nobody reads, as of the last rescan interval."""
        if time.monotonic() - self._scanned > self._config.rescan:
            await self.look()
        return self._waiting

    async def wait(self) -> None:
        """Return when a look may find something: a change, a settled file, or the rescan interval."""
        # Neither a busy directory nor a huge one may keep a core scanning.
        pause = min(max(self._config.settle / 4, self._took * 2, 0.01), self._config.rescan)
        due, rescan = self._due, self._scanned + self._config.rescan
        await _until(self._scanned + pause, self._closed)
        if not self.closed:
            await _until(rescan if due is None else min(due, rescan), self._woken)
        self._woken.clear()

    async def close(self) -> None:
        self._stop.set()
        self._closed.set()
        self._woken.set()
        await asyncio.to_thread(self._bell.stop)

    def _look(self) -> None:
        with self._lock:
            began = time.monotonic()
            scan = self._tree.scan(self._stop.is_set)
            if scan is None:
                return
            self._check(scan)
            self._changes.look(scan, began=began, ended=time.monotonic())
            self._waiting, self._due = len(self._changes), self._changes.due
            self._scanned = time.monotonic()
            self._took = self._scanned - began
            root = self._tree.root
            self._bell.listen(frozenset(f"{root}/{path}" if path else root for path in scan.directories))

    def _take(self) -> tuple[list[Change], Cursor] | None:
        with self._lock:
            taken = self._changes.take(MAX_DELIVERY)
            self._waiting, self._due = len(self._changes), self._changes.due
            return taken

    def _check(self, scan: Scan) -> None:
        root = scan.directories[""].inode
        if self._root not in (None, root):
            raise SourceError(
                f"directory {self._tree.root} was replaced by another: watching starts over; "
                "if it is a mount, check that it is there"
            )
        self._root = root

    def _ring(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to wake


async def _until(moment: float, event: asyncio.Event) -> None:
    """Wait for the event, but no longer than to that moment of the monotonic clock."""
    try:
        async with asyncio.timeout(max(moment - time.monotonic(), 0)):
            await event.wait()
    except TimeoutError:
        pass  # the time is what was waited for


def _identity(change: Change) -> str:
    """The id of what happened: the same for the same version of a file, whoever announces it."""
    entry = change.entry
    path = urllib.parse.quote(os.fsencode(entry.path))
    if len(path) > _LONGEST_ID:
        path = hashlib.blake2b(os.fsencode(entry.path), digest_size=16).hexdigest()
    gone = "-deleted" if change.kind == "deleted" else ""
    return f"{path}#{entry.mtime_ns}-{entry.size}{gone}"


def _text(path: str) -> str:
    """A path as text that JSON can hold."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _uri(path: str) -> str:
    return "file://" + urllib.parse.quote(os.fsencode(path))
