"""Kinesalite: an emulator of Kinesis from npm, with all state in memory.

Of the emulators it is the one that reshards as AWS does: a closed shard keeps its records, is read to its
end, and has children. It takes every credential.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import npm
from windsock.testing.services.base import Service

__all__ = ["Kinesalite"]

VERSION = "3.3.3"
_SERVER = """
const kinesalite = require(process.argv[1])
kinesalite({createStreamMs: 0, updateStreamMs: 0, deleteStreamMs: 0, shardLimit: 100})
  .listen(Number(process.argv[2]), process.argv[3])
"""


class Kinesalite(Service):
    """One kinesalite on loopback; see the module's docstring."""

    name: ClassVar[str] = "kinesalite"
    default_port: ClassVar[int] = 4567

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            npm.fetch("kinesalite", VERSION)

    @classmethod
    def installed(cls) -> bool:
        return npm.here() and _library().exists()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str | Path]:
        return [shutil.which("node") or "node", "-e", _SERVER, _library(), str(self.port), LOOPBACK]

    def connection(self, conn_id: str = "aws") -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="aws",
            login="windsock",
            password="a-secret",  # noqa: S106 - every one is taken
            extra={"region_name": "us-east-1", "endpoint_url": self.url},
        )


def _library() -> Path:
    return npm.place("kinesalite", VERSION) / "node_modules" / "kinesalite"
