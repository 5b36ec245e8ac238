"""MariaDB from Debian's packages: the bare server, its system tables loaded by itself.

One user, who may do everything, comes over TCP with a password; there is no root login.
"""

from __future__ import annotations

import getpass
import secrets
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import debian
from windsock.testing.services.base import Service

__all__ = ["MariaDB"]

USER = DATABASE = "windsock"
_SYSTEM_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
)


class MariaDB(Service):
    """One MariaDB server."""

    name = "mariadb"
    default_port = 3306

    @classmethod
    def install(cls) -> None:
        debian.fetch("mariadb", "mariadb-server-core")

    @classmethod
    def installed(cls) -> bool:
        return (debian.root("mariadb") / ".complete").exists()

    def prepare(self) -> None:
        password = secrets.token_hex(16)
        (self.directory / "password").write_text(password)
        (self.directory / "data").mkdir()
        scripts = debian.root("mariadb") / "usr" / "share" / "mysql"
        statements = "\n".join(
            [
                "CREATE DATABASE mysql;",
                "USE mysql;",
                "SET @auth_root_socket = NULL;",
                *((scripts / name).read_text() for name in _SYSTEM_TABLES),
                "DELETE FROM mysql.global_priv;",
                "FLUSH PRIVILEGES;",
                f"CREATE USER {USER}@'%' IDENTIFIED BY '{password}';",
                f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;",
                f"CREATE DATABASE {DATABASE};\n",
            ]
        )
        done = subprocess.run(
            [*map(str, self._server()), "--bootstrap", "--silent-startup"],
            input=statements,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"MariaDB's system tables cannot be made:\n{done.stderr[-2000:]}")

    def command(self) -> Sequence[str | Path]:
        return [
            *self._server(),
            *(f"--port={self.port}", f"--bind-address={LOOPBACK}", "--socket=socket"),
            *(f"--pid-file={self.directory / 'pid'}", "--skip-name-resolve", "--max-connections=200"),
            *("--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2"),
        ]

    def environment(self) -> dict[str, str]:
        return debian.with_libraries(debian.root("mariadb"))

    def connection(self, conn_id: str) -> Connection:
        return Connection(
            conn_id=conn_id,
            conn_type="mysql",
            host=LOOPBACK,
            port=self.port,
            login=USER,
            password=(self.directory / "password").read_text(),
            schema=DATABASE,
        )

    def ready(self) -> bool:
        """Whether it answers a query: it takes connections some time before."""
        import pymysql

        try:
            self.execute("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    def execute(self, *statements: str) -> None:
        """Run statements in the database, each committed by itself."""
        import pymysql

        at = self.connection("mariadb")
        client = pymysql.connect(
            host=at.host, port=at.port, user=at.login, password=at.password, database=at.schema,
            autocommit=True, connect_timeout=2,
        )  # fmt: skip
        with closing(client) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    def _server(self) -> Sequence[str | Path]:
        tree = debian.root("mariadb")
        return [
            *(tree / "usr" / "sbin" / "mariadbd", "--no-defaults", f"--user={getpass.getuser()}"),
            *(f"--basedir={tree / 'usr'}", f"--datadir={self.directory / 'data'}"),
            f"--lc-messages-dir={tree / 'usr' / 'share' / 'mysql'}",
        ]
