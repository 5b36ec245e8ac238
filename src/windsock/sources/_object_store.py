"""What S3, GCS and Azure Blob have in common: one kind, read by listing or through notifications.

A store's source says how its pages are listed, or which queue its notifications come through and what they
mean; which of the two reads is chosen by ``mode``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta
from msgspec.structs import replace

from windsock.connections import UsesConnection
from windsock.envelopes.objects import StoredObject, event_of
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import unreadable
from windsock.sources._listing import Fetch, Found, Listing, ListingOptions, matching
from windsock.sources.base import Cursor, Delivery
from windsock.sources.derived import Derived

__all__ = ["TUNING", "Lister", "Notifications", "ObjectStore", "ObjectStoreOptions"]

TUNING = frozenset({"interval", "late", "settle"})
"""Options of every store that do not change what is read."""
_REMEMBERED = 10_000


class ObjectStoreOptions(ListingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every object store takes."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the store.", min_length=1)]
    mode: Annotated[
        Literal["listing", "notifications"],
        Meta(
            description="How changes are found: `listing` asks the store every `interval` seconds and needs "
            "nothing set up; `notifications` reads the queue to which the store sends its events, at once "
            "and at no cost per object."
        ),
    ] = "listing"
    events: Annotated[
        tuple[Literal["created", "overwritten", "deleted", "restored", "other"], ...],
        Meta(
            description="What to announce. A listing sees `created` and `overwritten`. Notifications tell "
            "`created` (for overwritten objects, too), `deleted`, `restored` and `other`.",
            min_length=1,
        ),
    ] = ("created", "overwritten")

    def check(self, place: str, queue: str) -> None:
        """Raise ValueError unless the options that the mode needs are given."""
        needed = place if self.mode == "listing" else queue
        if not getattr(self, needed):
            raise ValueError(f"mode {self.mode!r} needs the option {needed!r}")


class Lister(Protocol):
    """How a store is listed, for the time of one connection."""

    async def open(self, stack: AsyncExitStack) -> Fetch:
        """Reach the store and return its page function; what is to be closed goes onto the stack."""
        ...

    def stored(self, found: Found) -> StoredObject:
        """What a listed object is to the outside."""
        ...


class ObjectStore(UsesConnection, ABC):
    """A source that reads by listing or through notifications, as its ``mode`` says."""

    def __init__(self, config: Any) -> None:
        self.options = config
        self._reader: _ListingReader | Notifications | None = None

    @abstractmethod
    def lister(self) -> Lister:
        """How the store is listed."""

    @abstractmethod
    def notifications(self) -> Notifications:
        """Where its notifications come from."""

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        if self.options.mode == "listing":
            self._reader = _ListingReader(self.lister(), self.options)
        else:
            derived = self.notifications()
            derived.connections = self.connections
            self._reader = derived
        await self._reader.connect(cursor)

    async def read(self) -> AsyncIterator[Delivery]:
        if self._reader is None:
            raise SourceError(f"source {self.options.conn_id!r} is not connected: call connect first")
        async for delivery in self._reader.read():
            yield delivery

    async def lag(self) -> int | None:
        return None if self._reader is None else await self._reader.lag()

    async def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()


class _ListingReader:
    """Reads a store by listing it."""

    def __init__(self, lister: Lister, options: ObjectStoreOptions) -> None:
        self._lister = lister
        self._options = options
        self._stack = AsyncExitStack()
        self._closed = asyncio.Event()
        self._listing: Listing | None = None
        self._first: Cursor | None = None
        self._looking: asyncio.Task[None] | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        fetch = await self._lister.open(self._stack)
        self._listing = Listing(fetch, self._options, cursor)
        self._first = await self._listing.connect()

    async def read(self) -> AsyncIterator[Delivery]:
        listing = self._listing
        if listing is None:
            return
        if self._first is not None:
            yield Delivery((), cursor=self._first)  # so that a restart knows what was there at the start
        while not self._closed.is_set():
            while taken := await listing.take():
                yield await asyncio.to_thread(self._delivery, *taken)
            await listing.wait(self._closed)
            await self._look(listing)

    async def lag(self) -> int | None:
        try:
            return None if self._listing is None else await self._listing.waiting()
        except SourceError:
            return None  # the read says why

    async def close(self) -> None:
        self._closed.set()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._stack.aclose()

    async def _look(self, listing: Listing) -> None:
        """Look, unless the source is closed meanwhile."""
        if self._closed.is_set():
            return
        self._looking = asyncio.create_task(listing.look(), name="windsock-listing")
        try:
            await asyncio.wait({self._looking})
        finally:
            self._looking.cancel()
        if not self._looking.cancelled():
            self._looking.result()

    def _delivery(self, found: Sequence[Found], cursor: Cursor | None) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for each in found:
            if each.change not in self._options.events:
                continue
            try:
                events.append(event_of(self._lister.stored(each)))
            except InvalidEvent as error:
                dead.append(unreadable(each.item.key.encode("utf-8", "backslashreplace"), error))
        return Delivery(events, cursor=cursor, dead=dead)


class Notifications(Derived):
    """Reads a store through the queue that it notifies.

    What happens to one object comes in the order in which the store says it happened, as far as it arrives
    together. What arrives behind something newer of the same object is announced all the same, with
    ``data.stale`` true; the newest of 10,000 objects are remembered for that.
    """

    def __init__(
        self,
        options: ObjectStoreOptions,
        inner: tuple[str, dict[str, Any]],
        read: Callable[[Event], tuple[Sequence[StoredObject], Sequence[DeadLetter]]],
        place: Mapping[str, str] | None,
    ) -> None:
        """``inner`` is the queue's kind and options, ``read`` tells what one of its messages means, ``place``
        is the bucket or container to announce, or None for all.
        """
        self.options = options
        self._inner = inner
        self._read = read
        self._place = place
        self._matches = matching(options.prefix, options.pattern)
        self._newest: OrderedDict[tuple[str, str], str] = OrderedDict()

    def inner(self) -> tuple[str, dict[str, Any]]:
        return self._inner

    def translate(self, event: Event) -> tuple[Sequence[Event], Sequence[DeadLetter]]:
        body = event.data if isinstance(event.data, bytes) else b""
        try:
            found, dead = self._read(event)
        except InvalidEvent as error:
            return [], [unreadable(body, error, where=event.id)]
        events: list[Event] = []
        dead = list(dead)
        for each in found:
            try:
                events += [event_of(each)] if self._wanted(each) else []
            except InvalidEvent as error:
                dead.append(unreadable(body, error, where=event.id))
        return events, dead

    def _wanted(self, found: StoredObject) -> bool:
        here = self._place is None or found.place == self._place
        return here and found.change in self.options.events and self._matches(found.key)

    def arrange(self, events: list[Event]) -> list[Event]:
        """Put the events of each object into their order, at the places that they have."""
        places: dict[tuple[str, str], list[int]] = {}
        for place, event in enumerate(events):
            if event.sequence and event.key:
                places.setdefault((event.source, event.key), []).append(place)
        arranged = list(events)
        for name, own in places.items():
            ordered = sorted((events[place] for place in own), key=lambda event: event.sequence or "")
            for place, event in zip(own, ordered, strict=True):
                arranged[place] = self._marked(name, event)
        return arranged

    def _marked(self, name: tuple[str, str], event: Event) -> Event:
        """The event, marked if a newer one of the same object came before."""
        sequence = event.sequence or ""
        newest = self._newest.pop(name, "")
        self._newest[name] = max(newest, sequence)
        if len(self._newest) > _REMEMBERED:
            self._newest.popitem(last=False)
        return replace(event, data={**event.data, "stale": True}) if sequence < newest else event
