"""What was set aside: dead letters, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windsock.log.archive import ArchivedEvent, Outcome
from windsock.log.records import DeadRecord, NextRetry, Revived
from windsock.log.registry import spec_of
from windsock.log.retention import restore_event
from windsock.log.transaction import Row, SqlPart, Transaction, known, like
from windsock.spec import Retry

_PAGE = 1000
"""How many letters are named in one statement."""


class Letters(SqlPart):
    """The part of the log that keeps what could not go on."""

    def dead_letters(
        self,
        *,
        ids: Sequence[int] | None = None,
        watcher: str | None = None,
        dag_id: str | None = None,
        category: str | None = None,
        stage: str | None = None,
        event_id: str | None = None,
        text: str | None = None,
        since: float | None = None,
        until: float | None = None,
        before: int | None = None,
        state: str | None = "dead",
        limit: int = 100,
    ) -> list[DeadRecord]:
        pieces: dict[str, tuple[str, Any]] = {
            "watcher": ("w.name = :watcher", watcher),
            "dag_id": ("d.dag_id = :dag_id", dag_id),
            "category": ("d.category = :category", category),
            "stage": ("d.stage = :stage", stage),
            "event_id": ("d.event_id = :event_id", event_id),
            "text": ("lower(d.reason || ' ' || COALESCE(d.error, '')) LIKE lower(:text) ESCAPE '!'", text),
            "since": ("d.at >= :since", since),
            "until": ("d.at < :until", until),
            "before": ("d.id < :before", before),
            "state": ("d.state = :state", state),
        }
        given = {name: value for name, (_, value) in pieces.items() if value is not None}
        where = [pieces[name][0] for name in given]
        if text is not None:
            given["text"] = like(text)
        if ids is not None:
            names = {f"letter_{number}": letter for number, letter in enumerate(ids)}
            where.append(f"d.id IN ({', '.join(f':{name}' for name in names)})" if names else "1 = 0")
            given |= names
        with self._transaction(write=False) as tx:
            rows = tx.rows(
                self._fill("list_dead_letters", " AND ".join(where) or "1 = 1"), limit=limit, **given
            )
        return [DeadRecord(**{name: row[name] for name in DeadRecord.__struct_fields__}) for row in rows]

    def redrive(self, ids: Sequence[int]) -> Revived:
        now = self._clock()
        delivered = 0
        others = []
        pages = [ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE)]
        letters = [letter for page in pages for letter in self.dead_letters(ids=page, limit=_PAGE)]
        missing = set(ids) - {letter.id for letter in letters}
        with self._transaction() as tx:
            for letter in sorted(letters, key=lambda letter: letter.id):
                if letter.seq is None or letter.dag_id is None:
                    others.append(letter)
                    continue
                if not tx.run("close_letter", id=letter.id, state="redriven", now=now):
                    missing.add(letter.id)  # another process was faster
                    continue
                place = {"watcher": letter.watcher, "dag_id": letter.dag_id, "seq": letter.seq}
                mark = f"redrive:{letter.id}"
                revived = tx.run("revive_entry", replay=mark, now=now, **place)
                if not revived:
                    # The event itself was forgotten meanwhile; its letter still has it.
                    self._bring_back(tx, letter, now)
                    revived = tx.run("revive_entry", replay=mark, now=now, **place)
                delivered += revived
        return Revived(delivered=delivered, others=others, missing=sorted(missing))

    def discard(self, ids: Sequence[int]) -> int:
        now = self._clock()
        with self._transaction() as tx:
            return sum(tx.run("close_letter", id=letter, state="discarded", now=now) for letter in ids)

    def letters_to_retry(self, *, limit: int = 1000) -> list[int]:
        now = self._clock()
        with self._transaction(write=False) as tx:
            return [
                row["id"]
                for watcher in tx.rows("all_watchers")
                for category, policy in spec_of(watcher).retry.items()
                for row in tx.rows(
                    "letters_to_retry",
                    watcher_id=watcher["id"],
                    category=category,
                    attempts=policy.attempts,
                    delay=policy.delay,
                    cap=policy.cap,
                    least=1.0 - policy.jitter,
                    oldest=0.0 if watcher["max_age"] is None else now - watcher["max_age"],
                    now=now,
                    limit=limit,
                )
                if _retry_at(policy, row) <= now
            ][:limit]

    def next_retries(self, ids: Sequence[int]) -> dict[int, NextRetry]:
        now = self._clock()
        found = {}
        with self._transaction(write=False) as tx:
            for row in (row for letter in ids for row in tx.rows("letter_to_retry", id=letter)):
                policy = spec_of(row).retry.get(row["category"])
                if policy is None or row["retries"] >= policy.attempts:
                    continue
                at = _retry_at(policy, row)
                if row["max_age"] is None or row["born"] >= max(at, now) - row["max_age"]:
                    found[row["id"]] = NextRetry(at=at, left=policy.attempts - row["retries"])
        return found

    def retried_in_vain(self, ids: Sequence[int]) -> None:
        now = self._clock()
        with self._transaction() as tx:
            tx.many("count_retry", [{"id": letter, "now": now} for letter in ids])

    def count_letters(self, *, since: float) -> dict[str, int]:
        with self._transaction(write=False) as tx:
            return {row["watcher"]: row["n"] for row in tx.rows("count_letters", since=since)}

    def _bring_back(self, tx: Transaction, letter: DeadRecord, now: float) -> None:
        watcher = known(tx.row("get_watcher", name=letter.watcher), letter.watcher)
        outcome = Outcome(
            dag_id=letter.dag_id or "", state="dead", run_id=letter.run_id, attempts=letter.attempts
        )
        stored = ArchivedEvent(
            seq=letter.seq or 0,
            watcher=letter.watcher,
            received_at=letter.first_at,
            body=bytes(letter.body),
            dags=(outcome,),
        )
        restore_event(tx, watcher["id"], stored, now)


def _retry_at(policy: Retry, letter: Row) -> float:
    """When a letter is redriven by itself."""
    return float(letter["since"] + policy.wait(letter["retries"], str(letter["id"])))
