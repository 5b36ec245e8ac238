"""fake-gcs-server: an emulator of Google Cloud Storage, built through the Go proxy.

It keeps its objects on disk, lists in pages and takes every credential.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable, cache_directory

__all__ = ["FakeGcs"]

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
PROJECT = "windsock"


class FakeGcs(Service):
    """One fake-gcs-server on loopback; see the module's docstring."""

    name: ClassVar[str] = "gcs"
    default_port: ClassVar[int] = 4443

    pubsub: str = ""
    """Address of a Pub/Sub server to notify, as ``host:port``; set it before the start."""
    topic: str = ""
    """The topic there, which must exist."""

    @classmethod
    def install(cls) -> None:
        if cls.installed():
            return
        if not shutil.which("go"):
            raise Unavailable("fake-gcs-server: needs Go to build it")
        cache = cache_directory()
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / ".gcs.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if cls.installed():
                return
            env = {
                **os.environ,
                "GOBIN": str(_program().parent),
                "GOPATH": str(cache / "go"),
                "GOCACHE": str(cache / "go" / "cache"),
                "GOFLAGS": "-modcacherw",
            }
            done = subprocess.run(
                ["go", "install", f"{MODULE}@{VERSION}"], env=env, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise Unavailable(f"go install {MODULE} failed: {done.stderr.strip()[-500:]}")

    @classmethod
    def installed(cls) -> bool:
        return _program().exists()

    @property
    def url(self) -> str:
        """The address of its JSON API."""
        return f"http://{LOOPBACK}:{self.port}"

    def command(self) -> Sequence[str | Path]:
        notify = (
            ["-event.pubsub-project-id", PROJECT, "-event.pubsub-topic", self.topic] if self.pubsub else []
        )
        return [
            *(
                _program(),
                "-host",
                LOOPBACK,
                "-port",
                str(self.port),
                "-scheme",
                "http",
                "-log-level",
                "warn",
            ),
            *("-backend", "filesystem", "-filesystem-root", self.directory / "data"),
            *("-external-url", self.url, "-public-host", f"{LOOPBACK}:{self.port}"),
            *("-event.list", "finalize,delete,metadataUpdate", *notify),
        ]

    def environment(self) -> dict[str, str]:
        return {**os.environ, **({"PUBSUB_EMULATOR_HOST": self.pubsub} if self.pubsub else {})}

    def connection(self, conn_id: str = "gcp") -> Connection:
        """An Airflow Connection of type ``google_cloud_platform`` without credentials."""
        return self.connection_at(conn_id, self.port)

    def connection_at(self, conn_id: str, port: int) -> Connection:
        """A Connection by another port."""
        extra = {"project": PROJECT, "is_anonymous": True, "storage_endpoint": f"http://{LOOPBACK}:{port}"}
        return Connection(conn_id=conn_id, conn_type="google_cloud_platform", extra=extra)


def _program() -> Path:
    return cache_directory() / "fake-gcs-server" / VERSION / "fake-gcs-server"
