"""Moto's server: an emulator of AWS from a wheel, with all state in memory.

It takes every credential unless it is told to ask: :meth:`Moto.asking_for_credentials`.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable

__all__ = ["Moto"]

REGION = "us-east-1"


class Moto(Service):
    """One moto server on loopback; see the module's docstring."""

    name: ClassVar[str] = "moto"
    default_port: ClassVar[int] = 5555

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            raise Unavailable("the AWS emulator is not installed: pip install 'moto[server]'")

    @classmethod
    def installed(cls) -> bool:
        return find_spec("moto") is not None and find_spec("flask") is not None

    @property
    def url(self) -> str:
        """The address of every service."""
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str | Path]:
        server = "windsock.testing.services._moto_server"
        return [sys.executable, "-m", server, "-H", LOOPBACK, "-p", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "AWS_ACCESS_KEY_ID": "windsock", "AWS_SECRET_ACCESS_KEY": "windsock"}

    @contextmanager
    def asking_for_credentials(self) -> Iterator[None]:
        """Refuse, inside, every request whose access key is not one of the emulated IAM's."""
        self._ask_after(b"0")
        try:
            yield
        finally:
            self._ask_after(b"inf")

    def _ask_after(self, requests: bytes) -> None:
        call = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.url}/moto-api/reset-auth", data=requests, headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(call, timeout=10).close()  # noqa: S310 - loopback

    def connection(self, conn_id: str = "aws") -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="aws",
            login="windsock",
            password="a-secret",  # noqa: S106 - every one is taken
            extra={"region_name": REGION, "endpoint_url": self.url},
        )
