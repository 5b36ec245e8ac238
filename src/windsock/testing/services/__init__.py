"""Every real server that the contract suites run against, one file each."""

from __future__ import annotations

import importlib

from windsock.testing.services.base import Service, Unavailable

__all__ = ["SERVICES", "Service", "Unavailable", "service_class"]

SERVICES: dict[str, str] = {
    "azurite": "windsock.testing.services.azurite:Azurite",
    "gcs": "windsock.testing.services.gcs:FakeGcs",
    "kafka": "windsock.testing.services.kafka:Kafka",
    "kinesalite": "windsock.testing.services.kinesalite:Kinesalite",
    "mariadb": "windsock.testing.services.mariadb:MariaDB",
    "ministack": "windsock.testing.services.ministack:MiniStack",
    "mosquitto": "windsock.testing.services.mosquitto:Mosquitto",
    "moto": "windsock.testing.services.moto:Moto",
    "nats": "windsock.testing.services.nats:Nats",
    "openssh": "windsock.testing.services.openssh:OpenSSH",
    "postgres": "windsock.testing.services.postgres:Postgres",
    "pubsub": "windsock.testing.services.pubsub:PubSub",
    "rabbitmq": "windsock.testing.services.rabbitmq:RabbitMQ",
    "redis": "windsock.testing.services.redis:Redis",
    "redis7": "windsock.testing.services.redis:Redis7",
    "schema_registry": "windsock.testing.services.schema_registry:SchemaRegistry",
    "seaweedfs": "windsock.testing.services.seaweedfs:SeaweedFS",
    "servicebus": "windsock.testing.services.servicebus:ServiceBusPeer",
}
"""name → ``module:class``."""


def service_class(name: str) -> type[Service]:
    """The class of a server by its name."""
    module, _, found = SERVICES[name].partition(":")
    chosen: type[Service] = getattr(importlib.import_module(module), found)
    return chosen
