"""Servers for tests: started, waited for, killed, restarted with their data; and the registry of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from windsock.connections import Connection
from windsock.testing.services import SERVICES, Service, service_class

SCRIPT = """
import pathlib, socket, sys
log = pathlib.Path("starts")
log.write_text((log.read_text() if log.exists() else "") + "x")
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""


class Small(Service):
    """A server of a few lines."""

    name = "small"
    default_port = 9
    script = SCRIPT

    @classmethod
    def install(cls) -> None:
        """Python is here."""

    @classmethod
    def installed(cls) -> bool:
        return True

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-c", self.script, str(self.port)]

    def connection(self, conn_id: str) -> Connection:
        return Connection(conn_id=conn_id, host="127.0.0.1", port=self.port)


class Broken(Small):
    """A server that ends at once."""

    script = "print('no such option'); raise SystemExit(3)"


def test_a_server_keeps_its_data_and_port_across_a_kill(tmp_path: Path) -> None:
    """Killed and started again it is the same server; stopped, it is gone."""
    with Small(tmp_path) as server:
        port = server.port
        server.restart()
        assert (server.port, server.running) == (port, True)
        assert (server.directory / "starts").read_text() == "xx"
        server.start()
        assert (server.directory / "starts").read_text() == "xx", "it runs already"
    assert not server.running
    assert not server.ready()
    server.forget()
    assert not server.directory.exists()


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    """The error has the last lines that the server wrote."""
    with pytest.raises(RuntimeError, match=r"(?s)ended before it could get ready.*no such option"):
        Broken(tmp_path).start()


@pytest.mark.parametrize("name", SERVICES)
def test_every_row_resolves(name: str) -> None:
    """A row names a class of that name, and asking whether it is here costs no network."""
    kind = service_class(name)
    assert kind.name == name
    assert kind.default_port > 0
    assert kind.installed() in (True, False)
