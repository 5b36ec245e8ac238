"""A peer in the place of Azure Service Bus, of which no server can be had: real AMQP 1.0, but not Azure.

See :mod:`windsock.testing.services.servicebus_peer` for what it can do. Azure's client library connects to it
without TLS, as to Microsoft's emulator (``UseDevelopmentEmulator=true``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable

__all__ = ["ServiceBusPeer"]

POLICY = "windsock"
KEY = "a-key-that-only-this-peer-takes"


class ServiceBusPeer(Service):
    """One peer on loopback; see the module's docstring."""

    name: ClassVar[str] = "servicebus"
    default_port: ClassVar[int] = 5672

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            raise Unavailable(
                "servicebus: the wheel that its peer speaks AMQP with is not installed: "
                "pip install python-qpid-proton"
            )

    @classmethod
    def installed(cls) -> bool:
        return importlib.util.find_spec("proton") is not None

    def queue(self, name: str, **settings: Any) -> None:
        """Make a queue: ``lock`` (seconds) and ``sessions`` are what it can be told."""
        self._make(name, settings)

    def topic(self, name: str, *subscriptions: str, **settings: Any) -> None:
        """Make a topic and its subscriptions, which are like queues."""
        self._make(name, {"topic": True})
        for subscription in subscriptions:
            self._make(f"{name}/Subscriptions/{subscription}", settings)

    def command(self) -> Sequence[str | Path]:
        module = "windsock.testing.services.servicebus_peer"
        return [sys.executable, "-m", module, str(self.port), self.directory, POLICY, KEY]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def connection(self, conn_id: str = "servicebus") -> Connection:
        """An Airflow Connection of type ``azure_service_bus``."""
        return self.connection_at(conn_id, self.port)

    def connection_at(self, conn_id: str, port: int, *, key: str = KEY) -> Connection:
        """A Connection by another port, or with another key."""
        return Connection(conn_id=conn_id, conn_type="azure_service_bus", schema=connection_string(port, key))

    def _make(self, name: str, settings: dict[str, Any]) -> None:
        path = self.directory / "entities.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known[name] = settings
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(known))
        unfinished.rename(path)


def connection_string(port: int, key: str = KEY) -> str:
    """What Azure's clients connect with."""
    return (
        f"Endpoint=sb://{LOOPBACK}:{port};SharedAccessKeyName={POLICY};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )
