"""An HTTP endpoint that is asked again and again: new items of a list, a value or a body that changes.

::

    source = HttpSource(HttpConfig(
        conn_id="shop_api", endpoint="v1/orders", items="data.orders", id="id",
        paging="link", watermark="updated_at", watermark_param="since",
    ))
    await source.connect(None)                       # asks once: what is wrong is told here

**What it watches** is its ``mode``. ``items``: each item of the list at ``items`` is an event,
``windsock.http.item``. ``version``: the value at ``value``, ``windsock.http.version`` with ``value``,
``previous`` and the whole ``body``. ``change``: the answer itself, by its ETag or else its content,
``windsock.http.change``.

**Guarantee.** At least once; every item that the API still shows at the next poll, in the order in which it
lists them (by watermark, if there is one). Of a value that changes twice between two polls only the last one
is seen.

**Where it resumes.** The cursor says what was delivered: the watermark and the items that have it; with
``resume`` the API's own cursor; with neither, eight bytes for each item that stands on the list.

**Id.** The item's own (``id``), or a hash of its content; for a value or body the number of the change and a
hash.

**Being a good guest.** Unchanged answers cost nothing (``If-None-Match``, ``If-Modified-Since``), where one
request tells: without paging, or with ``newest_first``. ``Retry-After`` and the usual rate limit headers are
respected, between pages too. The Connection is described in :mod:`windsock.sources._http_client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import SourceError
from windsock.json_path import JsonPath
from windsock.sources._http_client import Closed, HttpClient
from windsock.sources._http_items import ItemsPoll
from windsock.sources._http_poll import Poll, StatePoll
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["HttpConfig", "HttpSource"]


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to ask, and what in the answer is an event."""

    conn_id: Annotated[
        str, Meta(description="Airflow Connection (type http) with the host and credentials.", min_length=1)
    ]
    endpoint: Annotated[str, Meta(description="Path on the Connection's host, such as `v1/orders`.")] = ""
    params: Annotated[
        dict[str, str], Meta(description="Query parameters. Secret ones belong into the Connection.")
    ] = {}
    headers: Annotated[
        dict[str, str], Meta(description="Headers to send. Secret ones belong into the Connection.")
    ] = {}
    mode: Annotated[
        Literal["items", "version", "change"],
        Meta(
            description="What is an event: each new item of a list, a value that changed, or an answer that "
            "changed."
        ),
    ] = "items"
    items: Annotated[
        str, Meta(description="Where the list stands in the answer, as a JSON path; `$` is the whole of it.")
    ] = "$"
    id: Annotated[
        str | tuple[str, ...] | None,
        Meta(
            description="Where an item's id stands in it, as a JSON path, or several that make it up "
            "(`['id', 'updated_at']` makes an event of every update). Without one the content is the id."
        ),
    ] = None
    time: Annotated[str | None, Meta(description="Where an item's time stands in it, as a JSON path.")] = None
    value: Annotated[
        str | None, Meta(description="With mode `version`: where the value stands, as a JSON path.")
    ] = None
    type: Annotated[
        str | None, Meta(description="Event type; by default `windsock.http.` and item, version or change.")
    ] = None
    start: Annotated[
        Literal["earliest", "latest"],
        Meta(
            description="The very first time: `earliest` takes what is there as news, `latest` only what "
            "comes after."
        ),
    ] = "earliest"
    interval: Annotated[float, Meta(description="Seconds between two polls.", ge=0.1)] = 60.0
    paging: Annotated[
        Literal["none", "link", "cursor", "page", "offset"],
        Meta(
            description="How to get the next page: `link` by the Link header, `cursor` by a value in the "
            "answer (`next`), `page` by a page number, `offset` by a count of items."
        ),
    ] = "none"
    next: Annotated[
        str | None,
        Meta(
            description="With paging `cursor`: where the next page's cursor, or its whole address, stands in "
            "the answer, as a JSON path."
        ),
    ] = None
    page_param: Annotated[
        str | None,
        Meta(
            description="Query parameter that takes the cursor, page number or offset; by default `cursor`, "
            "`page` or `offset`."
        ),
    ] = None
    first_page: Annotated[int, Meta(description="Number of the first page.", ge=0)] = 1
    page_size: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Items to ask for on a page; a page with fewer is the last."),
    ] = None
    page_size_param: Annotated[
        str, Meta(description="Query parameter that takes the page size.", min_length=1)
    ] = "limit"
    max_pages: Annotated[
        int, Meta(description="Pages in one poll; more are an error, so that no API is read for ever.", ge=1)
    ] = 1000
    newest_first: Annotated[
        bool,
        Meta(description="The API lists the newest first: a poll's items are delivered in reverse."),
    ] = False
    resume: Annotated[
        bool,
        Meta(
            description="With paging `cursor`: keep the last cursor and go on from there at the next poll, "
            "for feeds of changes whose cursors stay valid."
        ),
    ] = False
    watermark: Annotated[
        str | None,
        Meta(
            description="Where a value that grows (a time, a number) stands in an item, as a JSON path: "
            "items below the highest one so far are known."
        ),
    ] = None
    watermark_param: Annotated[
        str | None, Meta(description="Query parameter in which the highest watermark is passed to the API.")
    ] = None
    watermark_start: Annotated[
        str | int | None, Meta(description="The watermark of the very first poll.")
    ] = None
    timeout: Annotated[float, Meta(description="Seconds that one answer may take.", gt=0)] = 30.0
    max_body: Annotated[int, Meta(description="Largest answer in bytes; more is an error.", ge=1)] = (
        20_000_000
    )

    @property
    def id_paths(self) -> tuple[str, ...]:
        """The JSON paths that make up an item's id."""
        return () if self.id is None else (self.id,) if isinstance(self.id, str) else self.id

    def __post_init__(self) -> None:
        for option in ("items", "time", "value", "next", "watermark"):
            if (path := getattr(self, option)) is not None:
                JsonPath(path)
        for path in self.id_paths:
            JsonPath(path)
        if (self.mode == "version") != (self.value is not None):
            raise ValueError("value belongs to mode='version', which needs it: say where the value stands")
        if self.mode != "items" and self.paging != "none":
            raise ValueError("paging belongs to mode='items'")
        if (self.paging == "cursor") != (self.next is not None):
            raise ValueError("next belongs to paging='cursor', which needs it: say where the cursor stands")
        if self.resume and (self.paging != "cursor" or self.watermark or self.newest_first):
            raise ValueError("resume belongs to paging='cursor', without watermark and newest_first")
        if self.watermark_param and not self.watermark:
            raise ValueError("watermark_param needs watermark: say where the value stands in an item")


class HttpSource(UsesConnection):
    """Polls an HTTP endpoint."""

    kind: ClassVar[str] = "http"
    config: ClassVar[type[HttpConfig]] = HttpConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        position="log",
        lag=False,
        tested="an HTTP server with ETags, paging and rate limits",
        notes="Polls. Of a value that changes twice between two polls only the last one is seen.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"interval", "timeout", "max_body", "max_pages"})

    def __init__(self, config: HttpConfig) -> None:
        self.options = config
        self._poll: Poll | None = None

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        client = await HttpClient.open(await self.connection(), self.options.headers)
        poll = (ItemsPoll if self.options.mode == "items" else StatePoll)(self.options, client, cursor)
        try:
            await poll.ask_first()
        except BaseException:
            await client.aclose()
            raise
        self._poll = poll

    async def read(self) -> AsyncIterator[Delivery]:
        poll = self._poll
        if poll is None:
            raise SourceError("the endpoint is not being polled: call connect first")
        try:
            while True:
                async for delivery in poll.deliveries():
                    yield delivery
                await poll.wait(self.options.interval)
        except Closed:
            return

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        poll, self._poll = self._poll, None
        if poll:
            await poll.close()
