"""Objects that appear, change or go away in a bucket of Google Cloud Storage.

::

    source = GcsSource(GcsConfig(conn_id="google_cloud_default", bucket="shop", prefix="in/"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["uri"] for event in delivery.events])   # ['gs://shop/in/orders.csv', ...]
        await delivery.ack()

**Events.** ``windsock.object.created``, ``overwritten``, ``deleted`` and ``other``; source
``gs://<bucket>``, subject and key the object's name. ``data`` has ``bucket``, ``key``, ``uri``, ``size``,
``etag``, ``last_modified`` and ``version``, which is the object's generation. The id is made of name and
generation, the same in both modes, so that an object announced again is a duplicate to the log. Names
that end in ``/`` are the folders of consoles and are left out.

**By listing** (``mode='listing'``). As in :mod:`windsock.sources.s3`, with the same options and the same
guarantee. Each generation is news, a change of its metadata is not.

**By notifications** (``mode='notifications'``). The bucket's notifications out of a Pub/Sub subscription.
``data`` also has ``event`` (``OBJECT_FINALIZE``) and what else GCS tells, such as ``contentType`` and
``metadata``. Of one object, what arrives together is put into the order of its generations, and what
arrives behind something newer has ``data.stale`` true. The position is the subscription's: a message is
acked after the commit. One subscription is for one watcher, or for several with the same options and each
its own ``where``.

**Connection.** Type ``google_cloud_platform``; see :mod:`windsock.sources._google` for its fields.
Listing needs the role Storage Object Viewer, notifications need Pub/Sub Subscriber and nothing of
Storage.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from windsock.connections import Connection
from windsock.envelopes import gcs
from windsock.envelopes.objects import StoredObject
from windsock.events import DeadLetter, Event, SourceError
from windsock.sources._google import NOT_INSTALLED, credentials, explained, extra
from windsock.sources._listing import Fetch, Found, Item, Page
from windsock.sources._object_store import TUNING, Lister, Notifications, ObjectStore, ObjectStoreOptions
from windsock.sources.base import Guarantees

__all__ = ["GcsConfig", "GcsSource"]

_PAGE = 1000
_TIMEOUT = (10, 35)
_FIELDS = "items(name,size,etag,generation,timeCreated),nextPageToken"


class GcsConfig(ObjectStoreOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which objects to watch, and how."""

    bucket: Annotated[
        str | None,
        Meta(
            description="The bucket. Needed for listing; with notifications, by default every bucket that "
            "the subscription hears of."
        ),
    ] = None
    subscription: Annotated[
        str | None,
        Meta(description="Notifications: the Pub/Sub subscription they come through, by name or full path."),
    ] = None

    def __post_init__(self) -> None:
        self.check("bucket", "subscription")


class GcsSource(ObjectStore):
    """Watches a bucket, by listing or through its notifications."""

    kind: ClassVar[str] = "gcs"
    config: ClassVar[type[GcsConfig]] = GcsConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="none",
        tested="fake-gcs-server and pstest (emulators)",
        notes="A listing announces the oldest first and keeps its position in the log; notifications are "
        "put into order as far as they arrive together; Pub/Sub keeps the position and tells no lag.",
    )
    tuning: ClassVar[frozenset[str]] = TUNING

    def lister(self) -> Lister:
        return _GcsLister(self)

    def notifications(self) -> Notifications:
        options: GcsConfig = self.options
        inner = {"conn_id": options.conn_id, "subscription": options.subscription, "format": "bytes"}
        place = {"bucket": options.bucket} if options.bucket else None
        return Notifications(options, ("pubsub", inner), _read, place)


class _GcsLister:
    """Lists a bucket with Google's client, which blocks, in a thread."""

    def __init__(self, source: GcsSource) -> None:
        self._source = source
        self._options: GcsConfig = source.options

    async def open(self, stack: AsyncExitStack) -> Fetch:
        client: Any = await asyncio.to_thread(_client, await self._source.connection())
        stack.callback(client.close)
        options = self._options

        def list_page(token: Any, after: str | None) -> Page:
            with explained(f"GCS bucket {options.bucket!r}", options.conn_id):
                listing = client.list_blobs(
                    options.bucket,
                    prefix=options.prefix or None,
                    page_token=token,
                    start_offset=after,
                    page_size=_PAGE,
                    fields=_FIELDS,
                    timeout=_TIMEOUT,
                    retry=None,  # the runner has its own backoff
                )
                items = [_item(blob) for blob in next(listing.pages, ())]
            return Page(items, listing.next_page_token or None)

        async def fetch(token: Any, after: str | None) -> Page:
            # Google counts a page's place from the start of the listing, so every page needs both.
            start, page_token = token or (after, None)
            page = await asyncio.to_thread(list_page, page_token, start)
            return page if page.next is None else Page(page.items, (start, page.next))

        return fetch

    def stored(self, found: Found) -> StoredObject:
        bucket, item = self._options.bucket or "", found.item
        return StoredObject(
            change=found.change,
            source=f"gs://{bucket}",
            place={"bucket": bucket},
            key=item.key,
            uri=gcs.uri(bucket, item.key),
            time=item.time,
            size=item.size,
            etag=item.etag,
            version=item.version,
            last_modified=item.time,
        )


def _client(connection: Connection) -> Any:
    """A client of Cloud Storage; blocks."""
    try:
        from google.cloud import storage
    except ImportError:
        raise SourceError(
            f"connection {connection.conn_id!r}: Google's client is not installed: {NOT_INSTALLED}"
        ) from None
    found, project = credentials(connection)
    endpoint = extra(connection, "storage_endpoint")
    options = {"api_endpoint": str(endpoint)} if endpoint else None
    return storage.Client(project=project or "none", credentials=found, client_options=options)


def _item(blob: Any) -> Item:
    return Item(
        key=blob.name,
        time=blob.time_created,
        size=blob.size or 0,
        etag=(blob.etag or "").strip('"'),
        version=str(blob.generation),
    )


def _read(event: Event) -> tuple[list[StoredObject], list[DeadLetter]]:
    return [gcs.read(event.data or b"", event.headers)], []
