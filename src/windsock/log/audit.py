"""Whether the log agrees with itself: checks that find gaps, and the repair of each.

A log that only this package writes has none. They come from a restored backup, a hand in the tables, a clock
that jumped, or a triggerer that is not there to do what is due.
"""

from __future__ import annotations

from windsock.events import Event
from windsock.log.arrival import Arrival
from windsock.log.history import History
from windsock.log.records import Gap, Write
from windsock.log.transaction import LogError, Row

__all__ = ["Audit"]

_STATEMENTS: dict[str, tuple[str, ...]] = {
    "logged": ("mend_logged",),
    "missing": ("mend_missing",),
    "open_batch": ("mend_open_batch",),
    "overdue_batch": (),
    "not_announced": ("mend_not_announced",),
    "not_claimed": ("mend_not_claimed",),
    "waiting": (),
    "no_event": ("mend_no_event",),
    "ahead": ("mend_ahead", "mend_lost"),
    "lost": ("mend_lost",),
    "no_claim": ("mend_no_claim",),
    "letter_open": ("mend_letter_open",),
    "no_letter": ("mend_no_letter",),
    "dead_count": ("mend_dead_count",),
    "held_count": ("mend_held_count",),
    "held": (),
    "replay": ("mend_replay", "mend_replay_plan"),
}
"""Kind → the statements that repair it, in the order in which the kinds are looked for and repaired."""

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "gap_overdue_batch": ("now", "grace"),
    "gap_not_announced": ("now", "grace"),
    "gap_not_claimed": ("now", "grace"),
    "gap_replay": ("now", "grace"),
    "gap_waiting": ("now", "older"),
    "gap_no_letter": ("now",),
    "mend_not_announced": ("now",),
    "mend_not_claimed": ("now", "grace"),
    "mend_letter_open": ("now",),
    "mend_no_letter": ("now",),
}
"""Statement → what it is to be given."""


class Audit(Arrival, History):
    """The part of the log that looks for gaps in it."""

    def gaps(self, *, grace: float, older: float) -> list[Gap]:
        values = {"now": self._clock(), "grace": grace, "older": older}
        with self._transaction(write=False) as tx:
            return [
                _gap(kind, row)
                for kind in _STATEMENTS
                for row in tx.rows(f"gap_{kind}", **_given(f"gap_{kind}", values))
            ]

    def mend(self, kind: str, *, grace: float) -> int:
        if kind not in _STATEMENTS:
            raise LogError(f"there is no gap of the kind {kind!r}: {', '.join(_STATEMENTS)}")
        if kind == "overdue_batch":
            return self.close_batches()
        if kind == "held":
            return self._release_held()
        values = {"now": self._clock(), "grace": grace}
        with self._transaction() as tx:
            changed = sum(tx.run(name, **_given(name, values)) for name in _STATEMENTS[kind])
        if kind == "replay":
            self.advance_replays()
        return changed

    def totals(self) -> dict[str, int]:
        with self._transaction(write=False) as tx:
            return dict(tx.rows("totals")[0])

    def _release_held(self) -> int:
        """Store what is held although its turn has come, with everything that follows it without a gap."""
        with self._transaction(write=False) as tx:
            keys = [(row["watcher"], row["first"]) for row in tx.rows("gap_held")]
        for watcher, key in keys:
            with self._transaction() as tx:
                [first] = tx.rows("first_held", watcher=watcher, key=key)
                place = {"watcher_id": first["watcher_id"], "key": key}
                tx.run("put_next_number", number=first["number"], **place)
                event = Event.decode(bytes(first["body"]))
                # Its number is the key's next one, so that the append takes it and its row, and goes on.
                self._append_one(
                    tx, Write(watcher=watcher, events=[event], numbers=[first["number"]]), self._clock()
                )
                reached = int(tx.rows("next_number", **place)[0]["number"])
                tx.run("put_next_number", number=max(reached, first["next_number"] or 0), **place)
        return len(keys)


def _given(statement: str, values: dict[str, float]) -> dict[str, float]:
    return {name: values[name] for name in _PARAMETERS.get(statement, ())}


def _gap(kind: str, row: Row) -> Gap:
    return Gap(
        kind=kind,
        watcher=row["watcher"],
        dag_id=row["dag_id"],
        count=int(row["n"]),
        first=str(row["first"]),
    )
