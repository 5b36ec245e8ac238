"""Files that appear or change in a directory of an SFTP server.

::

    source = SftpSource(SftpConfig(conn_id="sftp_default", path="/upload", pattern="*.csv"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.subject for event in delivery.events])   # ['orders.csv', ...]
        await delivery.ack()

**Events.** ``windsock.file.created`` and ``windsock.file.modified`` as of the files source; source
``sftp://<conn_id>/<directory>``, subject and key the path relative to it. ``data`` has ``path``, ``name``,
``directory``, ``uri``, ``size`` and ``mtime``. The id is made of path, mtime and size, so that a file
announced again is a duplicate to the log.

**Guarantee.** Every version of a file that stays for ``settle`` seconds and is there at a look is
announced at least once. A file is held back while its size or mtime changes between looks, and names of
unfinished uploads are ignored; senders that rename the finished file into place are always safe. SFTP
tells times in seconds only: a file that is rewritten within a second, with the same size, looks the same.
Files come in the order of mtime and path, look by look.

**Where it resumes.** The cursor lists the announced files that are still there, with some twenty bytes
each: SFTP shows no time of arrival, and senders set the mtime as they like, so a watermark could miss
files. Move or remove what is processed to keep it small; it is meant for directories of up to some 10,000
files.

**Connection.** Type ``sftp`` or ``ssh`` as in Airflow's providers: host, port (22), login, password; in
the extras ``key_file`` or ``private_key`` with ``private_key_passphrase``, ``host_key`` (as ssh-keyscan
writes it), ``host_key_fingerprint`` (``SHA256:...``), ``known_hosts`` (a path, by default
``~/.ssh/known_hosts``) and ``conn_timeout``. The host key is always checked, unless ``no_host_key_check``
is set to true, which is warned about.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import os
import posixpath
import time
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import Category, DeadLetter, Event, InvalidEvent, SourceError
from windsock.sources._ending import Ended, Ending
from windsock.sources._files_changes import Change, Changes
from windsock.sources._files_memory import Inventory
from windsock.sources._files_tree import Entry
from windsock.sources._sftp import open_connection, speaking
from windsock.sources._sftp_tree import RemoteTree, inside
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Guarantees

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

__all__ = ["SftpConfig", "SftpSource"]

_TEMPORARY = ("*.tmp", "*.temp", "*.part", "*.partial", "*.filepart", "*.crdownload", "*.uploading", "*~")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LONGEST_ID = 500


class SftpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files to watch."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the server.", min_length=1)]
    path: Annotated[
        str,
        Meta(
            description="The directory to watch; without a leading '/' from the login's home.", min_length=1
        ),
    ]
    pattern: Annotated[
        str,
        Meta(
            description="Which files, as a glob relative to the directory: `*.csv` for files directly in it, "
            "`*/*.csv` for those one level down, `**/*.csv` for every level.",
            min_length=1,
        ),
    ] = "*"
    recursive: Annotated[
        bool, Meta(description="Look into subdirectories at every level, as if the pattern began with `**/`.")
    ] = False
    interval: Annotated[float, Meta(description="Seconds between two looks at the directory.", gt=0)] = 60.0
    settle: Annotated[
        float,
        Meta(
            description="Seconds for which size and mtime must not change before a file is announced; it is "
            "looked at again when they are over. 0 if files are renamed into place.",
            ge=0,
        ),
    ] = 10.0
    hidden: Annotated[
        bool, Meta(description="Include files and directories whose name begins with a dot.")
    ] = False
    ignore: Annotated[
        tuple[str, ...],
        Meta(
            description="Names of files and directories to leave out, as globs; by default the usual names "
            "of unfinished uploads."
        ),
    ] = _TEMPORARY

    def __post_init__(self) -> None:
        if self.pattern.startswith("/") or ".." in self.pattern.split("/"):
            raise ValueError(
                f"pattern {self.pattern!r} must stay inside the directory: leave out '/' and '..'"
            )


class SftpSource(UsesConnection):
    """Watches a directory of an SFTP server."""

    kind: ClassVar[str] = "sftp"
    config: ClassVar[type[SftpConfig]] = SftpConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        position="log",
        tested="OpenSSH 9.2",
        notes="The key is the path; the files of one look come by mtime, then name. For directories of up to "
        "some 10,000 files.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"interval", "settle"})

    def __init__(self, config: SftpConfig) -> None:
        self.options = config
        self._root = posixpath.normpath(config.path)
        self._watch: _Watch | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        watch = _Watch(self.options, self._root, await self.connection(), cursor)
        try:
            await watch.ending.first(watch.open())
        except BaseException:
            await watch.close()
            raise
        self._watch = watch

    async def read(self) -> AsyncIterator[Delivery]:
        watch = self._watch
        if watch is None:
            raise SourceError(f"directory {self._root} is not being watched: call connect first")
        try:
            while True:
                while taken := await watch.take():
                    changes, cursor = taken
                    events, dead = self._announce(changes, watch.address)
                    yield Delivery(events, cursor=cursor, dead=dead)
                await watch.wait()
                await watch.look()
        except Ended:
            return

    async def lag(self) -> int | None:
        try:
            return await self._watch.waiting() if self._watch else None
        except Ended:
            return None

    async def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch:
            await watch.close()

    def _announce(self, changes: Sequence[Change], address: str) -> tuple[list[Event], list[DeadLetter]]:
        events, dead = [], []
        for change in changes:
            try:
                events.append(self._event(change, address))
            except InvalidEvent as error:
                path = inside(self._root, change.entry.path)
                reason = f"file {_text(path)}: {error}"
                dead.append(
                    DeadLetter(
                        stage="source", category=Category.INVALID, reason=reason, body=os.fsencode(path)
                    )
                )
        return events, dead

    def _event(self, change: Change, address: str) -> Event:
        entry = change.entry
        path, relative = inside(self._root, entry.path), _text(entry.path)
        try:
            mtime = _EPOCH + dt.timedelta(microseconds=entry.mtime_ns // 1000)
        except OverflowError as error:
            raise InvalidEvent(f"its mtime of {entry.mtime_ns} ns is no date: set it with touch") from error
        data = {
            "path": _text(path),
            "name": relative.rpartition("/")[2],
            "directory": _text(posixpath.dirname(path)),
            "uri": f"{address}/{urllib.parse.quote(os.fsencode(path)).lstrip('/')}",
            "size": entry.size,
            "mtime": mtime.isoformat(),
        }
        return Event(
            id=_identity(entry),
            source=f"sftp://{self.options.conn_id}/{urllib.parse.quote(self._root.lstrip('/'))}",
            type=f"windsock.file.{change.kind}",
            time=mtime,
            subject=relative,
            key=relative,
            data=data,
        )


class _Watch:
    """One connection: from ``connect`` to ``close``."""

    def __init__(self, options: SftpConfig, root: str, connection: Connection, cursor: Cursor | None) -> None:
        self._options = options
        self._root = root
        self._connection = connection
        self._changes = Changes(Inventory(cursor), settle=options.settle, events=("created", "modified"))
        self.ending = Ending()
        self._looking = asyncio.Lock()
        self._ssh: SSHClientConnection | None = None
        self._tree: RemoteTree | None = None
        self._lost: asyncio.Task[None] | None = None
        self._scanned = self._took = 0.0
        port = f":{connection.port}" if connection.port not in (None, 22) else ""
        self.address = f"sftp://{connection.host or 'localhost'}{port}"

    async def open(self) -> None:
        """Connect and look for the first time."""
        self._ssh = await open_connection(self._connection)
        self._lost = asyncio.create_task(self._wait_closed(self._ssh), name="windsock-sftp")
        with speaking(self._connection):
            # Names that are not UTF-8 are kept as the operating system's own functions do.
            sftp = await self._ssh.start_sftp_client(path_errors="surrogateescape")
        options, pattern = self._options, self._options.pattern
        if options.recursive and not pattern.startswith("**/"):
            pattern = f"**/{pattern}"
        tree = RemoteTree(
            sftp, self._connection, self._root, pattern, hidden=options.hidden, ignore=options.ignore
        )
        await self._look(tree)
        self._tree = tree

    async def take(self) -> tuple[list[Change], Cursor] | None:
        """The next changes to announce and the cursor after them."""
        async with self._looking:
            return await asyncio.to_thread(self._changes.take, MAX_DELIVERY)

    async def wait(self) -> None:
        """Return when a look may find something: a file that has settled, or the interval."""
        # A huge directory on a slow server may not be looked at all the time.
        pause = min(max(self._options.settle / 4, self._took * 2, 0.05), self._options.interval)
        until = self._scanned + self._options.interval
        if self._changes.due is not None:
            until = min(until, self._changes.due)
        until = max(until, self._scanned + pause)
        await self.ending.first(asyncio.sleep(max(until - time.monotonic(), 0)))

    async def look(self) -> None:
        """Scan the directory and find out what is news."""
        if self._tree:
            await self.ending.first(self._look(self._tree))

    async def waiting(self) -> int:
        """How many files wait; while nobody reads, as of the last interval."""
        if time.monotonic() - self._scanned > self._options.interval:
            await self.look()
        return len(self._changes)

    async def close(self) -> None:
        """Let go of the server."""
        self.ending.end()
        if self._lost:
            self._lost.cancel()
            await asyncio.wait({self._lost})
        if self._ssh:
            self._ssh.close()
            with contextlib.suppress(Exception):  # it is closed, whatever the other side says to that
                async with asyncio.timeout(2):
                    await self._ssh.wait_closed()

    async def _wait_closed(self, ssh: SSHClientConnection) -> None:
        await ssh.wait_closed()
        self.ending.end(
            SourceError(
                f"the connection to {self.address} was closed: check that the server runs; it is tried again"
            )
        )

    async def _look(self, tree: RemoteTree) -> None:
        async with self._looking:
            began = time.monotonic()
            scan = await tree.scan()
            ended = time.monotonic()
            await asyncio.to_thread(self._changes.look, scan, began=began, ended=ended)
            self._scanned, self._took = ended, ended - began


def _identity(entry: Entry) -> str:
    """The id of a version of a file: the same, whoever announces it."""
    path = urllib.parse.quote(os.fsencode(entry.path))
    if len(path) > _LONGEST_ID:
        path = hashlib.blake2b(os.fsencode(entry.path), digest_size=16).hexdigest()
    return f"{path}#{entry.mtime_ns}-{entry.size}"


def _text(path: str) -> str:
    """A path as text that JSON can hold."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
