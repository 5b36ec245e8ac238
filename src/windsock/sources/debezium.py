"""Change events that Debezium writes to Kafka.

::

    source = DebeziumSource(
        DebeziumConfig(conn_id="kafka_default", topics=("shop.public.orders",), operations=("create",))
    )
    await source.connect(None)
    async for delivery in source.read():
        print([event.data["after"] for event in delivery.events])
        await delivery.ack()

**Events.** ``debezium.create``, ``update``, ``delete``, ``read``, ``truncate``, ``message``, ``transaction``,
``schema_change``, and ``tombstone`` if asked for; subject ``database.schema.table``, key the row's key as
JSON, time that of the change, correlation the transaction's id. ``data`` has ``before``, ``after``,
``source``, ``op`` and whatever else Debezium wrote. The id is the position in the database's log with the
operation and the key, so that what a restarted connector sends again is known; see
:mod:`windsock.envelopes.debezium`, also for how decimals and times are read with and without a schema.

**Guarantee, where it resumes, Connection.** Those of kind ``kafka``: at least once, in order within a
partition and so within a row, at the offsets that the consumer group committed.

Rows that the connector unwrapped (ExtractNewRecordState) are no change events any more: read them with kind
``kafka``. Debezium Server can post its events to a webhook instead, and kind ``debezium_engine`` needs
neither Kafka nor a connector elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.envelopes.debezium import ChangeOptions, change_of
from windsock.events import DeadLetter, Event, InvalidEvent
from windsock.messages import unreadable
from windsock.sources.base import Guarantees
from windsock.sources.derived import Derived

__all__ = ["DebeziumConfig", "DebeziumSource"]

_HANDED_ON = (
    "conn_id",
    "topic",
    "topics",
    "pattern",
    "instance",
    "start",
    "registry_conn_id",
    "read_committed",
)


class DebeziumConfig(ChangeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics to read, and which changes in them."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the Kafka cluster.", min_length=1)]
    topic: Annotated[str | None, Meta(description="The topic to read.")] = None
    topics: Annotated[tuple[str, ...], Meta(description="The topics to read, if they are several.")] = ()
    pattern: Annotated[
        str | None,
        Meta(
            description="Read every topic whose whole name fits this regular expression, also those that are "
            "made later, as `shop[.]public[.].*`.",
        ),
    ] = None
    group: Annotated[
        str | None,
        Meta(
            description="Consumer group; by default a name made of the source's options. Two Airflows that "
            "read one topic need two groups.",
        ),
    ] = None
    instance: Annotated[
        str | None, Meta(description="Static membership in the group (`group.instance.id`).")
    ] = None
    start: Annotated[
        str,
        Meta(
            description="Where a group that never read the topic begins: 'earliest', 'latest', or a time "
            "such as '2026-01-31T00:00:00Z'.",
            min_length=1,
        ),
    ] = "earliest"
    format: Annotated[
        Literal["json", "confluent"],
        Meta(
            description="How the connector writes keys and values: as JSON, or in Confluent's wire format "
            "(Avro), which needs the schema registry."
        ),
    ] = "json"
    registry_conn_id: Annotated[
        str | None,
        Meta(
            description="Airflow Connection of the schema registry, unless the one of `conn_id` names it.",
        ),
    ] = None
    read_committed: Annotated[
        bool, Meta(description="Leave out what transactions of Kafka have not committed, or aborted.")
    ] = True
    tombstones: Annotated[
        bool,
        Meta(
            description="Make an event `debezium.tombstone` of each tombstone: the empty message after a "
            "deletion, which lets Kafka forget the key."
        ),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if [bool(self.topic), bool(self.topics), bool(self.pattern)].count(True) != 1:
            raise ValueError("set exactly one of `topic`, `topics` and `pattern`")


class DebeziumSource(Derived):
    """Reads Debezium's change events from Kafka."""

    kind: ClassVar[str] = "debezium"
    config: ClassVar[type[DebeziumConfig]] = DebeziumConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        tested="Apache Kafka 4.1 (KRaft), with events of Debezium 1.1 to 3.6 on MySQL and PostgreSQL",
        notes="Ordered within a row. A change that its connector sends again keeps its id.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"instance"})

    def __init__(self, config: DebeziumConfig) -> None:
        self.options = config

    def inner(self) -> tuple[str, dict[str, Any]]:
        options = msgspec.structs.asdict(self.options)
        asked = {name: options[name] for name in _HANDED_ON if options[name] not in (None, ())}
        coded = self.options.format == "confluent"
        return "kafka", {
            **asked,
            "group": self.options.group or self._group(options),
            "format": "auto" if coded else "bytes",
            "key_format": "confluent" if coded else "text",
        }

    def translate(self, event: Event) -> tuple[Sequence[Event], Sequence[DeadLetter]]:
        topic = event.id.rsplit("/", 2)[0]
        try:
            change = change_of(
                event.data,
                self.options,
                key=event.key,
                topic=topic,
                headers=event.headers,
                carrier=event.id,
                tombstones=self.options.tombstones,
            )
        except InvalidEvent as error:
            body = event.data if isinstance(event.data, bytes) else msgspec.json.encode(event.data)
            return [], [unreadable(body, error, where=event.id)]
        if change is None:
            return [], []
        return [change if change.time else msgspec.structs.replace(change, time=event.time)], []

    def _group(self, options: dict[str, Any]) -> str:
        """Watchers that want different changes of one topic must not share its records."""
        identity = {name: value for name, value in options.items() if name not in self.tuning}
        plain = msgspec.json.encode(identity, order="sorted")
        return f"windsock.debezium.{hashlib.blake2b(plain, digest_size=4).hexdigest()}"
