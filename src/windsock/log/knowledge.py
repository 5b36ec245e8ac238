"""What is known: queries, health."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windsock.events import Event
from windsock.log.records import EventQuery, EventRecord, State, VerdictRecord, WatcherHealth
from windsock.log.transaction import ALL, SqlPart, event_of, like, named


class Knowledge(SqlPart):
    """The part of the log that answers questions."""

    def events(self, query: EventQuery) -> list[EventRecord]:
        conditions = {
            "id": "{id}",
            "key": "key = :key",
            "type": "type = :type",
            "watcher": "watcher = :watcher",
            "asset": "asset = :asset",
            "dag_id": "dag_id = :dag_id",
            "state": "state = :state",
            "since": "received_at >= :since",
            "until": "received_at < :until",
            "before": "seq < :before",
            "text": "lower({text}) LIKE lower(:text) ESCAPE '!'",
        }
        given = {name: value for name, value in msgspec.structs.asdict(query).items() if value is not None}
        where = " AND ".join(sql for name, sql in conditions.items() if name in given) or "1 = 1"
        if query.text is not None:
            given["text"] = like(query.text)
        with self._transaction(write=False) as tx:
            rows = tx.rows(self._fill("list_events", where), **given)
            if len(rows) == query.limit > 0:
                # The page ends with all records of its last event, so that the next one can begin before it.
                last = rows[-1]["seq"]
                rows = [row for row in rows if row["seq"] != last]
                given |= {"last": last, "limit": ALL}
                rows += tx.rows(self._fill("list_events", f"{where} AND seq = :last"), **given)
        return [
            EventRecord(
                event=event_of(row),
                watcher=row["watcher"],
                asset=row["asset"],
                received_at=row["received_at"],
                batch=row["batch"],
                dag_id=row["dag_id"],
                state=State(row["state"]),
                run_id=row["run_id"],
                attempts=row["attempts"],
            )
            for row in rows
        ]

    def verdicts(
        self, *, event_id: str | None = None, watcher: str | None = None, limit: int = 100
    ) -> list[VerdictRecord]:
        with self._transaction(write=False) as tx:
            where, given = named(event_id=("v.event_id", event_id), watcher=("w.name", watcher))
            rows = tx.rows(self._fill("list_verdicts", where), limit=limit, **given)
        return [
            VerdictRecord(
                **{name: row[name] for name in ("watcher", "stage", "verdict", "reason", "seq", "at")},
                event=Event.decode(bytes(row["body"])),
            )
            for row in rows
        ]

    def backlog(self, watchers: Sequence[str]) -> int:
        with self._transaction(write=False) as tx:
            return sum(int(tx.rows("backlog", watcher=name)[0]["n"]) for name in watchers)

    def heartbeat(
        self, source: str, owner: str, state: str, *, lag: int | None = None, error: str | None = None
    ) -> None:
        with self._transaction() as tx:
            tx.run(
                "put_heartbeat",
                source=source,
                owner=owner,
                state=state,
                lag=lag,
                error=error,
                now=self._clock(),
            )

    def health(self) -> list[WatcherHealth]:
        with self._transaction(write=False) as tx:
            rows = [
                {**row, "backlog": tx.rows("backlog", watcher=row["watcher"])[0]["n"]}
                for row in tx.rows("health")
            ]
        return [WatcherHealth(**row) for row in rows]
