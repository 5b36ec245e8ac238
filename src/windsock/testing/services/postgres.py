"""PostgreSQL with logical decoding switched on, out of :mod:`windsock.testing.postgres`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from windsock.connections import Connection
from windsock.testing import postgres
from windsock.testing.processes import LOOPBACK
from windsock.testing.services.base import Service, Unavailable

__all__ = ["Postgres"]

_SETTINGS = {"wal_level": "logical", "max_replication_slots": "100", "max_wal_senders": "50"}


class Postgres(Service):
    """One PostgreSQL server; databases are made when they are asked for."""

    name = "postgres"
    default_port = 5432

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self._server = postgres.PostgresServer(base, port=self.port, settings=_SETTINGS)

    @classmethod
    def install(cls) -> None:
        try:
            postgres.PostgresServer()
        except postgres.Unavailable as error:
            raise Unavailable(str(error)) from error

    @classmethod
    def installed(cls) -> bool:
        try:
            cls.install()
        except Unavailable:
            return False
        return True

    def command(self) -> Sequence[str | Path]:
        raise NotImplementedError("its own class starts it")

    def connection(self, conn_id: str, database: str = "postgres") -> Connection:
        address = urlsplit(self.url(database))
        return Connection(
            conn_id=conn_id,
            conn_type="postgres",
            host=LOOPBACK,
            port=self.port,
            login=address.username,
            password=unquote(address.password or ""),
            schema=database,
        )

    def url(self, database: str = "postgres") -> str:
        """The address of a database, which is created if it does not exist."""
        return self._server.url(database)

    @property
    def running(self) -> bool:
        return self._server.running

    def start(self) -> None:
        self._server.start()

    def stop(self, timeout: float = 10.0) -> None:
        self._server.stop(timeout)

    def kill(self) -> None:
        self._server.kill()
