"""Blobs that appear, change or go away in a container of Azure Blob Storage.

::

    source = AzureBlobSource(AzureBlobConfig(conn_id="wasb_default", container="shop", prefix="in/"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["uri"] for event in delivery.events])
        await delivery.ack()

**Events.** ``windsock.object.created``, ``overwritten``, ``deleted`` and ``other``; source the
container's address (``https://<account>.blob.core.windows.net/<container>``), subject and key the blob's
name. ``data`` has ``container``, ``key``, ``uri``, ``size``, ``etag``, ``last_modified`` and ``version``.
The id is made of name and ETag and of Last-Modified or the sequencer, so that a blob announced again is a
duplicate to the log. Directories are left out.

**By listing** (``mode='listing'``). As in :mod:`windsock.sources.s3`, with the same options and the same
guarantee. Append blobs are shown while they grow: set ``settle``. Azure can start a listing at a name
(``order='key'``).

**By notifications** (``mode='notifications'``). Event Grid's events out of a storage queue, in Event
Grid's schema or as CloudEvents, in base64 or plain. ``data`` also has ``event`` (``BlobCreated``) and
what else Event Grid tells, such as ``api`` and ``contentType``. An overwritten blob is ``created``; a
renamed one is created under its new name. Of one blob, what arrives together is put into the order of its
sequencers, and what arrives behind something newer has ``data.stale`` true. The position is the queue's:
a message is deleted after the commit. One queue is for one watcher, or for several with the same options
and each its own ``where``.

**Connection.** Type ``wasb``; see :mod:`windsock.sources._azure` for its fields. Event Grid can also push
to Windsock's gateway: see the ``webhook`` source.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from windsock.envelopes import azure_blob
from windsock.envelopes.objects import StoredObject
from windsock.events import DeadLetter, Event
from windsock.sources._azure import explained, service
from windsock.sources._listing import Fetch, Found, Item, Page
from windsock.sources._object_store import TUNING, Lister, Notifications, ObjectStore, ObjectStoreOptions
from windsock.sources.base import Guarantees

__all__ = ["AzureBlobConfig", "AzureBlobSource"]

_PAGE = 1000


class AzureBlobConfig(ObjectStoreOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which blobs to watch, and how."""

    container: Annotated[
        str | None,
        Meta(
            description="The container. Needed for listing; with notifications, by default every container "
            "that the queue hears of."
        ),
    ] = None
    queue: Annotated[
        str | None, Meta(description="Notifications: name of the storage queue that Event Grid fills.")
    ] = None
    encoding: Annotated[
        Literal["auto", "base64", "plain"],
        Meta(description="Notifications: how the text of a message holds its body; 'auto' finds out."),
    ] = "auto"
    visibility: Annotated[
        int,
        Meta(
            description="Notifications: seconds for which a message stays hidden after a reader's crash.",
            ge=2,
            le=604_800,
        ),
    ] = 60
    poll: Annotated[
        float,
        Meta(description="Notifications: seconds from one look into an empty queue to the next.", gt=0),
    ] = 15.0

    def __post_init__(self) -> None:
        self.check("container", "queue")


class AzureBlobSource(ObjectStore):
    """Watches a container, by listing or through its notifications."""

    kind: ClassVar[str] = "azure_blob"
    config: ClassVar[type[AzureBlobConfig]] = AzureBlobConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="none",
        tested="Azurite (Microsoft's emulator); Event Grid's messages by its specification",
        notes="A listing announces the oldest first and keeps its position in the log; notifications are "
        "put into order as far as they arrive together, and the queue keeps the position.",
    )
    tuning: ClassVar[frozenset[str]] = TUNING | {"visibility", "poll"}

    def lister(self) -> Lister:
        return _BlobLister(self)

    def notifications(self) -> Notifications:
        options: AzureBlobConfig = self.options
        inner = {
            "conn_id": options.conn_id,
            "queue": options.queue,
            "encoding": options.encoding,
            "format": "bytes",
            "visibility": options.visibility,
            "interval": options.poll,
        }
        place = {"container": options.container} if options.container else None
        return Notifications(options, ("azure_queue", inner), _read, place)


class _BlobLister:
    """Lists a container with List Blobs."""

    def __init__(self, source: AzureBlobSource) -> None:
        self._source = source
        self._options: AzureBlobConfig = source.options
        self._address = ""

    async def open(self, stack: AsyncExitStack) -> Fetch:
        options = self._options
        account: Any = await service("blob", await self._source.connection(), stack)
        container: Any = account.get_container_client(options.container)
        self._address = azure_blob.address(account.url.partition("?")[0], options.container or "")

        async def fetch(token: Any, after: str | None) -> Page:
            with explained(f"Azure container {options.container!r}", options.conn_id):
                pages = container.list_blobs(
                    name_starts_with=options.prefix or None,
                    include=["metadata"],
                    results_per_page=_PAGE,
                    **({"start_from": after} if after and not token else {}),
                ).by_page(continuation_token=token)
                try:
                    page = await anext(pages)
                except StopAsyncIteration:
                    return Page([])
                items = [_item(blob) async for blob in page if not _is_directory(blob)]
            return Page(items, pages.continuation_token or None)

        return fetch

    def stored(self, found: Found) -> StoredObject:
        item = found.item
        return StoredObject(
            change=found.change,
            source=self._address,
            place={"container": self._options.container or ""},
            key=item.key,
            uri=azure_blob.uri(self._address, item.key),
            time=item.time,
            size=item.size,
            etag=item.etag,
            version=item.version,
            last_modified=item.time,
            moment=str(item.modified),
        )


def _item(blob: Any) -> Item:
    return Item(
        key=blob.name,
        time=blob.last_modified,
        size=blob.size or 0,
        etag=(blob.etag or "").strip('"'),
        version=blob.version_id,
    )


def _is_directory(blob: Any) -> bool:
    """Whether it is a directory of a data lake, which is a blob with a mark."""
    return str((blob.metadata or {}).get("hdi_isfolder")).lower() == "true"


def _read(event: Event) -> tuple[list[StoredObject], list[DeadLetter]]:
    return azure_blob.read(event.data or b"")
