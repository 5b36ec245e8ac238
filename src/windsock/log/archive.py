"""What the log says about events that leave it: the words of retention, archive and erasure.

The log drives an :class:`Archive`, which knows files and nothing of the log. A file goes this way::

    noted (``writing``) ──▶ written whole ──▶ one transaction: ``stored``, and its events leave the log

A process that is killed leaves the note behind: whoever archives next removes that file and begins anew, so
an event is in the log or in exactly one stored file, never in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from windsock.events import Event, WindsockError
from windsock.spec import Retention

__all__ = ["Archive", "ArchiveError", "ArchiveFile", "ArchivedEvent", "Outcome", "Receipt", "Retained"]


class ArchiveError(WindsockError):
    """An archive cannot be written or read; nothing that it should hold has left the log."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one Dag made of an event before it was archived."""

    dag_id: str
    state: str
    run_id: str | None
    attempts: int


class ArchivedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is archived: the stored bytes, and what became of it."""

    seq: int
    watcher: str
    received_at: float
    body: bytes
    dags: tuple[Outcome, ...] = ()

    @property
    def event(self) -> Event:
        """The event itself, with its place in the log."""
        return Event.decode(self.body, seq=self.seq)


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of archived events, as the log remembers it."""

    path: str
    """A local path, or an object storage URL."""
    watcher: str
    first_seq: int
    last_seq: int
    first_at: float
    """When the oldest of its events was received."""
    last_at: float
    count: int
    bytes: int
    sha256: str
    at: float
    """When it was written."""


class Archive(Protocol):
    """Where files of events are kept."""

    def pack(self, events: Sequence[ArchivedEvent]) -> bytes:
        """The content of a file with these events; the same events give the same bytes."""
        ...

    def unpack(self, content: bytes, watcher: str) -> Iterator[ArchivedEvent]:
        """The events of a file, in their order."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole. When this returns, it is durably there."""

    def get(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def drop(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What a watcher is to keep, and what it holds."""

    watcher: str
    retention: Retention | None
    count: int
    bytes: int
    oldest_at: float | None
    files: int
    archived: int
    archived_bytes: int


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased on request. It names the key only by a hash that is salted with the receipt's id."""

    id: str
    key_hash: str
    """SHA-256 of ``<id>:<key>``: who has the key can check it, nobody can look it up."""
    watcher: str | None
    requested_by: str
    begun_at: float
    finished_at: float | None = None
    """None if it was cut off; asking again erases the rest."""
    deleted: dict[str, int] = {}
    """How many rows, by kind."""
    files: dict[str, int] = {}
    """How many events, by archive file; the file was written anew without them."""
    unread: tuple[int, ...] = ()
    """Dead letters that contain the text of the key, but cannot be read as an event: look at them."""
