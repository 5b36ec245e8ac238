"""What was: events read again from the log, and replays that make them real once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windsock.events import Event
from windsock.log.records import Replay, Scan, StoredEvent
from windsock.log.transaction import LogError, Row, SqlPart, Transaction

_PAGE = 1000
_PLANNED = 5000
"""How many events of a replay are planned in one transaction."""


class History(SqlPart):
    """The part of the log that reads what is stored, oldest first, and replays it."""

    def scan(self, query: Scan) -> Iterator[StoredEvent]:
        if query.ids is not None:
            query = msgspec.structs.replace(query, ids=None, seqs=self._seqs_of(query.ids))
        where, params = _conditions(query, self._watchers_of(query))
        statement = self._fill("scan_events", where)
        after, left = query.after, query.limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            with self._transaction(write=False) as tx:
                rows = tx.rows(statement, after=after, size=size, **params)
            for row in rows:
                event = Event.decode(row["body"], seq=row["seq"])
                yield StoredEvent(event=event, watcher=row["watcher"], received_at=row["received_at"])
            if len(rows) < size:
                return
            after = rows[-1]["seq"]
            left = None if left is None else left - len(rows)

    def _seqs_of(self, ids: Sequence[str]) -> list[int]:
        statement = self._fill("seqs_of_id", "{id}")
        with self._transaction(write=False) as tx:
            return [row["seq"] for event_id in ids for row in tx.rows(statement, id=event_id)]

    def _watchers_of(self, query: Scan) -> list[int] | None:
        """The watchers that a scan names, by itself or by their asset; None for all."""
        if query.watchers is None and query.asset is None:
            return None
        with self._transaction(write=False) as tx:
            return [
                row["id"]
                for row in tx.rows("all_watchers")
                if (query.watchers is None or row["name"] in query.watchers)
                and query.asset in (None, row["asset"])
            ]

    def plan_replay(
        self, replay_id: str, seqs: Sequence[int], *, dag_id: str | None = None, cap: int = 1000
    ) -> Replay:
        now = self._clock()
        with self._transaction() as tx:
            tx.run("insert_replay", id=replay_id, dag_id=dag_id, cap=cap, now=now)
            known = tx.rows("get_replay", id=replay_id)[0]
            if known["dag_id"] != dag_id:
                raise LogError(
                    f"replay {replay_id!r} is for {known['dag_id'] or 'all Dags'} already: use another name"
                )
        for start in range(0, len(seqs), _PLANNED):
            part = sorted(seqs[start : start + _PLANNED])
            with self._transaction() as tx:
                tx.many("plan_replay", [{"replay": replay_id, "dag_id": dag_id, "seq": seq} for seq in part])
        self.advance_replays()
        with self._transaction(write=False) as tx:
            return _replay(tx.rows("get_replay", id=replay_id)[0])

    def advance_replays(self) -> int:
        now = self._clock()
        made = 0
        with self._transaction(write=False) as tx:
            waiting = tx.rows("unfinished_replays")
        for row in waiting:
            with self._transaction() as tx:
                made += self._advance(tx, row, now)
        return made

    def _advance(self, tx: Transaction, replay: Row, now: float) -> int:
        """Make as many planned events pending as the replay's cap leaves room for, oldest first."""
        under_way = int(tx.rows("replay_under_way", replay=replay["id"])[0]["n"])
        planned = tx.rows("planned_events", replay=replay["id"], limit=max(replay["cap"] - under_way, 0))
        for row in planned:
            place = {"subscription_id": row["subscription_id"], "seq": row["seq"]}
            made = tx.run("replay_entry", replay=replay["id"], now=now, **place)
            tx.run("mark_replayed", replay=replay["id"], state="made" if made else "skipped", **place)
        if not planned and not under_way and not tx.rows("planned_events", replay=replay["id"], limit=1):
            tx.run("finish_replay", id=replay["id"], now=now)
        return len(planned)

    def replays(self) -> list[Replay]:
        with self._transaction(write=False) as tx:
            return [_replay(row) for row in tx.rows("all_replays")]


def _replay(row: Row) -> Replay:
    return Replay(**{name: row[name] for name in Replay.__struct_fields__})


def _conditions(query: Scan, watchers: Sequence[int] | None) -> tuple[str, dict[str, Any]]:
    """The WHERE clause of a scan, made of fixed pieces, and its parameters."""
    pieces = {
        "key": "e.key = :key",
        "type": "e.type = :type",
        "since": "e.received_at >= :since",
        "until": "e.received_at < :until",
        "up_to": "e.seq <= :up_to",
    }
    given = {n: v for n, v in msgspec.structs.asdict(query).items() if n in pieces and v is not None}
    where = [pieces[name] for name in given]
    # One watcher has an index of its own, in the order of the log. Of several the rows would have to be
    # sorted anew for every page: the plus has the whole log read in its order instead. A key is rarer still.
    one = watchers is not None and len(watchers) == 1 and query.key is None
    for column, values in (("e.watcher_id" if one else "+e.watcher_id", watchers), ("e.seq", query.seqs)):
        if values is not None:
            names = [f"{column.partition('.')[2]}_{number}" for number in range(len(values))]
            marks = ", ".join(f":{name}" for name in names)
            where.append(f"{column} IN ({marks})" if names else "1 = 0")
            given |= dict(zip(names, values, strict=True))
    return " AND ".join(where) or "1 = 1", given
