"""Order by a number: events that arrive ahead of their turn are held until the gap is filled or given up.

For each key of a watcher the log knows the number that comes next::

    number = next          stored, and after it everything held that follows without a gap
    number > next          held; health counts it
    number < next          late: stored at once, and counted
    gap older than wait,   release: go on with the first held one · dead_letter: set aside what is held ·
    or more than limit     hold: go on waiting
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from windsock.events import Category, Event
from windsock.log.transaction import Row, Transaction
from windsock.spec import Ordering

__all__ = ["Released", "Sequencer", "letters_of", "ordering_of"]


@dataclass
class Released:
    """What of some events may be stored now, in order."""

    events: list[Event] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    late: int = 0
    held: int = 0
    """How many more are held than before; less than 0 if some were let go."""

    def add(self, event: Event, body: bytes) -> None:
        """One more event that may be stored."""
        self.events.append(event)
        self.bodies.append(body)


class Sequencer:
    """The numbers of one watcher, inside one transaction."""

    def __init__(self, tx: Transaction, watcher: Row, ordering: Ordering, now: float) -> None:
        self._tx, self._watcher_id, self._ordering, self._now = tx, watcher["id"], ordering, now
        self._next: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def arrive(self, events: Sequence[Event], bodies: Sequence[bytes], numbers: Sequence[int]) -> Released:
        """Sort events into those whose turn it is, with what they let go, and those that are held."""
        released = Released()
        self._load({event.key or "" for event in events})
        for event, body, number in zip(events, bodies, numbers, strict=True):
            key = event.key or ""
            turn = self._next.setdefault(key, number)
            if number < turn:
                released.late += 1
                released.add(event, body)
            elif number == turn:
                released.add(event, body)
                self._next[key] = turn + 1
                self._drain(key, released)
            elif self._hold(event, number, body):
                released.held += 1
            else:  # another event has the number already, and waits
                released.late += 1
                released.add(event, body)
        self._save()
        return released

    def give_up(self) -> tuple[Released, list[Row]]:
        """What gaps that are too old or too wide let go, and what they set aside."""
        released, dead = Released(), list[Row]()
        if self._ordering.on_gap == "hold":
            return released, dead
        stuck = self._tx.rows(
            "stuck_keys",
            watcher_id=self._watcher_id,
            before=self._now - self._ordering.wait,
            most=self._ordering.limit,
        )
        self._load({row["key"] for row in stuck})
        for row in stuck:
            key = row["key"]
            if self._ordering.on_gap == "dead_letter":
                held = self._tx.rows("held_from", watcher_id=self._watcher_id, key=key, number=row["first"])
                dead += held
                self._next[key] = held[-1]["number"] + 1
                self._tx.run("forget_held", watcher_id=self._watcher_id, key=key, up_to=held[-1]["number"])
                released.held -= len(held)
            else:
                self._next[key] = row["first"]
                self._drain(key, released)
        self._save()
        return released, dead

    def _hold(self, event: Event, number: int, body: bytes) -> int:
        return self._tx.run(
            "hold_event",
            watcher_id=self._watcher_id,
            key=event.key or "",
            number=number,
            now=self._now,
            event_id=event.id,
            body=body,
        )

    def _drain(self, key: str, released: Released) -> None:
        """Let go of what is held without a gap from the key's next number on."""
        place = {"watcher_id": self._watcher_id, "key": key}
        for row in self._tx.rows("held_from", number=self._next[key], **place):
            if row["number"] != self._next[key]:
                break
            released.add(Event.decode(row["body"]), bytes(row["body"]))
            self._next[key] += 1
        released.held -= self._tx.run("forget_held", up_to=self._next[key] - 1, **place)

    def _load(self, keys: set[str]) -> None:
        for key in sorted(keys):
            row = self._tx.row("next_number", watcher_id=self._watcher_id, key=key)
            if row is not None:
                self._known[key] = self._next[key] = row["number"]

    def _save(self) -> None:
        changed = {key: number for key, number in self._next.items() if self._known.get(key) != number}
        self._tx.many(
            "put_next_number",
            [{"watcher_id": self._watcher_id, "key": key, "number": n} for key, n in changed.items()],
        )


def letters_of(
    rows: Sequence[Row], watcher_id: int, ordering: Ordering, now: float
) -> list[dict[str, object]]:
    """The dead letters of events that waited in vain."""
    reason = f"what comes before it in its sequence did not arrive within {ordering.wait:g} s"
    return [
        {
            "watcher_id": watcher_id, "seq": None, "dag_id": None, "run_id": None, "stage": "sequence",
            "category": Category.EXPIRED.value, "reason": reason, "error": None, "attempts": 0,
            "now": now, "body": bytes(row["body"]), "event_id": Event.decode(row["body"]).id,
        }
        for row in rows
    ]  # fmt: skip


def ordering_of(watcher: Row) -> Ordering | None:
    """How the watcher's events are put in order, if they are."""
    spec = watcher["ordering"]
    return msgspec.json.decode(spec, type=Ordering) if spec else None
