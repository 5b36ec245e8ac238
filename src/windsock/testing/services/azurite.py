"""Azurite: Microsoft's own emulator of Azure Storage, from npm; blobs and queues, keys are checked."""

from __future__ import annotations

import base64
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import npm
from windsock.testing.services.base import Service

__all__ = ["Azurite"]

VERSION = "3.37.0"
ACCOUNT = "windsock"
KEY = base64.b64encode(b"a key that only this emulator takes").decode()


class Azurite(Service):
    """One Azurite on loopback; ``port`` is that of the blobs, ``queue_port`` that of the queues."""

    name: ClassVar[str] = "azurite"
    default_port: ClassVar[int] = 10000

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self.queue_port = free_port()
        self._table_port = free_port()

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            npm.fetch("azurite", VERSION)

    @classmethod
    def installed(cls) -> bool:
        return npm.here() and _program().exists()

    def command(self) -> Sequence[str | Path]:
        ports = {"blob": self.port, "queue": self.queue_port, "table": self._table_port}
        options = [part for name, port in ports.items() for part in _listen(name, port)]
        switches = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--disableProductStyleUrl"]
        node = shutil.which("node") or "node"
        return [node, _program(), *options, *switches, "--location", self.directory / "data"]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

    def ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.queue_port), timeout=1.0):
                return super().ready()
        except OSError:
            return False

    def connection(self, conn_id: str = "azure") -> Connection:
        """An Airflow Connection of type ``wasb`` to blobs and queues."""
        return self.connection_at(conn_id, blob_port=self.port, queue_port=self.queue_port)

    def connection_at(self, conn_id: str, *, blob_port: int, queue_port: int, key: str = KEY) -> Connection:
        """A Connection by other ports, or with another key."""
        return Connection(
            conn_id=conn_id,
            conn_type="wasb",
            host=f"http://{LOOPBACK}:{blob_port}/{ACCOUNT}",
            login=ACCOUNT,
            password=key,
            extra={"queue_url": f"http://{LOOPBACK}:{queue_port}/{ACCOUNT}"},
        )


def _program() -> Path:
    return npm.place("azurite", VERSION) / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"


def _listen(name: str, port: int) -> list[str]:
    return [f"--{name}Host", LOOPBACK, f"--{name}Port", str(port)]
