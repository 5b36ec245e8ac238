"""What rules remember: state by key, stored with the append that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windsock.log.records import Mark, Remembered
from windsock.log.registry import spec_of
from windsock.log.transaction import SqlPart, Transaction

_PAGE = 5000


class Rules(SqlPart):
    """The part of the log that keeps the state of rules and tells them where everybody is."""

    def remembered(self, source: str) -> Iterator[tuple[str, Remembered]]:
        whole = self.recall(source, "")
        if whole is not None:
            yield "", whole
        after = ""
        while True:
            with self._transaction(write=False) as tx:
                rows = tx.rows("rule_states", source=source, after=after, size=_PAGE)
            for row in rows:
                yield row["key"], (bytes(row["state"]), row["expires_at"])
            if len(rows) < _PAGE:
                return
            after = rows[-1]["key"]

    def recall(self, source: str, key: str) -> Remembered | None:
        with self._transaction(write=False) as tx:
            row = tx.row("rule_state", source=source, key=key)
        return (bytes(row["state"]), row["expires_at"]) if row else None

    def marks(self) -> dict[str, Mark]:
        with self._transaction(write=False) as tx:
            return {row["name"]: Mark(seq=row["last_seq"], spec=spec_of(row)) for row in tx.rows("marks")}

    def behind(self, positions: Mapping[str, int]) -> int:
        with self._transaction(write=False) as tx:
            return sum(
                int(tx.rows("count_after", watcher=watcher, after=seq)[0]["n"])
                for watcher, seq in positions.items()
            )

    def arrivals(self, watcher: str, *, since: float, limit: int) -> list[float]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("arrivals", watcher=watcher, since=since, limit=limit)
        return [row["received_at"] for row in reversed(rows)]


def put_states(tx: Transaction, source: str, state: Mapping[str, Remembered | None]) -> None:
    """Store what changed, in the order of the keys; None forgets a key."""
    changed = sorted(state.items())
    tx.many(
        "put_rule_state",
        [
            {"source": source, "key": key, "state": known[0], "expires_at": known[1]}
            for key, known in changed
            if known is not None
        ],
    )
    tx.many("forget_rule_state", [{"source": source, "key": key} for key, known in changed if known is None])
