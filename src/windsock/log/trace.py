"""Where events have been and where they stand: what explains them."""

from __future__ import annotations

from windsock.events import Event
from windsock.log.ranges import unpack
from windsock.log.records import ClaimRecord, EventTrace, HeldEvent, PlaceTrace, State
from windsock.log.transaction import Row, SqlPart, Transaction, event_of, named


class Traces(SqlPart):
    """The part of the log that follows single events and runs."""

    def trace(self, event_id: str, *, watcher: str | None = None) -> list[EventTrace]:
        where = "{id}" if watcher is None else "{id} AND watcher = :watcher"
        params = {"id": event_id} if watcher is None else {"id": event_id, "watcher": watcher}
        with self._transaction(write=False) as tx:
            return [self._trace(tx, row) for row in tx.rows(self._fill("trace_events", where), **params)]

    def _trace(self, tx: Transaction, row: Row) -> EventTrace:
        event = {"seq": row["seq"], "watcher_id": row["watcher_id"]}
        places = tx.rows("trace_places", key=row["key"], **event)
        is_open = row["seq"] > row["closed_seq"]
        copied = ("watcher", "asset", "source", "received_at", "batch", "batch_reason", "batch_count")
        return EventTrace(
            event=event_of(row),
            **{name: row[name] for name in (*copied, "batch_closed_at", "announced_at")},
            places=tuple(_place(place, self._earlier(tx, place, **event), is_open) for place in places),
        )

    def _earlier(self, tx: Transaction, place: Row, *, seq: int, watcher_id: int) -> tuple[ClaimRecord, ...]:
        """The other runs that had an event; most events have had none, and are not asked."""
        if not place["attempts"] and place["replay"] is None:
            return ()
        return tuple(
            _claim(row)
            for row in tx.rows("claims_around", dag_id=place["dag_id"], seq=seq, watcher_id=watcher_id)
            if row["run_id"] != place["run_id"]
            and any(first <= seq <= last for first, last in unpack(row["ranges"]))
        )

    def held(self, *, event_id: str | None = None, watcher: str | None = None) -> list[HeldEvent]:
        with self._transaction(write=False) as tx:
            where, given = named(event_id=("h.event_id", event_id), watcher=("w.name", watcher))
            rows = tx.rows(self._fill("list_held", where), **given)
        return [
            HeldEvent(
                event=Event.decode(row["body"]),
                **{name: row[name] for name in ("watcher", "number", "next_number", "held_at")},
            )
            for row in rows
        ]

    def claims(self, dag_id: str, *, since: float, until: float) -> list[ClaimRecord]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("claims_between", dag_id=dag_id, since=since, until=until)
        return [_claim(row) for row in rows]


def _claim(row: Row) -> ClaimRecord:
    return ClaimRecord(
        **{name: row[name] for name in ("watcher", "run_id", "state", "claimed_at", "settled_at")},
        count=sum(last - first + 1 for first, last in unpack(row["ranges"])),
    )


def _place(row: Row, earlier: tuple[ClaimRecord, ...], is_open: bool) -> PlaceTrace:
    fields = {name: row[name] for name in PlaceTrace.__struct_fields__ if name != "earlier"}
    state = State.OPEN if is_open else State(row["state"])
    flags = {"active": bool(row["active"]), "paused": bool(row["paused"])}
    return PlaceTrace(**(fields | flags | {"state": state}), earlier=earlier)
