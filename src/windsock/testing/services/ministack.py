"""MiniStack: an emulator of AWS (S3, SQS, SNS, EventBridge, Kinesis and more) from a wheel.

It keeps its state over an orderly restart, not over a kill. It takes every credential.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable

__all__ = ["MiniStack"]

REGION = "us-east-1"


class MiniStack(Service):
    """One MiniStack on loopback; see the module's docstring."""

    name: ClassVar[str] = "ministack"
    default_port: ClassVar[int] = 4566

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            raise Unavailable("the AWS emulator is not installed: pip install ministack")

    @classmethod
    def installed(cls) -> bool:
        return find_spec("ministack") is not None

    @property
    def url(self) -> str:
        """The address of every service."""
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "hypercorn", "ministack.app:app", "--bind", f"{LOOPBACK}:{self.port}"]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "BIND_HOST": LOOPBACK,
            "MINISTACK_HOST": LOOPBACK,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "",  # all of them; `make test SERVICES=all` would reach it otherwise
            "LOG_LEVEL": "WARNING",
            "PERSIST_STATE": "1",
            "STATE_DIR": str(self.directory / "state"),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(self.directory / "s3"),
            "AWS_ACCESS_KEY_ID": "windsock",
            "AWS_SECRET_ACCESS_KEY": "windsock",
        }

    def restart(self) -> None:
        """Stop it in order and start it again: it writes its state only then."""
        self.stop()
        self.start()

    def connection(self, conn_id: str = "aws") -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="aws",
            login="windsock",
            password="a-secret",  # noqa: S106 - every one is taken
            extra={"region_name": REGION, "endpoint_url": self.url},
        )
