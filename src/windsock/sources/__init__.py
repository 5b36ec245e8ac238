"""One file per system. A source is registered with one row here and named by its ``kind``."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import msgspec

from windsock.connections import Connections, UsesConnection
from windsock.events import WindsockError
from windsock.sources.base import Cursor, Delivery, Guarantees, Source

__all__ = [
    "SOURCES",
    "Cursor",
    "Delivery",
    "Guarantees",
    "Source",
    "make_source",
    "source_class",
    "source_key",
]

SOURCES: dict[str, str] = {
    "airflow": "windsock.sources.airflow:AirflowSource",
    "azure_blob": "windsock.sources.azure_blob:AzureBlobSource",
    "azure_queue": "windsock.sources.azure_queue:AzureQueueSource",
    "correlate": "windsock.rules.source:CorrelateSource",
    "dead_letters": "windsock.rules.letters:DeadLettersSource",
    "debezium": "windsock.sources.debezium:DebeziumSource",
    "debezium_engine": "windsock.sources.debezium_engine:DebeziumEngineSource",
    "expect": "windsock.rules.contract:ExpectSource",
    "files": "windsock.sources.files:FilesSource",
    "gcs": "windsock.sources.gcs:GcsSource",
    "http": "windsock.sources.http:HttpSource",
    "kafka": "windsock.sources.kafka:KafkaSource",
    "kinesis": "windsock.sources.kinesis:KinesisSource",
    "memory": "windsock.sources.memory:MemorySource",
    "mqtt": "windsock.sources.mqtt:MqttSource",
    "nats": "windsock.sources.nats:NatsSource",
    "postgres_cdc": "windsock.sources.postgres_cdc:PostgresCdcSource",
    "postgres_notify": "windsock.sources.postgres_notify:PostgresNotifySource",
    "pubsub": "windsock.sources.pubsub:PubSubSource",
    "rabbitmq": "windsock.sources.rabbitmq:RabbitMQSource",
    "redis_pubsub": "windsock.sources.redis_pubsub:RedisPubSubSource",
    "redis_stream": "windsock.sources.redis_stream:RedisStreamSource",
    "s3": "windsock.sources.s3:S3Source",
    "servicebus": "windsock.sources.servicebus:ServiceBusSource",
    "sftp": "windsock.sources.sftp:SftpSource",
    "sql": "windsock.sources.sql:SqlSource",
    "sqs": "windsock.sources.sqs:SqsSource",
    "sse": "windsock.sources.sse:SseSource",
    "webhook": "windsock.sources.webhook:WebhookSource",
}
"""kind → ``module:class``. A source of one's own is named by that dotted form instead of a kind."""


def make_source(kind: str, options: dict[str, Any], connections: Connections | None = None) -> Source:
    """The source of ``kind``, its options checked against its config's fields.

    ``connections`` finds the Connection that the options name; without it the environment does.
    """
    factory = source_class(kind)
    try:
        config = msgspec.convert(options, factory.config)
    except msgspec.ValidationError as error:
        raise WindsockError(f"source {kind!r}: {error}") from error
    source: Source = factory(config)
    if connections is not None and isinstance(source, UsesConnection):
        source.connections = connections
    return source


def source_key(kind: str, options: dict[str, Any]) -> str:
    """The name under which readers of the same system share one lease and one cursor.

    Options that a source lists as its ``tuning`` do not count: changing them keeps the position.
    """
    tuning: frozenset[str] = getattr(source_class(kind), "tuning", frozenset())
    identity = {name: value for name, value in options.items() if name not in tuning}
    plain = msgspec.json.encode(identity, order="sorted")
    return f"{kind}:{hashlib.blake2b(plain, digest_size=8).hexdigest()}"


def source_class(kind: str) -> Any:
    """The class of a kind: registered here, by an installed package, or named as ``package.module:Class``."""
    target = SOURCES.get(kind) or _entry_points().get(kind, kind)
    module, _, name = target.partition(":")
    if not name:
        known = ", ".join(sorted({*SOURCES, *_entry_points()}))
        raise WindsockError(f"unknown source {kind!r}: use one of {known}, or 'package.module:Class'")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise WindsockError(f"source {kind!r} cannot be imported: {error}") from error


@cache
def _entry_points() -> dict[str, str]:
    """Kinds that installed packages offer in the entry point group ``windsock.sources``."""
    return {point.name: point.value for point in entry_points(group="windsock.sources")}
