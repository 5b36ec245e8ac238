"""The watchers that a user attaches to an asset: an Airflow ``AssetWatcher`` with a source and its options.

::

    orders = Asset("shop/orders", watchers=[
        WebhookAssetWatcher(name="orders", auth="hmac", conn_id="shop", where="data.total > 100", batch=500),
    ])
    reports = Asset("reports", watchers=[FilesAssetWatcher(name="reports", path="/in", pattern="*.csv")])

The options that every watcher takes are those of :class:`EventWatcher`; the others are its source's own: the
fields of the ``Config`` in the module of that kind, and of its page under ``docs/reference/sources``.
A mistake in any of them is refused when the Dag is parsed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar

import msgspec
from airflow.sdk import AssetWatcher

from windsock.airflow.trigger import WatcherTrigger
from windsock.events import MAX_EVENT_BYTES
from windsock.pipeline import Pipeline
from windsock.pipeline.schemas import with_schemas
from windsock.rules import Rule
from windsock.sources import make_source, source_class
from windsock.spec import DEFAULT_BATCH, HIGH_WATER, LOW_WATER, Batching, WatcherSpec

__all__ = [
    "APIEndpointWatcher",
    "AirflowAssetWatcher",
    "AzureBlobAssetWatcher",
    "AzureQueueAssetWatcher",
    "CorrelatedAssetWatcher",
    "DatabaseTableWatcher",
    "DeadLettersAssetWatcher",
    "DebeziumAssetWatcher",
    "DebeziumEngineAssetWatcher",
    "EventWatcher",
    "ExpectationAssetWatcher",
    "FilesAssetWatcher",
    "GcsAssetWatcher",
    "HttpAssetWatcher",
    "KafkaAssetWatcher",
    "KinesisAssetWatcher",
    "MqttAssetWatcher",
    "NatsAssetWatcher",
    "PostgresCdcAssetWatcher",
    "PostgresNotifyAssetWatcher",
    "PubSubAssetWatcher",
    "RabbitMQAssetWatcher",
    "RedisPubSubAssetWatcher",
    "RedisStreamAssetWatcher",
    "S3AssetWatcher",
    "ServiceBusAssetWatcher",
    "SftpAssetWatcher",
    "SqlAssetWatcher",
    "SqsAssetWatcher",
    "SqsQueueWatcher",
    "SseAssetWatcher",
    "WebhookAssetWatcher",
]


class EventWatcher(AssetWatcher):
    """Watches any source, named by its ``kind`` or as ``package.module:Class``.

    Durations are seconds or text such as ``"5s"``, ``"10min"``, ``"24h"``. Parts with several values
    (``sequence``, ``versions``, ``route``, ``retry``, ``expect``, ``retention``) are dicts with the fields of
    the class of that name in :mod:`windsock.spec`.

    :param name: unique among all watchers; the webhook's address, the name in health and queries
    :param types: keep only these event types; ``*`` and ``?`` are wildcards
    :param where: keep only events that match: a CEL expression, or ``package.module:function``; or several
    :param unwrap: the envelope to open: sns, eventbridge, pubsub, debezium, cloudevents
    :param transform: fields to compute, path → CEL expression (None drops it), or ``package.module:function``
    :param schema: what data must look like: a JSON Schema, its file or URL, or a pydantic model's path
    :param schema_mode: ``"coerce"`` converts values that can be converted, ``"strict"`` does not
    :param versions: schemas by version and how to upcast (:class:`windsock.spec.Versions`)
    :param key: CEL expression of the ordering key; events with one key are processed in order
    :param sequence: wait for gaps in a sequence number per key (:class:`windsock.spec.Ordering`)
    :param dedupe: window in which an event is taken once, such as ``"24h"``; None for ever, 0 not at all
    :param dedupe_key: CEL expression of what makes two events the same, or ``"content"``; by default their
        source and id
    :param dedupe_scope: ``"asset"`` also knows what other watchers of the asset have brought
    :param batch: the most events that one run takes, and the size at which a batch is closed
    :param within: wait so long for a batch to fill; by default events are announced at once
    :param quiet: close a batch when nothing came for so long (debounce)
    :param leading: with quiet: the first event after a pause is announced at once
    :param batch_bytes: close a batch at this size
    :param flush: an event that matches this expression closes the batch
    :param target: adaptive batches: the time from arrival to announcement to aim at
    :param throttle: at most one announcement in so long; what comes meanwhile goes along with the next
    :param rate_limit: the most events that runs may take, such as ``"100/m"``
    :param route: its place among the watchers of its source: first match wins (:class:`windsock.spec.Route`)
    :param priority: among the watchers of one asset, the higher goes first
    :param new_dags: where a Dag that is new to the watcher begins: ``"earliest"``, ``"latest"`` or an ISO
        time; by default the first Dag at the first event and a later one at the next
    :param max_attempts: after so many failed runs an event goes to the dead letters
    :param retry_delay: wait before an event of a failed run is delivered again; doubles each time
    :param retry: dead letter category → how they are redriven (:class:`windsock.spec.Retry`)
    :param max_age: an event that waited longer becomes a dead letter
    :param expect: what should arrive and when (:class:`windsock.spec.Expectation`)
    :param retention: how long settled events are kept (:class:`windsock.spec.Retention`)
    :param history: index events by subject, for ``windsock.state``
    :param max_bytes: larger events go to the dead letters
    :param high_water: unsettled events at which the source is paused
    :param low_water: unsettled events at which it goes on
    """

    kind: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        *,
        kind: str | None = None,
        types: Sequence[str] = (),
        where: str | Sequence[str] | None = None,
        unwrap: str | None = None,
        transform: dict[str, str | None] | str | None = None,
        schema: dict[str, Any] | str | None = None,
        schema_mode: str = "strict",
        versions: dict[str, Any] | None = None,
        key: str | None = None,
        sequence: dict[str, Any] | None = None,
        dedupe: str | float | None = None,
        dedupe_key: str | None = None,
        dedupe_scope: str = "watcher",
        batch: int = DEFAULT_BATCH,
        within: str | float = 0,
        quiet: str | float = 0,
        leading: bool = False,
        batch_bytes: int = Batching().bytes,
        flush: str | None = None,
        target: str | float | None = None,
        throttle: str | float = 0,
        rate_limit: str | None = None,
        route: dict[str, Any] | None = None,
        priority: int = 0,
        new_dags: str | None = None,
        max_attempts: int = 3,
        retry_delay: str | float = 30,
        retry: dict[str, Any] | None = None,
        max_age: str | float | None = None,
        expect: dict[str, Any] | None = None,
        retention: dict[str, Any] | None = None,
        history: bool = False,
        max_bytes: int = MAX_EVENT_BYTES,
        high_water: int = HIGH_WATER,
        low_water: int = LOW_WATER,
        **options: Any,
    ) -> None:
        if getattr(source_class(kind or self.kind), "named", False):
            options = {"watcher": name, **options}
        spec = WatcherSpec.from_dict(
            {
                "name": name,
                "kind": kind or self.kind,
                "options": {n: str(v) if isinstance(v, PurePath) else v for n, v in options.items()},
                "types": types,
                "where": where,
                "unwrap": unwrap,
                "transform": transform,
                "schema": schema,
                "schema_mode": schema_mode,
                "versions": versions,
                "key": key,
                "sequence": sequence,
                "dedupe": dedupe,
                "dedupe_key": dedupe_key,
                "dedupe_scope": dedupe_scope,
                "batch": {
                    "size": batch,
                    "bytes": batch_bytes,
                    "within": within,
                    "quiet": quiet,
                    "leading": leading,
                    "flush": flush,
                    "target": target,
                },
                "throttle": throttle,
                "rate_limit": rate_limit,
                "route": route,
                "priority": priority,
                "new_dags": None if new_dags is None else str(new_dags),  # YAML reads a time as one
                "max_attempts": max_attempts,
                "retry_delay": retry_delay,
                "retry": retry or {},
                "max_age": max_age,
                "expect": expect,
                "retention": retention,
                "history": history,
                "max_bytes": max_bytes,
                "high_water": high_water,
                "low_water": low_water,
            }
        )
        spec = with_schemas(spec, _caller_folder())
        make_source(spec.kind, spec.options)
        Pipeline.compile(spec, online=False)
        super().__init__(name=name, trigger=WatcherTrigger(spec.as_dict()))


def _caller_folder() -> Path:
    """The folder of the file that declares the watcher: a schema's file is looked for beside it."""
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to look up the stack
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("windsock.airflow"):
        frame = frame.f_back
    return Path(frame.f_globals.get("__file__") or ".").parent


class AirflowAssetWatcher(EventWatcher):
    """Watches runs, tasks and asset events of this or another Airflow."""

    kind = "airflow"


class AzureBlobAssetWatcher(EventWatcher):
    """Watches an Azure Blob container, by Event Grid notifications or by listing."""

    kind = "azure_blob"


class AzureQueueAssetWatcher(EventWatcher):
    """Watches an Azure storage queue."""

    kind = "azure_queue"


class CorrelatedAssetWatcher(EventWatcher):
    """Finds what a rule describes in the events of other watchers: a join, a silence, a window, a whole.

    Watchers that the rule names and that are attached to the same asset only feed it: the Dags of the asset
    get the results. Options: :class:`windsock.rules.source.CorrelateConfig`; rules: :mod:`windsock.rules`.
    """

    kind = "correlate"

    def __init__(self, name: str, *, rule: Rule | dict[str, Any], **options: Any) -> None:
        super().__init__(name, rule=msgspec.json.decode(msgspec.json.encode(rule)), **options)


class DeadLettersAssetWatcher(EventWatcher):
    """Tells when more dead letters accumulate than ``over`` allows, such as ``"100/1h"``.

    ``of`` names the watchers whose letters count; without it those of all others do.
    """

    kind = "dead_letters"


class DebeziumAssetWatcher(EventWatcher):
    """Watches Debezium's change events in Kafka."""

    kind = "debezium"


class DebeziumEngineAssetWatcher(EventWatcher):
    """Watches a database's changes, by Debezium's engine in a process of its own."""

    kind = "debezium_engine"


class ExpectationAssetWatcher(EventWatcher):
    """Tells when what a watcher declares with ``expect`` is broken, and when that is over.

    ``of`` names the watchers; without it all that declare an expectation are watched.
    """

    kind = "expect"


class FilesAssetWatcher(EventWatcher):
    """Watches a directory for files."""

    kind = "files"


class GcsAssetWatcher(EventWatcher):
    """Watches a Google Cloud Storage bucket, by Pub/Sub notifications or by listing."""

    kind = "gcs"


class HttpAssetWatcher(EventWatcher):
    """Watches an HTTP endpoint, by polling."""

    kind = "http"


class KafkaAssetWatcher(EventWatcher):
    """Watches Kafka topics."""

    kind = "kafka"


class KinesisAssetWatcher(EventWatcher):
    """Watches a Kinesis stream."""

    kind = "kinesis"


class MqttAssetWatcher(EventWatcher):
    """Watches MQTT topics."""

    kind = "mqtt"


class NatsAssetWatcher(EventWatcher):
    """Watches a NATS JetStream stream."""

    kind = "nats"


class PostgresCdcAssetWatcher(EventWatcher):
    """Watches a PostgreSQL database's changes, by logical decoding."""

    kind = "postgres_cdc"


class PostgresNotifyAssetWatcher(EventWatcher):
    """Watches a PostgreSQL table or channel, woken by NOTIFY."""

    kind = "postgres_notify"


class PubSubAssetWatcher(EventWatcher):
    """Watches a Google Pub/Sub subscription."""

    kind = "pubsub"


class RabbitMQAssetWatcher(EventWatcher):
    """Watches a RabbitMQ queue."""

    kind = "rabbitmq"


class RedisPubSubAssetWatcher(EventWatcher):
    """Watches Redis channels: at most once."""

    kind = "redis_pubsub"


class RedisStreamAssetWatcher(EventWatcher):
    """Watches Redis streams."""

    kind = "redis_stream"


class S3AssetWatcher(EventWatcher):
    """Watches an S3 bucket, by notifications or by listing."""

    kind = "s3"


class ServiceBusAssetWatcher(EventWatcher):
    """Watches an Azure Service Bus queue or subscription."""

    kind = "servicebus"


class SftpAssetWatcher(EventWatcher):
    """Watches a directory on an SFTP server."""

    kind = "sftp"


class SqlAssetWatcher(EventWatcher):
    """Watches a database table."""

    kind = "sql"


class SqsAssetWatcher(EventWatcher):
    """Watches an SQS queue."""

    kind = "sqs"


class SseAssetWatcher(EventWatcher):
    """Watches a stream of server-sent events."""

    kind = "sse"


class WebhookAssetWatcher(EventWatcher):
    """Takes webhooks and CloudEvents at ``/windsock/hooks/<name>`` of Airflow's API server.

    Options: :class:`windsock.sources.webhook.WebhookConfig`. ``auth`` has no default, but with a ``preset``
    that signs it needs none.
    """

    kind = "webhook"


APIEndpointWatcher = HttpAssetWatcher
DatabaseTableWatcher = SqlAssetWatcher
SqsQueueWatcher = SqsAssetWatcher
