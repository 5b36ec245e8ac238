"""Finding new objects by listing a store, page by page: the same for S3, GCS and Azure Blob.

A store lists by key, so what is new by *time* can stand anywhere: a sweep looks at every key below the
prefix. It does so in pages and never holds more than one page, what is new, and what it remembers (see
:mod:`windsock.sources._listing_memory`)::

    sweep ──page──▶ known? ──no──▶ settled? ──yes──▶ found ──▶ deliveries of up to 1000, oldest first
      ▲                                │                        (a backlog past ROUND: in the order of keys,
      └──── interval ◀── end of list ◀─┘ held back               the sweep goes on when it is taken)

Where keys only ever grow (``2026/11/15/...``, counters, ULIDs), ``order='key'`` goes on shortly before the
last key instead, and lists only the end again.

A store is an async function that returns one page; see :data:`Fetch`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from windsock.sources._files_pattern import Match, Pattern
from windsock.sources._listing_memory import ByKey, ByTime, Item
from windsock.sources.base import MAX_DELIVERY, Cursor

__all__ = ["Fetch", "Found", "Item", "Listing", "ListingOptions", "Page", "matching"]

ROUND = 20_000
"""How many new objects are put in order together; past that a backlog comes in the order of keys."""
KNOWN_KEYS = 200_000
"""Of so many keys it is remembered that they exist, to tell overwritten from created."""


class ListingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every object store takes when it is watched by listing."""

    prefix: Annotated[
        str, Meta(description="Watch only keys that begin so, such as `in/`. The store filters by it.")
    ] = ""
    pattern: Annotated[
        str,
        Meta(
            description="Which keys, as a glob for what follows the prefix: `*.csv` for those directly below "
            "it, `**/*.csv` for every level.",
            min_length=1,
        ),
    ] = "**"
    interval: Annotated[float, Meta(description="Listing: seconds from one listing to the next.", gt=0)] = (
        30.0
    )
    order: Annotated[
        Literal["time", "key"],
        Meta(
            description="Listing: `time` finds every new or overwritten object, wherever its key sorts, by "
            "listing the whole prefix each time. `key` lists only the last 200 keys and those behind them: "
            "for keys that only ever grow, such as those that begin with a date."
        ),
    ] = "time"
    late: Annotated[
        float,
        Meta(
            description="Listing by time: how many seconds an object may appear after its Last-Modified. S3 "
            "dates a multipart upload at its beginning: set it to the longest upload. What was announced in "
            "that time is remembered, some 100 bytes an object.",
            ge=0,
        ),
    ] = 3600.0
    settle: Annotated[
        float,
        Meta(
            description="Listing: seconds for which an object must not change before it is announced. Stores "
            "show only finished objects, so it is needed only for those that are rewritten again and again.",
            ge=0,
        ),
    ] = 0.0
    start: Annotated[
        Literal["earliest", "latest"],
        Meta(description="Listing, at the very first start: announce what is there already, or only news."),
    ] = "earliest"


class Page(NamedTuple):
    """One page of a listing, in the order of keys; ``next`` is what the store wants for the next one."""

    items: Sequence[Item]
    next: Any = None


Fetch = Callable[[Any, str | None], Awaitable[Page]]
"""``fetch(token, after)`` returns the page of a token; without a token the first page, of keys behind
``after``. Raises SourceError."""


class Found(NamedTuple):
    """An object to announce."""

    change: Literal["created", "overwritten"]
    item: Item


class Listing:
    """What is new in a store; see the module's docstring."""

    def __init__(self, fetch: Fetch, options: ListingOptions, cursor: Cursor | None) -> None:
        self._fetch = fetch
        self._options = options
        self._matches = matching(options.prefix, options.pattern)
        self._memory = (ByKey if options.order == "key" else ByTime)(cursor, options.late)
        self._baseline = cursor is None and options.start == "latest"
        self._lock = asyncio.Lock()
        self._token: Any = None
        self._sweeping = False
        self._looked = 0.0
        self._found: list[Found] = []
        self._held: dict[bytes, float] = {}
        self._holding: dict[bytes, float] = {}
        self._keys: set[int] = set()
        self._listed: set[int] = set()

    async def connect(self) -> Cursor | None:
        """Take position; a cursor if it is worth keeping before anything is announced."""
        if self._memory.forgetful:
            await self._walk(self._memory.recall)
            await asyncio.to_thread(self._memory.recalled)
        if self._baseline:
            self._memory.begin()
            await self._walk(self._pass)
            self._keys, self._listed = self._listed, set()
            return self._memory.cursor(sweeping=False, more=False)
        await self.look()
        return None

    async def look(self) -> None:
        """List until the end or until enough is found; does nothing while what was found waits."""
        async with self._lock:
            if self._found:
                return
            if not self._sweeping:
                self._memory.begin()
                self._token, self._holding, self._sweeping = None, {}, True
            while self._sweeping and len(self._found) < ROUND:
                page = await self._fetch(self._token, self._memory.after)
                self._token = page.next
                self._sweeping = self._sort_out(page.items) and page.next is not None
            if not self._sweeping:
                self._held = self._holding
                self._keys, self._listed = self._listed, set()
            if self._options.order == "time":
                self._found.sort(key=lambda found: (found.item.modified, found.item.key))
            self._looked = time.monotonic()
            if not self._found:
                await asyncio.to_thread(self._memory.cursor, sweeping=False, more=False)

    async def take(self) -> tuple[list[Found], Cursor | None] | None:
        """The next objects to announce and the cursor after them; None if there are none."""
        async with self._lock:
            taken = self._found[:MAX_DELIVERY]
            if not taken:
                return None
            del self._found[:MAX_DELIVERY]
            self._memory.announce([found.item for found in taken])
            more = bool(self._found)
            return taken, await asyncio.to_thread(self._memory.cursor, sweeping=self._sweeping, more=more)

    async def waiting(self) -> int:
        """How many new objects wait; while nobody reads, as of the last interval."""
        if time.monotonic() - self._looked > self._options.interval:
            await self.look()
        return len(self._found) + len(self._held)

    async def wait(self, closed: asyncio.Event) -> None:
        """Return when a look may find something: at once in a backlog, else after the interval."""
        if self._sweeping:
            return
        moment, settle = self._looked + self._options.interval, self._options.settle
        if self._held:
            moment = min(max(min(self._held.values()) + settle, self._looked + settle / 4), moment)
        try:
            async with asyncio.timeout(max(moment - time.monotonic(), 0)):
                await closed.wait()
        except TimeoutError:
            pass  # the time is what was waited for

    def _sort_out(self, items: Sequence[Item]) -> bool:
        """Take what is new from a page; False if nothing behind it may be announced yet."""
        now = time.monotonic()
        for item in items:
            if not self._memory.is_news(item):
                self._exists(item)
            elif not self._matches(item.key):
                self._memory.dismiss(item)
            elif not self._settling(item, now):
                self._found.append(Found("overwritten" if self._exists(item) else "created", item))
            elif not self._memory.hold(item):
                return False
        return True

    def _settling(self, item: Item, now: float) -> bool:
        """Whether the object is too young; it is then held back."""
        if not self._options.settle:
            return False
        since = self._held.get(item.digest, now)
        if now - since >= self._options.settle:
            return False
        self._holding[item.digest] = since
        return True

    def _exists(self, item: Item) -> bool:
        """Whether the key was there at the last sweep, as far as is remembered."""
        key = hash(item.key)
        if len(self._listed) < KNOWN_KEYS:
            self._listed.add(key)
        return key in self._keys

    def _pass(self, items: Sequence[Item]) -> None:
        """Take a page as announced, whatever is in it."""
        for item in items:
            self._memory.is_news(item)
            self._exists(item)
        self._memory.announce(items)

    async def _walk(self, visit: Callable[[Sequence[Item]], None]) -> None:
        """Show every page of the prefix to somebody."""
        token = None
        while True:
            page = await self._fetch(token, None)
            visit(page.items)
            token = page.next
            if token is None:
                return


def matching(prefix: str, pattern: str) -> Match:
    """A test whether a key is wanted; one that ends in a slash is a folder that a console made, no object."""
    parsed = Pattern.parse(pattern)

    @lru_cache(maxsize=1024)
    def names(directory: str) -> Match | None:
        inside: Pattern | None = parsed
        for part in directory.split("/") if directory else ():
            inside = inside.enter(part) if inside else None
        return inside.files() if inside else None

    def matches(key: str) -> bool:
        if not key.startswith(prefix) or key.endswith("/"):
            return False
        directory, _, name = key[len(prefix) :].rpartition("/")
        match = names(directory)
        return match is not None and match(name)

    return matches
