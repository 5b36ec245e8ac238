"""What the parts of the SQL log stand on: named statements inside a transaction.

The statements are in ``queries/``, a file for each part of the log; a dialect says how a transaction is
opened and how many rows are written at once.
"""

from __future__ import annotations

import abc
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import Any

from windsock.events import Event, LeaseLost, WindsockError
from windsock.log.records import Lease

__all__ = [
    "ALL",
    "MAX_DELAY",
    "LogError",
    "LogUnavailable",
    "Row",
    "SqlPart",
    "Transaction",
    "check_lease",
    "delivered",
    "event_of",
    "known",
    "like",
    "load_queries",
    "migrations",
    "named",
]

MAX_DELAY = 3600.0
"""The longest wait between two reminders or two deliveries of an event."""

ALL = 1_000_000_000
"""A limit that is none."""

Row = Mapping[str, Any]


class LogError(WindsockError):
    """The log was asked for something that it does not have."""


class LogUnavailable(WindsockError):
    """The log's database cannot be reached; nothing was changed, or it is unknown whether it was."""


def load_queries(**tokens: str) -> dict[str, str]:
    """The statements of ``queries/`` by name, with the dialect's tokens filled in."""
    folder = resources.files(__package__).joinpath("queries")
    files = [item for item in folder.iterdir() if item.name.endswith(".sql")]
    text = "\n".join(item.read_text("utf-8") for item in files)
    queries: dict[str, str] = {}
    for block in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        sql = "\n".join(line for line in rest.splitlines() if not line.startswith("--")).strip()
        for token, value in tokens.items():
            sql = sql.replace("{" + token + "}", value)
        if queries.setdefault(name.strip(), sql) is not sql:
            raise LogError(f"two statements are named {name.strip()!r}")
    return queries


def migrations(dialect: str) -> list[tuple[int, str]]:
    """(version, SQL) of every migration of a dialect, in order."""
    folder = resources.files(__package__).joinpath("migrations", dialect)
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(item.name.split("_")[0]), item.read_text("utf-8")) for item in files]


class Transaction(abc.ABC):
    """An open transaction: named statements, and the bulk writes of a dialect."""

    @abc.abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[Row]:
        """Run a named statement and return its rows."""

    @abc.abstractmethod
    def run(self, name: str, /, **params: Any) -> int:
        """Run a named statement and return how many rows it changed."""

    @abc.abstractmethod
    def many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Run a named statement once for each set of parameters."""

    @abc.abstractmethod
    def take_seqs(self, count: int) -> Sequence[int]:
        """``count`` new positions in the log, ascending."""

    @abc.abstractmethod
    def remember(
        self, hashes: Sequence[bytes], seqs: Sequence[int], expires_at: float | None, now: float
    ) -> dict[bytes, int]:
        """Store the dedup keys that are new; return those that were known, with the seq that has them."""

    @abc.abstractmethod
    def insert_events(
        self,
        watcher_id: int,
        events: Sequence[Event],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        now: float,
        subjects: Sequence[str | None] = (),
    ) -> None:
        """Store events at their positions, to be found by these subjects if there are any."""

    def row(self, name: str, /, **params: Any) -> Row | None:
        """The first row of a named statement."""
        rows = self.rows(name, **params)
        return rows[0] if rows else None


class SqlPart(abc.ABC):
    """Base of the log's parts: a clock and a way to open a transaction. The database has all the state."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    @abc.abstractmethod
    def _transaction(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction that commits at the end of the block and rolls back on an error."""

    @abc.abstractmethod
    def _fill(self, name: str, where: str) -> str:
        """A named statement with ``{where}`` replaced by conditions.

        In these ``{id}`` means that the event's id is ``:id``, and ``{text}`` is its body as text.
        """


def event_of(row: Row) -> Event:
    """The event of a row that has body, seq and attempts."""
    return Event.decode(row["body"], seq=row["seq"], attempt=row["attempts"])


def delivered(row: Row) -> Event:
    """The event of a row that has replay, too: as a run gets it."""
    return Event.decode(row["body"], seq=row["seq"], attempt=row["attempts"], replay=row["replay"])


def like(text: str) -> str:
    """A pattern for ``LIKE … ESCAPE '!'`` that finds ``text`` anywhere."""
    escaped = re.sub(r"([!%_])", r"!\1", text)
    return f"%{escaped}%"


def named(**wanted: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    """Conditions that columns have the given values, with their parameters; what is None is left out.

    A condition that is not there leaves the database a choice of index, which ``:x IS NULL OR …`` does not.
    """
    given = {name: value for name, (_, value) in wanted.items() if value is not None}
    return " AND ".join(f"{wanted[name][0]} = :{name}" for name in given) or "1 = 1", given


def known(row: Row | None, name: str) -> Row:
    if row is None:
        raise LogError(
            f"watcher {name!r} is not registered in the log: is a Dag scheduled on its asset, and parsed?"
        )
    return row


def check_lease(tx: Transaction, lease: Lease) -> None:
    held = tx.row("get_lease", name=lease.name)
    if held is None or held["epoch"] != lease.epoch or held["owner"] != lease.owner:
        raise LeaseLost(f"lease {lease.name!r} of {lease.owner!r} (epoch {lease.epoch}) was taken over")
