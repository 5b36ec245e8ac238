"""An archive in memory, for tests: it forgets nothing, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from windsock.log.archive import ArchivedEvent, ArchiveError

__all__ = ["MemoryArchive"]


class MemoryArchive:
    """Implements :class:`windsock.log.archive.Archive`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.broken = ""
        """Paths that contain this text cannot be written."""

    def pack(self, events: Sequence[ArchivedEvent]) -> bytes:
        return msgspec.json.encode(events)

    def unpack(self, content: bytes, watcher: str) -> Iterator[ArchivedEvent]:
        yield from msgspec.json.decode(content, type=list[ArchivedEvent])

    def put(self, path: str, content: bytes) -> None:
        if self.broken and self.broken in path:
            raise ArchiveError(f"{path}: the disk is full")
        self.files[path] = content

    def get(self, path: str) -> bytes:
        if path not in self.files:
            raise ArchiveError(f"{path}: no such file")
        return self.files[path]

    def drop(self, path: str) -> None:
        self.files.pop(path, None)
