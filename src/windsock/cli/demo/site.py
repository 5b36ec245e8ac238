"""The demo's place: one directory with Airflow, the event log, the inbox and the webhooks' secret."""

from __future__ import annotations

import fcntl
import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windsock.events import WindsockError
from windsock.testing.stack import AirflowStack

__all__ = ["CONNECTION", "DAGS", "DemoError", "Site", "near"]

DAGS = {"reports": "add_up", "orders": "claim_demo_orders", "payments": "book"}
"""The Dags of `demo_dags`, each with the task that returns the events that its run had."""

CONNECTION = "demo_shop"
_DAG_FOLDER = Path(__file__).parent.parent / "demo_dags"


class DemoError(WindsockError):
    """The demo cannot go on; the message says why and what to do."""


def near(path: Path) -> Path:
    """The path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Site:
    """Everything of the demo that outlives it."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.inbox = self.home / "inbox"
        self.logs = self.home / "logs"
        self.log_file = self.home / "airflow" / "windsock.db"
        self.reused = self.log_file.is_file()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make the directory, and keep it to ourselves: two Airflows cannot share it."""
        try:
            for folder in (self.inbox, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
            ignore = self.home / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            lock = (self.home / "lock").open("w")
        except OSError as error:
            raise DemoError(
                f"cannot use {near(self.home)}: {error}; name another place with --home"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DemoError(
                    f"another demo runs in {near(self.home)}: stop it, or name another place with --home"
                ) from None
            with self._own_log():
                yield

    def stack(self, port: int) -> AirflowStack:
        """The Airflow of this place, not started yet. What dies is started again, as systemd would."""
        connection = json.dumps({"conn_type": "generic", "password": self.secret()})
        config = {
            f"AIRFLOW_CONN_{CONNECTION.upper()}": connection,
            "WINDSOCK_DEMO_INBOX": str(self.inbox),
        }
        return AirflowStack(self.home, _DAG_FOLDER, config=config, port=port, supervise=True)

    def secret(self) -> str:
        """The secret that signs webhooks: made at the first start, the same at every other."""
        path = self.home / "webhook-secret"
        if not path.is_file():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(12))
        return path.read_text()

    @contextmanager
    def _own_log(self) -> Iterator[None]:
        """What our own process has to say goes to a file: the terminal belongs to the events."""
        logger = logging.getLogger("windsock")
        handler = logging.FileHandler(self.logs / "demo.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        before = logger.propagate
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield
        finally:
            logger.propagate = before
            logger.removeHandler(handler)
            handler.close()
