"""From an Airflow Connection to the settings of librdkafka, and from its errors to ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["REGISTRY_PREFIX", "cluster_of", "consumer_settings", "translated"]

REGISTRY_PREFIX = "schema.registry."
"""Extras that belong to the schema registry; librdkafka does not know them."""

_DEFAULTS: dict[str, Any] = {
    "client.id": "windsock",
    "session.timeout.ms": 10_000,  # a reader that was killed is replaced before its lease has run out
    "heartbeat.interval.ms": 3_000,
    "partition.assignment.strategy": "cooperative-sticky",  # a rebalance takes away only what it must
    "reconnect.backoff.max.ms": 1_000,
    "fetch.wait.max.ms": 1_000,  # how often a quiet topic costs a request
    "queued.max.messages.kbytes": 16_384,  # read ahead, per reader
    "topic.metadata.refresh.interval.ms": 30_000,  # how soon a new topic of a pattern is found
    "socket.keepalive.enable": True,
    "log_level": 0,  # its errors reach us as errors
}
_CLASSIC = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""What the newer group protocol (``group.protocol=consumer``) leaves to the broker."""
_NOT_LIBRDKAFKA = ("basic.auth.", "bearer.auth.", REGISTRY_PREFIX)
_REMEDIES = {
    "_ALL_BROKERS_DOWN": ("cannot be reached", "check that it runs, and host and port in"),
    "_TRANSPORT": ("cannot be reached", "check that it runs, and host and port in"),
    "_TIMED_OUT": ("does not answer", "check that it runs, and host, port and protocol in"),
    "_RESOLVE": ("cannot be found", "correct the host in"),
    "_AUTHENTICATION": ("refused the login", "correct login, password and sasl.mechanism in"),
    "SASL_AUTHENTICATION_FAILED": ("refused the login", "correct login and password in"),
    "_SSL": ("cannot be trusted", "correct ssl.ca.location and security.protocol in"),
    "_INVALID_ARG": ("cannot be configured so", "correct the extras of"),
    "UNKNOWN_TOPIC_OR_PART": ("lacks the topic", "create it, or correct its name beside"),
    "_UNKNOWN_TOPIC": ("lacks the topic", "create it, or correct its name beside"),
    "TOPIC_AUTHORIZATION_FAILED": ("does not let us read", "grant READ on the topic to the user of"),
    "GROUP_AUTHORIZATION_FAILED": ("does not let us join", "grant READ on the group to the user of"),
    "FENCED_INSTANCE_ID": ("gave our place to another reader", "set another `instance` beside"),
}
"""librdkafka's name of an error → what it means, and what to do with the Connection."""
_SECRET = ("password", "secret", "token", "key.pem", "user.info", "jaas")


def consumer_settings(connection: Connection, **fixed: Any) -> dict[str, Any]:
    """The settings of a consumer; ``fixed`` ones (underscores for dots) win over those of the Connection."""
    settings: dict[str, Any] = {}
    for name, value in connection.extra.items():
        if name.startswith(_NOT_LIBRDKAFKA) or name.endswith("_cb") or value is None or value == "":
            continue
        if not isinstance(value, str | int | float):
            raise SourceError(
                f"Kafka connection {connection.conn_id!r}: the extra {name!r} is a {type(value).__name__}: "
                "write librdkafka's settings as text or numbers"
            )
        settings[name] = value
    if not settings.get("bootstrap.servers"):
        settings["bootstrap.servers"] = _servers(connection)
    if connection.login:
        settings.setdefault("sasl.username", connection.login)
        settings.setdefault("sasl.password", connection.password or "")
        settings.setdefault("security.protocol", "SASL_SSL")  # never a password in the clear by default
        if "sasl.mechanisms" not in settings:
            settings.setdefault("sasl.mechanism", "PLAIN")
    settings |= {name.replace("_", "."): value for name, value in fixed.items() if value is not None}
    newer = settings.get("group.protocol") == "consumer"
    defaults = {name: value for name, value in _DEFAULTS.items() if not (newer and name in _CLASSIC)}
    return defaults | settings


def cluster_of(settings: Mapping[str, Any]) -> str:
    """The first host of the bootstrap servers, without its port."""
    first = str(settings["bootstrap.servers"]).split(",")[0].strip()
    host = first.rpartition("://")[2].rpartition(":")[0] or first
    return host.strip("[]") or first


def translated(error: Any, settings: Mapping[str, Any], conn_id: str, detail: str = "") -> SourceError:
    """Our error for one of librdkafka's: what happened, where, and what to do; never with a secret."""
    said = f"{error.str() or error.name()}{f' ({detail})' if detail else ''}"
    # These two do not always come under their own names.
    told = {"group.instance.id": "FENCED_INSTANCE_ID", "SSL routines": "_SSL"}
    name = next((name for text, name in told.items() if text in said), error.name())
    what, remedy = _REMEDIES.get(name, ("failed", "see what it says, and check"))
    where = f"Kafka at {settings['bootstrap.servers']}"
    return SourceError(_without_secrets(f"{where} {what}: {said}; {remedy} connection {conn_id!r}", settings))


def _servers(connection: Connection) -> str:
    hosts = [host.strip() for host in (connection.host or "").split(",") if host.strip()]
    if not hosts:
        raise SourceError(
            f"Kafka connection {connection.conn_id!r} names no broker: set its host, or `bootstrap.servers` "
            "in its extra"
        )
    return ",".join(host if _has_port(host) else f"{host}:{connection.port or 9092}" for host in hosts)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and (host.count(":") == 1 or "]:" in host)


def _without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    for name, value in settings.items():
        if any(word in name for word in _SECRET) and value:
            text = text.replace(str(value), "***")
    return text
