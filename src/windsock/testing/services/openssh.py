"""OpenSSH's server from Debian's packages: SFTP for one user, who comes with a key.

An ordinary user can only log in as that user, and not by password. As root, the server runs in a user
namespace in which it is an ordinary user, since it would otherwise want an account and directories of its
own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import debian
from windsock.testing.services.base import Service, Unavailable

__all__ = ["OpenSSH"]

_NOBODY = 65534
_CONFIG = """\
Port {port}
ListenAddress {loopback}
HostKey {home}/host
AuthorizedKeysFile {home}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
MaxStartups 200
"""


class OpenSSH(Service):
    """One SSH server, which shows the machine's files over SFTP."""

    name = "openssh"
    default_port = 2222

    @classmethod
    def install(cls) -> None:
        if os.geteuid() == 0 and not shutil.which("unshare"):
            raise Unavailable("openssh: as root it needs util-linux's unshare, to be run as an ordinary user")
        debian.fetch("openssh", "openssh-server", "openssh-sftp-server")

    @classmethod
    def installed(cls) -> bool:
        return (debian.root("openssh") / ".complete").exists()

    def prepare(self) -> None:
        import asyncssh

        for name in ("host", "user"):
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(self.directory / name)
            (self.directory / name).chmod(0o600)
            key.write_public_key(self.directory / f"{name}.pub")

    @property
    def key_file(self) -> Path:
        """The user's private key."""
        return self.directory / "user"

    @property
    def host_key(self) -> str:
        """The server's public key, as a line of known_hosts has it."""
        return (self.directory / "host.pub").read_text().strip()

    def command(self) -> Sequence[str | Path]:
        config = self.directory / "sshd_config"
        config.write_text(_CONFIG.format(port=self.port, loopback=LOOPBACK, home=self.directory))
        server: list[str | Path] = [
            debian.root("openssh") / "usr" / "sbin" / "sshd",
            "-D",
            "-e",
            "-f",
            config,
        ]
        if os.geteuid() == 0:
            return ["unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", *server]
        return server

    def environment(self) -> dict[str, str]:
        return debian.with_libraries(debian.root("openssh"))

    def connection(self, conn_id: str) -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="sftp",
            host=LOOPBACK,
            port=self.port,
            login=pwd.getpwuid(os.geteuid() or _NOBODY).pw_name,
            extra={"key_file": str(self.key_file), "host_key": self.host_key},
        )

    def ready(self) -> bool:
        """Whether it says its name."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as server:
                return server.recv(4) == b"SSH-"
        except OSError:
            return False
