"""Records of Kafka topics, read as a member of a consumer group.

::

    source = KafkaSource(KafkaConfig(conn_id="kafka_default", topic="orders", group="airflow-orders"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()

**Events.** Type ``windsock.kafka``, source ``kafka://<cluster>/<topic>``, id
``<topic>/<partition>/<offset>``; key, headers and time are the record's. ``data`` is the value, read as
``format`` says; with ``auto``, values in Confluent's wire format are decoded by the schema registry and have
the schema's address as ``dataschema``. CloudEvents of both content modes keep their own id, source and type.
A tombstone (a record whose value is null) has no data, ``.tombstone`` behind its type and the extension
``tombstone``. A topic that is deleted and made again counts its offsets from 0 again: its events then have
ids that the log may know already, so give it another name.

**Guarantee.** At least once, in order within a partition and so within a key. Offsets are committed after
the log's commit. A partition that the group took away from us is not committed any more: its next owner
reads again what we had not acked, under the same ids. Aborted transactions are never seen.

**Where it resumes.** At the offsets that the group committed. ``start`` says where a group begins that never
read the topic; it is committed at once, so that a later start does not move it. Partitions, and topics of a
``pattern``, that are added later are read from their beginning, and so is a partition whose committed offset
has been deleted by retention. While the log is behind, the partitions are paused and the membership is kept.

**Connection.** Type ``kafka`` as in Airflow's provider: the extra holds librdkafka's own settings
(``bootstrap.servers``, ``security.protocol``, ``sasl.mechanism``, ``sasl.username``, ``ssl.ca.location``,
``sasl.oauthbearer.method`` ..., all but its callbacks). Host (several, with commas) and port (9092) stand for
``bootstrap.servers``, login and password for ``sasl.username`` and ``sasl.password``; with a login the
protocol is ``SASL_SSL`` and the mechanism ``PLAIN`` unless the extra says otherwise. The user needs READ on
the topics and the group.

**Schema registry.** Values in Confluent's wire format (Avro, JSON Schema, Protobuf) need the registry: in the
same extra as ``schema.registry.url``, ``schema.registry.basic.auth.user.info`` (``user:password``),
``schema.registry.bearer.auth.token``, ``schema.registry.ssl.ca.location``, ``...ssl.certificate.location``
and ``...ssl.key.location``; or in a Connection of its own (``registry_conn_id``) with host (a URL), port,
login and password, and the same extras without their prefix.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, normalise, parse_time
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources._ending import Ended
from windsock.sources._kafka_member import Batch, Member, Subscription
from windsock.sources._kafka_places import ack
from windsock.sources._kafka_registry import MAGIC, Registry, registry_of, schema_number
from windsock.sources._kafka_settings import cluster_of, consumer_settings
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["KafkaConfig", "KafkaSource"]

_Made = tuple[list[Event], list[DeadLetter]]


class KafkaConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics to read, and as whom."""

    topic: Annotated[str | None, Meta(description="The topic to read.")] = None
    topics: Annotated[tuple[str, ...], Meta(description="The topics to read, if they are several.")] = ()
    pattern: Annotated[
        str | None,
        Meta(
            description="Read every topic whose whole name fits this regular expression, also those that are "
            "made later (they are found within 30 seconds).",
        ),
    ] = None
    group: Annotated[
        str | None,
        Meta(
            description="Consumer group. By default `group.id` of the Connection's extra, or else a name "
            "made of the source's options. Readers of one group share the records: two Airflows, or two "
            "watchers with different options on one topic, need two groups.",
        ),
    ] = None
    instance: Annotated[
        str | None,
        Meta(
            description="Static membership (`group.instance.id`): a reader that comes back under this name "
            "gets its partitions back without a rebalance. One name for each reader of the group.",
        ),
    ] = None
    start: Annotated[
        str,
        Meta(
            description="Where a group that never read the topic begins: 'earliest', 'latest', or a time "
            "such as '2026-01-31T00:00:00Z', for the first record from then on.",
            min_length=1,
        ),
    ] = "earliest"
    key_format: Annotated[
        Literal["text", "confluent"],
        Meta(description="How a record's key is read: as text, or in Confluent's wire format."),
    ] = "text"
    registry_conn_id: Annotated[
        str | None,
        Meta(
            description="Airflow Connection of the schema registry, unless the one of `conn_id` names it.",
        ),
    ] = None
    read_committed: Annotated[
        bool,
        Meta(description="Leave out what transactions have not committed, or aborted. Off: read everything."),
    ] = True
    cluster: Annotated[
        str | None,
        Meta(
            description="Name of the cluster in the events' source; by default the first broker's host.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if [bool(self.topic), bool(self.topics), bool(self.pattern)].count(True) != 1:
            raise ValueError("set exactly one of `topic`, `topics` and `pattern`")
        if self.pattern:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern {self.pattern!r} is no regular expression: {error}") from error
        if self.start not in ("earliest", "latest"):
            try:
                parse_time(self.start)
            except InvalidEvent as error:
                raise ValueError(f"start {self.start!r} is not 'earliest', 'latest' or a time") from error


class KafkaSource(UsesConnection):
    """Reads Kafka topics."""

    kind: ClassVar[str] = "kafka"
    config: ClassVar[type[KafkaConfig]] = KafkaConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        tested="Apache Kafka 4.1 (KRaft), Apicurio Registry 3.0",
        notes="Ordered within a partition. Also Confluent's wire format, transactions and tombstones.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"instance"})

    def __init__(self, config: KafkaConfig) -> None:
        self.options = config
        self._member: Member[_Made] | None = None
        self._registry: Registry | None = None
        self._cluster = ""

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        _require_client()
        options = self.options
        connection = await self.connection()
        own = await self.connections(options.registry_conn_id) if options.registry_conn_id else None
        settings = consumer_settings(
            connection,
            group_id=options.group or connection.get("group.id") or _default_group(options),
            group_instance_id=options.instance,
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if options.read_committed else "read_uncommitted",
        )
        self._cluster = options.cluster or cluster_of(settings)
        self._registry = registry_of(connection, own)
        topics = options.topics or ((options.topic,) if options.topic else ())
        subscription = Subscription(topics, options.pattern, _start(options.start))
        self._member = Member(settings, subscription, self._made, conn_id=options.conn_id)
        try:
            await self._member.join()
        except BaseException:
            await self.close()
            raise

    async def read(self) -> AsyncIterator[Delivery]:
        member = self._member
        if member is None:
            raise SourceError("Kafka is not connected: call connect first")
        with contextlib.suppress(Ended):
            while True:
                batch = await member.next()
                events, dead = batch.content
                yield Delivery(events, ack=_ack(batch), dead=dead)

    async def lag(self) -> int | None:
        lags = await self.partition_lag()
        return None if lags is None else sum(lags.values())

    async def partition_lag(self) -> dict[str, int] | None:
        """How many records wait in each partition (``topic/number``) that this reader has."""
        return None if self._member is None else await self._member.lag()

    async def close(self) -> None:
        member, self._member = self._member, None
        registry, self._registry = self._registry, None
        if member is not None:
            await member.leave()
        if registry is not None:
            registry.close()

    def _made(self, records: list[Any]) -> _Made:
        """The events of records, and dead letters for those that are none; runs in the polling thread."""
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for record in records:
            topic = record.topic()
            id = f"{topic}/{record.partition()}/{record.offset()}"
            value = record.value()
            try:
                events.append(self._event(record, value, id, f"kafka://{self._cluster}/{topic}"))
            except InvalidEvent as error:
                dead.append(unreadable(value or b"", error, where=id))
        return events, dead

    def _event(self, record: Any, value: bytes | None, id: str, source: str) -> Event:
        stamped = record.timestamp()[1]
        time = stamped / 1000 if stamped >= 0 else None
        headers = record.headers() or ()
        key = record.key()
        if key and self.options.key_format == "confluent":
            key = _key_text(self._decoded(key)[0])
        if value is None:
            type = f"{self.options.type or 'windsock.kafka'}.tombstone"
            return Event.make(
                None, id=id, source=source, type=type, time=time, key=key, headers=dict(headers),
                extensions={"tombstone": True},
            )  # fmt: skip
        if value.startswith(MAGIC) and self.options.format == "auto" and schema_number(value) is not None:
            data, number = self._decoded(value)
            # As JSON it goes the common way, on which CloudEvents in binary mode are recognised as well.
            body = msgspec.json.encode(normalise(data))
            message = Message(
                body=body, id=id, headers=headers, key=key, time=time, content_type="application/json"
            )
            event = event_of(message, self.options, source=source, kind="kafka")
            schema = self._registry.address(number) if self._registry else None
            return msgspec.structs.replace(event, dataschema=event.dataschema or schema)
        message = Message(body=value, id=id, headers=headers, key=key, time=time)
        return event_of(message, self.options, source=source, kind="kafka")

    def _decoded(self, value: bytes) -> tuple[Any, int]:
        if self._registry is None:
            raise InvalidEvent(
                "in Confluent's wire format, but no schema registry is known: set `schema.registry.url` in "
                "the extra of the Connection, or registry_conn_id; for other binary values format='bytes'"
            )
        return self._registry.decode(value)


def _ack(batch: Batch[_Made]) -> Any:
    async def done() -> None:
        ack(batch.marks)  # the thread commits

    return done


def _key_text(key: Any) -> Any:
    """A decoded key as an event has it: one value as it is, several as JSON."""
    plain = normalise(key)
    return msgspec.json.encode(plain, order="sorted") if isinstance(plain, dict | list) else plain


def _start(start: str) -> str | int:
    if start in ("earliest", "latest"):
        return start
    moment = parse_time(start)
    return int(moment.timestamp() * 1000) if moment else start


def _default_group(options: KafkaConfig) -> str:
    """A name that stays the same as long as the options that say what is read do."""
    identity = msgspec.structs.asdict(options)
    identity.pop("instance")
    digest = hashlib.blake2b(msgspec.json.encode(identity, order="sorted"), digest_size=4).hexdigest()
    return f"windsock.{options.topic or 'topics'}.{digest}"


def _require_client() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise SourceError("Kafka's client is missing: pip install 'windsock[kafka]'") from error
