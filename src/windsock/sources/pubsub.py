"""Messages of a Google Pub/Sub subscription.

::

    source = PubSubSource(PubSubConfig(conn_id="google_cloud_default", subscription="orders"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()                     # acknowledges the messages

**Events.** The body is read as ``format`` says. The id is Pub/Sub's message id, source
``pubsub://projects/<project>/subscriptions/<name>``, time when it was published, and the ordering key is the
key. Attributes become headers; ``pubsub.delivery_attempt`` is one more if the subscription has a dead letter
topic. CloudEvents are recognised in both modes.

**Guarantee.** At least once; a message is acknowledged after the commit, and what comes twice keeps its id
and is stored once. A subscription with message ordering keeps the order of each ordering key; other messages
come in any order. One with exactly-once delivery is read in the same way; an ack that it refuses is logged.

**Where it resumes.** The subscription knows: what was pulled and not acknowledged comes again. At an orderly
close that is at once; after a crash it takes until its ack deadline, which is extended in the background for
as long as a message waits to be committed, by ``deadline`` seconds at a time. How much waits is not knowable
from Pub/Sub itself (only from Cloud Monitoring), so there is no lag.

**Connection.** Type ``google_cloud_platform``; see :mod:`windsock.sources._google` for its fields. One more
extra is ``pubsub_endpoint``: another address of Pub/Sub, ``europe-west1-pubsub.googleapis.com:443``; one that
begins with ``http://`` is an emulator's, spoken to without TLS and credentials. ``ssl_ca_certs`` is the file
of an authority to trust instead of the usual ones. The account needs the role Pub/Sub Subscriber; if it is a
Pub/Sub Viewer, too, a missing subscription is seen when it connects, otherwise at the first pull.

A push subscription has the gateway instead: ``WebhookAssetWatcher(preset="pubsub")``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from windsock.connections import Connection, UsesConnection
from windsock.events import SourceError
from windsock.messages import Message, MessageOptions, events_of
from windsock.sources._google import NOT_INSTALLED, credentials, extra
from windsock.sources._pubsub_subscription import Held, Subscription, explained
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["PubSubConfig", "PubSubSource"]

_ADDRESS = "pubsub.googleapis.com:443"
_ANSWER = 15.0
_SHORTEST_LEASE = 10
"""The shortest ack deadline that a subscription can have, in seconds."""
_CHANNEL = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A new connection must not wait for the backoff of the one that failed.
    ("grpc.use_local_subchannel_pool", 1),
]


class PubSubConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which subscription to read."""

    subscription: Annotated[
        str,
        Meta(
            description="Name of the subscription, or its full path "
            "'projects/<project>/subscriptions/<name>'.",
            min_length=1,
        ),
    ]
    project: Annotated[
        str | None,
        Meta(description="Project of the subscription, if it is named; by default the Connection's."),
    ] = None
    deadline: Annotated[
        int,
        Meta(
            description="Seconds by which the ack deadline of waiting messages is extended at a time; a "
            "crashed reader's messages come again after at most so long.",
            ge=10,
            le=600,
        ),
    ] = 60
    outstanding: Annotated[
        int,
        Meta(description="Most messages that are here and not yet acknowledged.", ge=1),
    ] = 5000
    receivers: Annotated[
        int,
        Meta(description="How many pulls run at once while the subscription is busy.", ge=1, le=50),
    ] = 4


class PubSubSource(UsesConnection):
    """Reads one subscription."""

    kind: ClassVar[str] = "pubsub"
    config: ClassVar[type[PubSubConfig]] = PubSubConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        lag=False,
        tested="pstest (Google's own fake of Pub/Sub)",
        notes="Order needs an ordering key and a subscription with message ordering. The lag is known to "
        "Cloud Monitoring only.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"deadline", "outstanding", "receivers"})

    def __init__(self, config: PubSubConfig) -> None:
        self.options = config
        self._channel: Any = None
        self._subscription: Subscription | None = None
        self._path = ""

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        connection = await self.connection()
        transport, found, project = await asyncio.to_thread(_prepared, connection)
        self._path = self._full_path(project)
        self._channel = _channel(transport, connection, found)
        from google.pubsub_v1 import SubscriberAsyncClient

        client = SubscriberAsyncClient(transport=transport(channel=self._channel))
        try:
            lease = await self._lease(client)
        except BaseException:
            await self.close()
            raise
        self._subscription = Subscription(
            *(client, self._path, self.options.conn_id),
            lease=lease,
            deadline=self.options.deadline,
            receivers=self.options.receivers,
            most=self.options.outstanding,
        )

    async def read(self) -> AsyncIterator[Delivery]:
        subscription = self._subscription
        if subscription is None:
            raise SourceError(
                f"Pub/Sub subscription {self.options.subscription!r} is not connected: call connect first"
            )
        subscription.start()
        while held := await subscription.take():
            yield self._delivery(subscription, held)

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        channel, self._channel = self._channel, None
        try:
            if subscription is not None:
                await subscription.close()
        finally:
            if channel is not None:
                await channel.close()

    def _full_path(self, project: str | None) -> str:
        name: str = self.options.subscription
        if "/" in name:
            return name
        project = self.options.project or project
        if not project:
            raise SourceError(
                f"Pub/Sub subscription {name!r}: the project is not known: set project in the watcher or in "
                f"the extra of {self.options.conn_id!r}, or give the full path"
            )
        return f"projects/{project}/subscriptions/{name}"

    async def _lease(self, client: Any) -> int:
        """The ack deadline with which messages come, if we may know it."""
        from google.api_core.exceptions import PermissionDenied

        try:
            with explained(f"Pub/Sub subscription {self._path!r}", self.options.conn_id):
                found = await client.get_subscription(
                    request={"subscription": self._path}, retry=None, timeout=_ANSWER
                )
        except SourceError as error:
            if isinstance(error.__cause__, PermissionDenied):
                return _SHORTEST_LEASE  # who may only pull hears it from the first pull
            raise
        if found.detached or found.push_config.push_endpoint:
            what = "is detached from its topic" if found.detached else "pushes its messages"
            raise SourceError(f"Pub/Sub subscription {self._path!r} {what}: name one to pull from")
        return max(int(found.ack_deadline_seconds), _SHORTEST_LEASE)

    def _delivery(self, subscription: Subscription, held: Sequence[Held]) -> Delivery:
        events, dead = events_of(
            (_message(each.received) for each in held),
            self.options,
            source=f"pubsub://{self._path}",
            kind=self.kind,
        )
        return Delivery(events, ack=lambda: subscription.ack(held), dead=dead)


def _prepared(connection: Connection) -> tuple[Any, Any, str | None]:
    """The client's transport, and credentials and project of a Connection; blocks.

    Credentials are used once, because what refuses them inside of gRPC looks like a network that is away.
    """
    try:
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
    except ImportError:
        raise SourceError(
            f"connection {connection.conn_id!r}: Pub/Sub's client is not installed: {NOT_INSTALLED}"
        ) from None
    if _plain(connection):
        return SubscriberGrpcAsyncIOTransport, None, extra(connection, "project")
    from google.auth.transport.requests import Request

    found, project = credentials(connection)
    if not found.valid:
        with explained(f"the account of {connection.conn_id!r}", connection.conn_id):
            found.refresh(Request())
    return SubscriberGrpcAsyncIOTransport, found, project


def _channel(transport: Any, connection: Connection, found: Any) -> Any:
    import grpc  # type: ignore[import-untyped]

    address = str(extra(connection, "pubsub_endpoint") or _ADDRESS)
    if _plain(connection):
        return grpc.aio.insecure_channel(address.removeprefix("http://"), options=_CHANNEL)
    authority = connection.get("ssl_ca_certs")
    try:
        roots = Path(str(authority)).read_bytes() if authority else None
    except OSError as error:
        raise SourceError(
            f"connection {connection.conn_id!r}: ssl_ca_certs cannot be read ({error}): correct its extra"
        ) from error
    return transport.create_channel(
        address.removeprefix("https://"),
        credentials=found,
        ssl_credentials=grpc.ssl_channel_credentials(roots),
        options=_CHANNEL,
    )


def _plain(connection: Connection) -> bool:
    return str(extra(connection, "pubsub_endpoint") or "").startswith("http://")


def _message(received: Any) -> Message:
    """A message as Pub/Sub hands it over."""
    message = received.message
    headers: dict[str, Any] = dict(message.attributes)
    if received.delivery_attempt:
        headers["pubsub.delivery_attempt"] = received.delivery_attempt
    return Message(
        body=message.data,
        id=message.message_id,
        headers=headers,
        key=message.ordering_key or None,
        time=message.publish_time.ToMicroseconds() / 1e6,
    )
