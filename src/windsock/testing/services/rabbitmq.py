"""RabbitMQ from Debian's packages: its Erlang machine is started directly, with a port mapper of its own.

The server has one virtual host and one user, listens with and without TLS, and takes the user's client
certificate instead of the password (``EXTERNAL``). Nothing of it is reachable from outside.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from windsock.connections import Connection
from windsock.testing.certificates import Certificates
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import debian
from windsock.testing.services.base import Service

__all__ = ["RabbitMQ"]

USER = VHOST = "windsock"
_CONFIG = """\
listeners.tcp.1 = {loopback}:{port}
listeners.ssl.1 = {loopback}:{tls_port}
ssl_options.cacertfile = {authority}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
ssl_cert_login_from = common_name
default_user = {user}
default_pass = {password}
default_vhost = {vhost}
log.console = true
log.console.level = warning
log.file = false
disk_free_limit.absolute = 50MB
raft.wal_max_size_bytes = 64000000
"""
_MACHINE = "+W w +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none +B i"


class RabbitMQ(Service):
    """One RabbitMQ node; queues that are durable survive ``restart``."""

    name = "rabbitmq"
    default_port = 5672

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self.tls_port = free_port()
        self._mapper_port, self._node_port = free_port(), free_port()

    @classmethod
    def install(cls) -> None:
        debian.fetch("rabbitmq", "rabbitmq-server")

    @classmethod
    def installed(cls) -> bool:
        return (debian.root("rabbitmq") / ".complete").exists()

    def prepare(self) -> None:
        (self.directory / "password").write_text(secrets.token_hex(16))
        (self.directory / "enabled_plugins").write_text("[rabbitmq_auth_mechanism_ssl].\n")

    @property
    def certificates(self) -> Certificates:
        """The files that the TLS port goes by."""
        return Certificates(self.directory / "tls", client=USER)

    def command(self) -> Sequence[str | Path]:
        certificates = self.certificates
        (self.directory / "rabbitmq.conf").write_text(
            _CONFIG.format(
                loopback=LOOPBACK,
                port=self.port,
                tls_port=self.tls_port,
                authority=certificates.authority,
                certificate=certificates.server,
                key=certificates.server_key,
                user=USER,
                vhost=VHOST,
                password=self._password,
            )
        )
        tools = _erlang_tools()
        mapper = shlex.quote(str(tools / "epmd"))
        machine = shlex.join(
            [
                *(str(tools / "erlexec"), "-noinput", "-s", "rabbit", "boot", "-boot", "start_sasl"),
                *(*_MACHINE.split(), "-start_epmd", "false", "-syslog", "logger", "[]"),
                *("-syslog", "syslog_error_logger", "false"),
                *("-kernel", "inet_dist_use_interface", "{127,0,0,1}"),
                *("-kernel", "prevent_overlapping_partitions", "false"),
            ]
        )
        # The port mapper would daemonise itself out of our sight if Erlang started it.
        return [
            *("/bin/sh", "-c"),
            f"{mapper} & until {mapper} -names >/dev/null 2>&1; do sleep 0.02; done; exec {machine}",
        ]

    def environment(self) -> dict[str, str]:
        tools = _erlang_tools()
        home = self.directory
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
            "ROOTDIR": str(tools.parent.parent),
            "BINDIR": str(tools),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": str(_plugins()),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "HOME": str(home),
            "RABBITMQ_HOME": str(_plugins().parent),
            "RABBITMQ_NODENAME": "windsock@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_PLUGINS_DIR": str(_plugins()),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }

    def remembers(self, queue: str) -> bool:
        """Whether a quorum queue would survive a kill by now: a new one is written down after a second."""
        written = (self.directory / "data").glob("*/quorum/*/names.dets")
        return any(queue.encode() in file.read_bytes() for file in written)

    def connection(self, conn_id: str) -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="amqp",
            host=LOOPBACK,
            port=self.port,
            login=USER,
            password=self._password,
            schema=VHOST,
        )

    @property
    def _password(self) -> str:
        return (self.directory / "password").read_text()


def _erlang_tools() -> Path:
    return next((debian.root("rabbitmq") / "usr" / "lib" / "erlang").glob("erts-*/bin"))


def _plugins() -> Path:
    return next((debian.root("rabbitmq") / "usr" / "lib" / "rabbitmq" / "lib").glob("*/plugins"))
