"""The directory behind the files source: what is in it now, and a bell that rings when it changes."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import watchfiles

from windsock.events import SourceError
from windsock.sources._files_pattern import Pattern, any_of

__all__ = ["Bell", "Directory", "Entry", "Scan", "Tree", "parent"]

logger = logging.getLogger("windsock.sources.files")

Version = tuple[int, int]


class Entry(NamedTuple):
    """A file as one scan saw it; ``path`` is relative, undecodable bytes in it are surrogates."""

    path: str
    mtime_ns: int
    size: int
    ctime_ns: int

    @property
    def version(self) -> Version:
        """What tells one content of a file from the next."""
        return (self.mtime_ns, self.size)


class Directory(NamedTuple):
    """A directory as one scan saw it."""

    inode: int
    ctime_ns: int


@dataclass(slots=True)
class Scan:
    """What one walk through the tree found. The top directory has the path ``""``."""

    files: dict[str, Entry] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def hides(self, path: str) -> bool:
        """Whether the walk could not see if this file is there."""
        while self.unreadable and path:
            path = parent(path)
            if path in self.unreadable:
                return True
        return False


def parent(path: str) -> str:
    """The directory of a relative path; ``""`` is the top."""
    return path.rpartition("/")[0]


class Tree:
    """A directory and which of its files count."""

    def __init__(self, root: str, pattern: str, *, hidden: bool, ignore: Iterable[str]) -> None:
        self.root = root
        self._pattern = Pattern.parse(pattern)
        self._hidden = hidden
        self._ignore = any_of(ignore)
        self._reported: set[str] = set()

    def scan(self, stopped: Callable[[], bool] = lambda: False) -> Scan | None:
        """Walk the tree, without following links to directories; None if stopped on the way."""
        scan = Scan()
        waiting = [("", self._pattern)]
        while waiting:
            if stopped():
                return None
            path, pattern = waiting.pop()
            try:
                waiting += self._read(path, pattern, scan)
            except OSError as error:
                if not path:
                    raise self._explain(error) from error
                if not isinstance(error, FileNotFoundError | NotADirectoryError):
                    scan.unreadable.add(path)
                    self._report(path, error)
        return scan

    def _read(self, path: str, pattern: Pattern, scan: Scan) -> list[tuple[str, Pattern]]:
        """Add one directory to the scan; the directories in it that are worth a visit."""
        place = f"{self.root}/{path}" if path else self.root
        found = os.stat(place)
        deeper, counts = [], pattern.files()
        with os.scandir(place) as entries:
            for item in entries:
                if (item.name[0] == "." and not self._hidden) or self._ignore(item.name):
                    continue
                inner = f"{path}/{item.name}" if path else item.name
                if item.is_dir(follow_symlinks=False):
                    if inside := pattern.enter(item.name):
                        deeper.append((inner, inside))
                elif counts(item.name) and (entry := _stat(item, inner)):
                    scan.files[inner] = entry
        scan.directories[path] = Directory(found.st_ino, found.st_ctime_ns)
        return deeper

    def _explain(self, error: OSError) -> SourceError:
        if isinstance(error, FileNotFoundError):
            return SourceError(f"directory {self.root} does not exist: create it, or correct the path")
        if isinstance(error, NotADirectoryError):
            return SourceError(f"{self.root} is not a directory: name its directory, and the file as pattern")
        if isinstance(error, PermissionError):
            return SourceError(
                f"directory {self.root} may not be read by this process: "
                "give its user permission to read and enter it"
            )
        return SourceError(f"directory {self.root} cannot be read ({error}): check the disk or the mount")

    def _report(self, path: str, error: OSError) -> None:
        if path not in self._reported:
            self._reported.add(path)
            logger.warning(
                "windsock.files.unreadable directory=%r error=%s: skipped, its files are not seen",
                f"{self.root}/{path}",
                error.strerror,
            )


def _stat(item: os.DirEntry[str], path: str) -> Entry | None:
    """The file behind a directory entry; None if it is gone or no regular file."""
    try:
        found = item.stat()
        if not stat.S_ISREG(found.st_mode):
            return None
        ctime = found.st_ctime_ns
        if item.is_symlink():
            # A new link to an old file is news: the link's own change counts as well.
            ctime = max(ctime, item.stat(follow_symlinks=False).st_ctime_ns)
    except OSError:
        return None
    return Entry(path, found.st_mtime_ns, found.st_size, ctime)


class Bell:
    """Calls ``ring`` from a thread soon after something changed in the directories it listens to.

    A thread of our own rather than ``watchfiles.awatch``, whose set-up would hold the event loop while it
    visits a large tree. Directories are given one by one rather than recursively, because the recursive
    watch follows links out of the tree.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._directories: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._deaf = False
        self._lock = threading.Lock()

    def listen(self, directories: frozenset[str]) -> None:
        """Listen to these directories from now on."""
        with self._lock:
            if directories == self._directories or self._deaf:
                return
            self._stop.set()
            self._stop, self._directories = threading.Event(), directories
            self._thread = threading.Thread(
                target=self._run, args=(directories, self._stop), name="windsock-files", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        with self._lock:
            self._deaf = True
            self._stop.set()
        if self._thread:
            self._thread.join()

    def _run(self, directories: frozenset[str], stop: threading.Event) -> None:
        try:
            changed = watchfiles.watch(
                *directories,
                watch_filter=None,
                debounce=200,
                step=150,  # how long a change may go unseen; the wake-ups of many quiet watchers add up
                rust_timeout=1000,
                yield_on_timeout=True,
                stop_event=stop,
                recursive=False,
                ignore_permission_denied=True,
            )
            # The first turn, even if empty, says that the watch stands: what came before it is looked for.
            for turn, changes in enumerate(changed):
                if changes or turn == 0:
                    self._ring()
        except FileNotFoundError:
            pass  # a directory went away; the next scan names those that are left
        except (OSError, RuntimeError) as error:
            self._deaf = True
            logger.warning(
                "windsock.files.unwatched directories=%d error=%s: changes are found by rescans only; "
                "if a watch limit was reached, raise fs.inotify.max_user_watches",
                len(directories),
                error,
            )
