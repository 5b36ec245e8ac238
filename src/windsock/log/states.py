"""What subjects have been through: their events, snapshots of them, and where state machines have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windsock.events import Event
from windsock.log.records import StoredEvent
from windsock.log.subjects import SNAPSHOTS, Move, Snapshot, Standing, indexed
from windsock.log.transaction import Row, SqlPart, Transaction, known

_PAGE = 1000
_END = 2**62


class States(SqlPart):
    """The part of the log that finds events by subject and keeps what was made of them."""

    def subject_events(
        self, subject: str, *, after: int = 0, up_to: int | None = None, until: float | None = None
    ) -> Iterator[StoredEvent]:
        bounds = {"subject": indexed(subject), "up_to": _END if up_to is None else up_to, "until": until}
        while True:
            with self._transaction(write=False) as tx:
                rows = tx.rows("subject_events", after=after, size=_PAGE, **bounds)
            for row in rows:
                yield StoredEvent(
                    event=Event.decode(row["body"], seq=row["seq"]),
                    watcher=row["watcher"],
                    received_at=row["received_at"],
                )
            if len(rows) < _PAGE:
                return
            after = rows[-1]["seq"]

    def index_subjects(self, watcher: str) -> int:
        count, after = 0, 0
        while True:
            with self._transaction() as tx:
                row = known(tx.row("lock_watcher", name=watcher), watcher)
                rows = tx.rows("unindexed_events", watcher_id=row["id"], after=after, size=_PAGE)
                found = {row["seq"]: Event.decode(row["body"]).subject for row in rows}
                subjects = {seq: indexed(subject) for seq, subject in found.items() if subject is not None}
                tx.many("index_subject", [{"seq": seq, "subject": name} for seq, name in subjects.items()])
                tx.many("forget_snapshots", [{"subject": name} for name in sorted({*subjects.values()})])
            count += len(subjects)
            if len(rows) < _PAGE:
                return count
            after = rows[-1]["seq"]

    def horizon(self, watchers: Sequence[str] | None = None) -> int:
        names = {f"name_{number}": name for number, name in enumerate(watchers or ())}
        some = f"name IN ({', '.join(f':{one}' for one in names)})" if names else "1 = 0"
        statement = self._fill("hold_watchers", "1 = 1" if watchers is None else some)
        with self._transaction(write=False) as tx:
            return max((row["last_seq"] for row in tx.rows(statement, **names)), default=0)

    def snapshot(
        self,
        subject: str,
        reducer: str,
        version: str,
        *,
        up_to: int | None = None,
        until: float | None = None,
    ) -> Snapshot | None:
        with self._transaction(write=False) as tx:
            row = tx.row(
                "get_snapshot",
                subject=indexed(subject),
                reducer=reducer,
                version=version,
                up_to=_END if up_to is None else up_to,
                until=until,
            )
        if row is None:
            return None
        fields = {name: row[name] for name in Snapshot.__struct_fields__}
        return Snapshot(**(fields | {"subject": subject, "state": bytes(row["state"])}))

    def put_snapshot(self, snapshot: Snapshot, *, after: int, folded: int) -> bool:
        name = indexed(snapshot.subject)
        place = {"subject": name, "reducer": snapshot.reducer, "version": snapshot.version}
        with self._transaction() as tx:
            # No append is under way any more, so the count below is final: smaller seqs cannot follow.
            tx.rows("hold_histories")
            if after and tx.row("snapshot_at", seq=after, **place) is None:
                return False
            between = tx.rows("count_subject_events", subject=name, after=after, up_to=snapshot.seq)[0]["n"]
            if between != folded:
                return False
            tx.run("put_snapshot", **(msgspec.structs.asdict(snapshot) | place))
            tx.run("thin_snapshots", kept=SNAPSHOTS, **place)
            return True

    def drop_snapshots(self, subject: str, reducer: str) -> int:
        with self._transaction() as tx:
            return tx.run("drop_snapshots", subject=indexed(subject), reducer=reducer)

    def forget_subject(self, subject: str) -> int:
        name = indexed(subject)
        with self._transaction() as tx:
            statements = ("forget_snapshots", "forget_standings", "forget_moves")
            return sum(tx.run(statement, subject=name) for statement in statements)

    def standing(self, machine: str, subject: str) -> Standing | None:
        with self._transaction(write=False) as tx:
            row = tx.row("get_standing", machine=machine, subject=indexed(subject))
        return Standing(**row) if row else None

    def standings(
        self, machine: str, *, state: str | None = None, after: str = "", limit: int = 100
    ) -> list[Standing]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("list_standings", machine=machine, state=state, after=after, limit=limit)
        return [Standing(**row) for row in rows]

    def put_move(self, move: Move, *, expected: int) -> Move | None:
        now = self._clock()
        place = {"machine": move.machine, "subject": indexed(move.subject)}
        with self._transaction() as tx:
            if move.after is not None:
                tx.run("first_standing", state=move.before, now=now, **place)
            held = tx.row("hold_standing", **place)
            earlier = tx.row("get_move", machine=move.machine, event=move.event)
            if earlier and (earlier["after"] is not None or earlier["delivery"] == move.delivery):
                return _move(earlier)
            if (held["moves"] if held else 0) != expected:
                return None
            self._decide(tx, move, place, now)
        return msgspec.structs.replace(move, at=now)

    def _decide(self, tx: Transaction, move: Move, place: dict[str, str], now: float) -> None:
        tx.run("forget_move", machine=move.machine, event=move.event)
        fields = msgspec.structs.asdict(move) | place | {"at": now}
        del fields["repeated"]
        tx.run("insert_move", **fields)
        if move.after is not None:
            tx.run("move_standing", state=move.after, now=now, **place)

    def moves(
        self,
        *,
        machine: str | None = None,
        subject: str | None = None,
        event: str | None = None,
        limit: int = 100,
    ) -> list[Move]:
        wanted = {
            "machine": machine,
            "subject": None if subject is None else indexed(subject),
            "event": event,
        }
        given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in given) or "1 = 1"
        with self._transaction(write=False) as tx:
            rows = tx.rows(self._fill("list_moves", where), limit=limit, **given)
        return [_move(row) for row in rows]


def _move(row: Row) -> Move:
    fields = {name: row[name] for name in Move.__struct_fields__ if name != "repeated"}
    return Move(**fields, repeated=True)
