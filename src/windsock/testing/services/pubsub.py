"""Google's own fake of Pub/Sub (``pstest``), built through the Go proxy.

It orders by ordering key, redelivers after the ack deadline, and forgets everything when it ends: topics and
subscriptions are made again after a restart. Its pull looks for messages at once and again after half a
second, and a subscription for exactly one delivery is only marked as such.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from windsock.connections import Connection
from windsock.testing.certificates import Certificates
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable, cache_directory

__all__ = ["PubSub"]

MODULE = "cloud.google.com/go/pubsub/v2"
VERSION = "v2.8.0"
PROJECT = "windsock"
_PROGRAM = Path(__file__).with_name("pubsub_server.go")
_GO_MOD = f"module windsock/pubsub\n\ngo 1.24.0\n\nrequire {MODULE} {VERSION}\n"


class PubSub(Service):
    """One Pub/Sub server on loopback.

    Plain, it takes everybody, as Google's emulator does; with ``tls`` it speaks nothing else and asks for
    the ``token``, as an address of Google does.
    """

    name: ClassVar[str] = "pubsub"
    default_port: ClassVar[int] = 8085

    def __init__(self, base: Path, *, port: int | None = None, tls: bool = False) -> None:
        super().__init__(base, port=port)
        self._tls = tls
        self.token = secrets.token_hex(16)
        """What a caller must bring, with ``tls``."""

    @classmethod
    def install(cls) -> None:
        if cls.installed():
            return
        if not shutil.which("go"):
            raise Unavailable("pubsub: needs Go to build it")
        cache = cache_directory()
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / ".pubsub.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not cls.installed():
                _build(cache)

    @classmethod
    def installed(cls) -> bool:
        program = _program()
        return program.exists() and program.stat().st_mtime >= _PROGRAM.stat().st_mtime

    @property
    def certificates(self) -> Certificates:
        """The files that TLS goes by."""
        return Certificates(self.directory / "tls")

    def command(self) -> Sequence[str | Path]:
        command: list[str | Path] = [_program(), "-address", f"{LOOPBACK}:{self.port}"]
        if self._tls:
            files = self.certificates
            command += ["-certificate", files.server, "-key", files.server_key, "-token", self.token]
        return command

    def connection(self, conn_id: str = "gcp") -> Connection:
        """An Airflow Connection of type ``google_cloud_platform`` without credentials."""
        return self.connection_at(conn_id, self.port)

    def connection_at(self, conn_id: str, port: int) -> Connection:
        """A Connection by another port."""
        extra = {"project": PROJECT, "is_anonymous": True, "pubsub_endpoint": f"http://{LOOPBACK}:{port}"}
        return Connection(conn_id=conn_id, conn_type="google_cloud_platform", extra=extra)


def _build(cache: Path) -> None:
    place = _program().parent
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(_PROGRAM, place / "main.go")
    (place / "go.mod").write_text(_GO_MOD)
    env = {
        **os.environ,
        "GOPATH": str(cache / "go"),
        "GOCACHE": str(cache / "go" / "cache"),
        "GOFLAGS": "-mod=mod -modcacherw -buildvcs=false",
    }
    done = subprocess.run(
        ["go", "build", "-o", "unfinished", "."],
        cwd=place, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"go build of {MODULE} {VERSION} failed: {done.stderr.strip()[-500:]}")
    (place / "unfinished").rename(_program())


def _program() -> Path:
    return cache_directory() / "pubsub" / VERSION / "pubsub-server"
