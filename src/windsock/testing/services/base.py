"""A real server for tests, on loopback, without Docker and without root.

Software is fetched once into a cache (``WINDSOCK_SERVICES``, by default the user's cache directory) and never
installed into the system; a server's data lives in a directory that its test or ``make services`` gives it.

::

    with RabbitMQ(tmp_path) as rabbit:       # free ports, fresh data
        rabbit.connection()                  # an Airflow Connection to it
        rabbit.kill()                        # as a power cut would
        rabbit.start()                       # the same ports, the data that was on disk
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK, Child, free_port, tail

__all__ = ["Service", "Unavailable", "cache_directory"]


class Unavailable(Exception):
    """The server's software cannot be had on this machine; the message says what is missing."""


def cache_directory() -> Path:
    """Where downloaded servers are kept."""
    if chosen := os.environ.get("WINDSOCK_SERVICES"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windsock" / "services"


class Service(ABC):
    """One server process on loopback, its data under ``base`` and kept across restarts."""

    name: ClassVar[str]
    """What people call it; also its row in ``make services``."""
    default_port: ClassVar[int]
    """The port that ``make services`` tries first."""
    ready_after: ClassVar[float] = 60.0
    """Seconds after which a start has failed."""

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        self.directory = base.resolve() / self.name
        self.port = port or free_port()
        self._child: Child | None = None

    @classmethod
    @abstractmethod
    def install(cls) -> None:
        """Fetch the software if it is not there; raise :class:`Unavailable` if it cannot be had."""

    @classmethod
    @abstractmethod
    def installed(cls) -> bool:
        """Whether the software is there, without looking at the network."""

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The command line of the server; writes its configuration first."""

    @abstractmethod
    def connection(self, conn_id: str) -> Connection:
        """An Airflow Connection to this server."""

    def environment(self) -> dict[str, str]:
        """The environment of the server."""
        return dict(os.environ)

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing
        """Make the data directory ready before the first start; by default there is nothing to do."""

    def ready(self) -> bool:
        """Whether the server answers; by default, whether it takes connections."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0):
                return True
        except OSError:
            return False

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._child is not None and self._child.returncode is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        if self.running:
            return
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            self.prepare()
        log = self.directory / "server.log"
        self._child = Child(self.command(), log=log, env=self.environment(), cwd=self.directory)
        try:
            self.wait(self.ready, "get ready")
        except RuntimeError:
            self.kill()
            raise

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something of the running server; raises with the end of its log if it does not come."""
        deadline = time.monotonic() + self.ready_after
        while not condition():
            dead = not self.running
            if dead or time.monotonic() > deadline:
                how = "ended before it could" if dead else "did not"
                log = tail(self.directory / "server.log")
                raise RuntimeError(f"{self.name} on port {self.port} {how} {what}; its log ends with:\n{log}")
            time.sleep(0.05)

    def stop(self, timeout: float = 10.0) -> None:
        """Ask it to end, by force when that takes longer than ``timeout``."""
        if self._child is not None:
            self._child.signal(signal.SIGTERM)
            self._child.end(timeout)
            self._child = None

    def kill(self) -> None:
        """SIGKILL every process of the server, as a power cut would."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def restart(self) -> None:
        """Kill it and start it again on the same port with what is on disk."""
        self.kill()
        self.start()

    def forget(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
