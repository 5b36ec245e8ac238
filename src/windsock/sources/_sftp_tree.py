"""The directory behind the SFTP source: what is in it now."""

from __future__ import annotations

import logging
import posixpath
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.sources._files_pattern import Pattern, any_of
from windsock.sources._files_tree import Entry, Scan
from windsock.sources._sftp import speaking

if TYPE_CHECKING:
    from asyncssh import SFTPClient

__all__ = ["RemoteTree", "inside"]

logger = logging.getLogger("windsock.sources.sftp")


def inside(root: str, path: str) -> str:
    """The full path of one that is relative to the top."""
    return posixpath.join(root, path) if path else root


class RemoteTree:
    """A directory on a server and which of its files count."""

    def __init__(
        self,
        sftp: SFTPClient,
        connection: Connection,
        root: str,
        pattern: str,
        *,
        hidden: bool,
        ignore: Iterable[str],
    ) -> None:
        self.root = root
        self._sftp = sftp
        self._connection = connection
        self._address = f"{connection.host or 'localhost'}:{connection.port or 22}"
        self._pattern = Pattern.parse(pattern)
        self._hidden = hidden
        self._ignore = any_of(ignore)
        self._reported: set[str] = set()

    async def scan(self) -> Scan:
        """Walk the tree, without following links to directories."""
        import asyncssh

        scan = Scan()
        waiting = [("", self._pattern)]
        while waiting:
            path, pattern = waiting.pop()
            with speaking(self._connection):
                try:
                    waiting += await self._list(path, pattern, scan)
                except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection):
                    raise
                except asyncssh.SFTPError as error:
                    if not path:
                        raise await self._explain(error) from error
                    gone = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory)
                    if not isinstance(error, gone):
                        scan.unreadable.add(path)
                        self._report(path, error)
        return scan

    async def _list(self, path: str, pattern: Pattern, scan: Scan) -> list[tuple[str, Pattern]]:
        """Add one directory to the scan; the directories in it that are worth a visit."""
        deeper, counts = [], pattern.files()
        async for found in self._sftp.scandir(inside(self.root, path)):
            name = str(found.filename)
            if name in (".", "..") or (name[0] == "." and not self._hidden) or self._ignore(name):
                continue
            inner = f"{path}/{name}" if path else name
            mode = found.attrs.permissions or 0
            if stat.S_ISDIR(mode):
                if within := pattern.enter(name):
                    deeper.append((inner, within))
            elif counts(name) and (entry := await self._entry(inner, found.attrs)):
                scan.files[inner] = entry
        return deeper

    async def _entry(self, path: str, attrs: Any) -> Entry | None:
        """The file as it is now; None if it is gone or no regular file."""
        import asyncssh

        if stat.S_ISLNK(attrs.permissions or 0):
            try:
                attrs = await self._sftp.stat(inside(self.root, path))
            except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPPermissionDenied):
                return None
        if not stat.S_ISREG(attrs.permissions or stat.S_IFREG):
            return None
        mtime = (attrs.mtime or 0) * 1_000_000_000 + (attrs.mtime_ns or 0)
        return Entry(path, mtime, attrs.size or 0, mtime)

    async def _explain(self, error: Exception) -> SourceError:
        import asyncssh

        where = f"directory {self.root} at {self._address}"
        if await self._sftp.isfile(self.root):
            return SourceError(f"{where} is a file: name its directory, and the file as pattern")
        if isinstance(error, asyncssh.SFTPNoSuchFile | asyncssh.SFTPNoSuchPath):
            return SourceError(f"{where} does not exist: create it, or correct the path")
        if isinstance(error, asyncssh.SFTPPermissionDenied):
            return SourceError(f"{where} may not be read: give the login permission to read and enter it")
        return SourceError(f"{where} cannot be read ({error}): check the server's log")

    def _report(self, path: str, error: Exception) -> None:
        if path not in self._reported:
            self._reported.add(path)
            logger.warning(
                "windsock.sftp.unreadable directory=%r error=%s: skipped, its files are not seen",
                inside(self.root, path),
                error,
            )
