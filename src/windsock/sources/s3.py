"""Objects that appear, change or go away in an Amazon S3 bucket, or in any store that speaks S3.

::

    source = S3Source(S3Config(conn_id="aws_default", bucket="shop", prefix="in/", pattern="**/*.csv"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["uri"] for event in delivery.events])   # ['s3://shop/in/orders.csv', ...]
        await delivery.ack()

**Events.** ``windsock.object.created``, ``overwritten``, ``deleted``, ``restored`` and ``other``; source
``s3://<bucket>``, subject and key the object's key. ``data`` has ``bucket``, ``key``, ``uri``, ``size``,
``etag``, ``last_modified`` and ``version``. The id is made of key, version or ETag, and the sequencer or
Last-Modified, so that an object announced again is a duplicate to the log. Keys that end in ``/`` are the
folders of consoles and are left out.

**By listing** (``mode='listing'``). Nothing has to be set up. S3 lists by key, so finding what is new by
time means listing the whole prefix: 1000 keys a request, with memory for what is recent only (see
:mod:`windsock.sources._listing`). Every version that is there at a listing is announced at least once,
under one id, oldest first; one that was overwritten or deleted before the next listing was never seen. An
object that appears later than its Last-Modified says, as every multipart upload does, is found for
``late`` seconds. S3 keeps times by the second: content that is overwritten by equal content within one is
no news. Deletions are not seen. If keys only ever grow, ``order='key'`` lists only their end again. To
wait for a whole directory, watch its marker: ``pattern='**/_SUCCESS'``. The position is in the log: the
cursor, some kilobytes however many objects there are.

**By notifications** (``mode='notifications'``). S3's events out of an SQS queue: sent there by S3 itself,
through SNS, or by a rule of EventBridge (``source: aws.s3``). ``data`` also has ``event``
(``ObjectCreated:Put``), for deletions ``delete_marker``, and what else S3 tells. S3 does not say whether
an object was overwritten: it is ``created``. It delivers at least once and in any order: of one object,
what arrives together is put into the order of its sequencers (``event.sequence``), and what arrives
behind something newer has ``data.stale`` true. The position is the queue's: a message is deleted after
the commit. One queue is for one watcher, or for several with the same options and each its own ``where``:
a message that the filters leave out is deleted, too.

**Connection.** Type ``aws``; see :mod:`windsock.sources._aws` for its fields. Listing needs
``s3:ListBucket``; notifications need what the ``sqs`` source needs, and nothing of S3.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from windsock.connections import Connection
from windsock.envelopes import s3
from windsock.envelopes.objects import StoredObject
from windsock.events import DeadLetter, Event
from windsock.sources._aws import client, explained
from windsock.sources._listing import Fetch, Found, Item, Page
from windsock.sources._object_store import TUNING, Lister, Notifications, ObjectStore, ObjectStoreOptions
from windsock.sources.base import Guarantees

__all__ = ["S3Config", "S3Source"]


class S3Config(ObjectStoreOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which objects to watch, and how."""

    bucket: Annotated[
        str | None,
        Meta(
            description="The bucket. Needed for listing; with notifications, by default every bucket that "
            "the queue hears of."
        ),
    ] = None
    queue: Annotated[
        str | None, Meta(description="Notifications: name, URL or ARN of the SQS queue they come through.")
    ] = None
    region: Annotated[
        str | None, Meta(description="Region of the bucket or queue; by default that of the Connection.")
    ] = None
    visibility: Annotated[
        int,
        Meta(
            description="Notifications: seconds for which a message stays hidden after a reader's crash.",
            ge=2,
            le=43_200,
        ),
    ] = 60
    wait: Annotated[
        int, Meta(description="Notifications: seconds that one receive waits for messages.", ge=1, le=20)
    ] = 20

    def __post_init__(self) -> None:
        self.check("bucket", "queue")


class S3Source(ObjectStore):
    """Watches a bucket, by listing or through its notifications."""

    kind: ClassVar[str] = "s3"
    config: ClassVar[type[S3Config]] = S3Config
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="none",
        tested="SeaweedFS; MiniStack and moto (emulators)",
        notes="A listing announces the oldest first and keeps its position in the log; notifications are "
        "put into order as far as they arrive together, and SQS keeps the position.",
    )
    tuning: ClassVar[frozenset[str]] = TUNING | {"visibility", "wait"}

    def lister(self) -> Lister:
        return _S3Lister(self)

    def notifications(self) -> Notifications:
        options: S3Config = self.options
        inner = {
            "conn_id": options.conn_id,
            "queue": options.queue,
            "region": options.region,
            "envelope": "none",
            "format": "bytes",
            "visibility": options.visibility,
            "wait": options.wait,
        }
        place = {"bucket": options.bucket} if options.bucket else None
        return Notifications(options, ("sqs", inner), _read, place)


class _S3Lister:
    """Lists a bucket with ListObjectsV2."""

    def __init__(self, source: S3Source) -> None:
        self._source = source
        self._options: S3Config = source.options

    async def open(self, stack: AsyncExitStack) -> Fetch:
        connection: Connection = await self._source.connection()
        made: Any = await stack.enter_async_context(client("s3", connection, region=self._options.region))
        options = self._options

        async def fetch(token: Any, after: str | None) -> Page:
            place = {"ContinuationToken": token} if token else {"StartAfter": after} if after else {}
            with explained(f"S3 bucket {options.bucket!r}", options.conn_id):
                answer = await made.list_objects_v2(Bucket=options.bucket, Prefix=options.prefix, **place)
            items = [
                Item(
                    key=found["Key"],
                    time=found["LastModified"],
                    size=found.get("Size", 0),
                    etag=found.get("ETag", "").strip('"'),
                )
                for found in answer.get("Contents", ())
            ]
            return Page(items, answer.get("NextContinuationToken") if answer.get("IsTruncated") else None)

        return fetch

    def stored(self, found: Found) -> StoredObject:
        bucket, item = self._options.bucket or "", found.item
        return StoredObject(
            change=found.change,
            source=f"s3://{bucket}",
            place={"bucket": bucket},
            key=item.key,
            uri=s3.uri(bucket, item.key),
            time=item.time,
            size=item.size,
            etag=item.etag,
            last_modified=item.time,
            moment=str(item.modified),
        )


def _read(event: Event) -> tuple[list[StoredObject], list[DeadLetter]]:
    return s3.read(event.data or b"")
