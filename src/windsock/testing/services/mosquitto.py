"""Mosquitto from Debian's packages: an MQTT broker with a password, with and without TLS.

The user may subscribe to every topic except those under ``secret/``. What the broker keeps is written to
disk once a second and when it is stopped, so that a ``kill`` may cost the last second.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from windsock.connections import Connection
from windsock.testing.certificates import Certificates
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import debian
from windsock.testing.services.base import Service

__all__ = ["Mosquitto"]

USER = "windsock"
_CONFIG = """\
user {user}
per_listener_settings false
allow_anonymous false
plugin {plugin}
plugin_opt_config_file {home}/users.json
persistence true
persistence_location {home}/
autosave_interval 1
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
log_dest stdout
log_type error
log_type warning
log_type notice
listener {port} {loopback}
listener {tls_port} {loopback}
cafile {authority}
certfile {certificate}
keyfile {key}
"""


class Mosquitto(Service):
    """One Mosquitto broker; sessions and retained messages survive a stop."""

    name = "mosquitto"
    default_port = 1883

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self.tls_port = free_port()

    @classmethod
    def install(cls) -> None:
        debian.fetch("mosquitto", "mosquitto")

    @classmethod
    def installed(cls) -> bool:
        return (debian.root("mosquitto") / ".complete").exists()

    def prepare(self) -> None:
        password, salt, iterations = secrets.token_hex(16), secrets.token_bytes(12), 101
        digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
        user = {
            "username": USER,
            "password": base64.b64encode(digest).decode(),
            "salt": base64.b64encode(salt).decode(),
            "iterations": iterations,
            "roles": [{"rolename": "ordinary"}],
        }
        secret = {"acltype": "subscribePattern", "topic": "secret/#", "allow": False}
        rights = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
        users = {
            "defaultACLAccess": dict.fromkeys(rights, True),
            "clients": [user],
            "roles": [{"rolename": "ordinary", "acls": [secret]}],
        }
        (self.directory / "users.json").write_text(json.dumps(users))
        (self.directory / "password").write_text(password)

    @property
    def certificates(self) -> Certificates:
        """The files that the TLS port goes by."""
        return Certificates(self.directory / "tls", client=USER)

    def command(self) -> Sequence[str | Path]:
        certificates = self.certificates
        config = self.directory / "mosquitto.conf"
        config.write_text(
            _CONFIG.format(
                user=getpass.getuser(),  # root would be changed into somebody who cannot read our files
                home=self.directory,
                plugin=next(_tree().glob("lib/*/mosquitto_dynamic_security.so")),
                loopback=LOOPBACK,
                port=self.port,
                tls_port=self.tls_port,
                authority=certificates.authority,
                certificate=certificates.server,
                key=certificates.server_key,
            )
        )
        return [_tree() / "sbin" / "mosquitto", "-c", config]

    def environment(self) -> dict[str, str]:
        return debian.with_libraries(debian.root("mosquitto"))

    def connection(self, conn_id: str) -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="mqtt",
            host=LOOPBACK,
            port=self.port,
            login=USER,
            password=(self.directory / "password").read_text(),
        )


def _tree() -> Path:
    return debian.root("mosquitto") / "usr"
