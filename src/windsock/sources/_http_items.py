"""Mode ``items`` of the HTTP source: the pages of one poll, their items, and which of them are new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, normalise
from windsock.json_path import MISSING, JsonPath
from windsock.messages import unreadable
from windsock.sources._http_client import Answer, HttpClient, shown
from windsock.sources._http_memory import Feed, Item, Listing, Watermark, chunks, digest
from windsock.sources._http_poll import Poll, content_id, plain
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery

if TYPE_CHECKING:
    from windsock.sources.http import HttpConfig

__all__ = ["ItemsPoll"]


class ItemsPoll(Poll):
    """Delivers the new items of a list."""

    def __init__(self, options: HttpConfig, client: HttpClient, cursor: Cursor | None) -> None:
        super().__init__(options, client, cursor)
        self._memory: Listing | Watermark | Feed
        if options.watermark:
            self._memory = Watermark(cursor, options.watermark_start)
        else:
            self._memory = Feed(cursor) if options.resume else Listing(cursor)
        self._list = JsonPath(options.items)
        self._ids = [JsonPath(path) for path in options.id_paths]
        self._time = JsonPath(options.time) if options.time else None
        self._mark = JsonPath(options.watermark) if options.watermark else None
        self._next = JsonPath(options.next) if options.next else None
        self._source = shown(client.url(options.endpoint))

    def first_url(self) -> httpx.URL:
        options, memory, params = self.options, self._memory, dict(self.options.params)
        if options.page_size is not None:
            params[options.page_size_param] = str(options.page_size)
        if options.watermark_param and isinstance(memory, Watermark) and memory.mark is not None:
            params[options.watermark_param] = str(memory.mark)
        if options.paging == "page":
            params[self._page_param] = str(options.first_page)
        url = self.client.url(options.endpoint, params)
        return self._at(url, memory.place) if isinstance(memory, Feed) and memory.place else url

    async def deliveries(self) -> AsyncIterator[Delivery]:
        held: list[Item] = []
        listed: set[bytes] = set()
        first: Answer | None = None
        async for answer, items, place in self._pages():
            first = first or answer
            listed.update(item.digest for item in items)
            if self._whole:
                held += items
                continue
            for delivery in self._deliver(items):
                yield delivery
            if place is not None and isinstance(self._memory, Feed):
                self._memory.turn(place)
        if first is None:
            return
        if not isinstance(self._memory, Feed):
            self._memory.end(listed)
        # One request tells whether there is news only if news shows on the first page.
        tells = self.options.paging == "none" or self.options.newest_first
        for delivery in self._deliver(
            held[::-1] if self.options.newest_first else held, first if tells else None
        ):
            yield delivery
        quiet, self.unread = self.unread and self.options.start == "latest", False
        if quiet:
            yield Delivery([], cursor=self._cursor())

    @property
    def _whole(self) -> bool:
        """Whether a poll is read to its end before anything is delivered, because that orders it."""
        return self.options.paging == "none" or self.options.newest_first or self._mark is not None

    def _deliver(self, items: Sequence[Item], complete: Answer | None = None) -> Iterator[Delivery]:
        """The items that are new; none of them if only what comes after the first poll is wanted.

        ``complete`` is the answer behind which nothing is left once the last one is delivered.
        """
        new = self._memory.new(items)
        quiet = self.unread and self.options.start == "latest"
        for chunk in chunks(new, MAX_DELIVERY):
            for item in chunk:
                self._memory.add(item)
            if complete is not None and chunk[-1] is new[-1]:
                self.validate(complete)
            if not quiet:
                yield self._delivery(chunk)
        if complete is not None and not new:
            self.validate(complete)

    def _delivery(self, items: Sequence[Item]) -> Delivery:
        return Delivery(
            [item.made for item in items if isinstance(item.made, Event)],
            cursor=self._cursor(),
            dead=[item.made for item in items if isinstance(item.made, DeadLetter)],
        )

    def _cursor(self) -> Cursor:
        return {**self._memory.cursor(), **self.validators()}

    async def _pages(self) -> AsyncIterator[tuple[Answer, list[Item], str | None]]:
        """Each page of one poll: the answer, its items, and the place of the next page if it names one."""
        answer = await self.first()
        asked: set[str] = set()
        count = 0
        while answer is not None:
            if len(asked) >= self.options.max_pages:
                raise SourceError(
                    f"{self._source} has more than {self.options.max_pages} pages: narrow what is asked for "
                    "with params or a watermark, or raise max_pages"
                )
            asked.add(str(answer.url))
            document, items = await asyncio.to_thread(self._read, answer)
            count += len(items)
            place = self._named(document)
            yield answer, items, place
            url = self._following(answer, place, items=len(items), pages=len(asked), count=count)
            answer = await self.next(url) if url is not None and str(url) not in asked else None

    def _following(
        self, answer: Answer, place: str | None, *, items: int, pages: int, count: int
    ) -> httpx.URL | None:
        """The address of the next page, or None after the last one."""
        options = self.options
        match options.paging:
            case "link":
                link = _next_link(answer.headers.get("link", ""))
                return self.client.follow(answer.url, link) if link else None
            case "cursor":
                done = place is None or (options.resume and not items)
                return None if done or place is None else self._at(answer.url, place)
            case "page" | "offset":
                if items == 0 or (options.page_size is not None and items < options.page_size):
                    return None
                number = options.first_page + pages if options.paging == "page" else count
                return answer.url.copy_set_param(self._page_param, str(number))
        return None

    def _at(self, url: httpx.URL, place: str) -> httpx.URL:
        """The address of a place: an address or a path as it is, a cursor as a parameter."""
        if place.startswith(("http://", "https://", "/")):
            return self.client.follow(url, place)
        return url.copy_set_param(self._page_param, place)

    @property
    def _page_param(self) -> str:
        return self.options.page_param or self.options.paging

    def _named(self, document: Any) -> str | None:
        found = self._next.find(document) if self._next else None
        if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
            return None
        return str(found)

    def _read(self, answer: Answer) -> tuple[Any, list[Item]]:
        document = self.document(answer)
        found = None if document is None else self._list.find(document)
        if found is not None and not isinstance(found, list):
            what = "nothing" if found is MISSING else "no list"
            raise SourceError(
                f"{shown(answer.url)} has {what} at {self.options.items!r}: set items to the path of the list"
            )
        return document, [self._item(value) for value in found or ()]

    def _item(self, value: Any) -> Item:
        id: str | None = None
        mark: Any = None
        try:
            mark = self._mark_of(value)
            id = self._id_of(value)
            event = Event.make(
                value,
                id=id,
                source=self._source,
                type=self.options.type or "windsock.http.item",
                time=self._time_of(value),
                subject=id if self._ids else None,
            )
            return Item(digest(id), event, mark)
        except InvalidEvent as error:
            body = plain(value)
            return Item(digest(id or body), unreadable(body, error, where=self._source), mark)

    def _id_of(self, value: Any) -> str:
        if not self._ids:
            return content_id(plain(value))
        parts = [path.find(value) for path in self._ids]
        for path, part in zip(self._ids, parts, strict=True):
            if part == "" or not isinstance(part, str | int | float):
                raise InvalidEvent(f"the item has no id at {str(path)!r}: set id to where it stands")
        return "/".join(map(str, parts))

    def _mark_of(self, value: Any) -> Any:
        if self._mark is None:
            return None
        mark = self._mark.find(value)
        known = isinstance(mark, str | int | float) and not isinstance(mark, bool)
        clean = normalise(mark) if known else None
        # NaN and numbers past 64 bits become texts on the way, and no longer compare.
        if type(clean) is not type(mark) or clean is None:
            raise InvalidEvent(f"the item has no watermark at {str(self._mark)!r}: set it to where it stands")
        return clean

    def _time_of(self, value: Any) -> Any:
        found = self._time.find(value) if self._time else None
        return found if isinstance(found, str | int | float) else None


def _next_link(header: str) -> str | None:
    """The address of ``rel="next"`` in a Link header."""
    return httpx.Response(200, headers={"link": header}).links.get("next", {}).get("url")
