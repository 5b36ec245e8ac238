"""Why runs failed: what their tasks say of it, and what becomes of their events.

A task's error may name events. Then they alone are to blame: the run's other events return at once, as if
the run had not been. An error that names none, or a run that nobody explains, counts for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windsock.events import Category, clean_text
from windsock.log.ranges import pack, unpack
from windsock.log.transaction import MAX_DELAY, Row, SqlPart, Transaction

__all__ = ["Failure", "Failures", "fail_claim"]

_EVERYTHING = (0, 2**62)
_FORGET_AFTER = 7 * 86400.0
"""Seconds after which the errors of a run that is never settled are forgotten."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a task failed with."""

    task: str
    category: str | None
    error: str
    seqs: frozenset[int]
    """The events that are to blame; empty if all are."""


class Failures(SqlPart):
    """The part of the log that knows why a run failed."""

    def note_failure(
        self,
        dag_id: str,
        run_id: str,
        task: str,
        *,
        error: str,
        category: Category | None = None,
        seqs: Sequence[int] = (),
    ) -> None:
        with self._transaction() as tx:
            tx.run(
                "note_failure",
                dag_id=dag_id,
                run_id=run_id,
                task=task,
                error=clean_text(error),
                category=None if category is None else category.value,
                seqs=pack(sorted(set(seqs))),
                now=self._clock(),
            )


def failures_of(tx: Transaction, dag_id: str, run_id: str, claims: Sequence[Row]) -> list[Failure]:
    """What the tasks of a run failed with; events that the run does not have are not blamed."""
    held = [bounds for claim in claims for bounds in unpack(claim["ranges"])]
    return [
        Failure(
            task=row["task"],
            category=row["category"],
            error=row["error"],
            seqs=frozenset(
                seq
                for first, last in unpack(row["seqs"])
                for seq in range(first, last + 1)
                if any(low <= seq <= high for low, high in held)
            ),
        )
        for row in tx.rows("run_failures", dag_id=dag_id, run_id=run_id)
    ]


def forget_failures(tx: Transaction, dag_id: str, run_id: str, now: float) -> None:
    """The run is settled."""
    tx.run("forget_failures", dag_id=dag_id, run_id=run_id, before=now - _FORGET_AFTER)


def fail_claim(
    tx: Transaction, claim: Row, run_id: str, failures: Sequence[Failure], reason: str, now: float
) -> int:
    """Give the events of a failed run back, or bury them, each as the errors say; how many."""
    blamed: dict[int, Failure] = {}
    for failure in failures:
        for seq in failure.seqs:
            if seq not in blamed or failure.category == Category.INVALID:
                blamed[seq] = failure
    settled = 0
    for seq, failure in sorted(blamed.items()):
        settled += _fail(tx, claim, run_id, (seq, seq), failure.category, failure.error, reason, now)
    general = [failure for failure in failures if not failure.seqs]
    if blamed and not general:
        return settled + tx.run("release_entries", claim_id=claim["id"])
    error = general[0].error if general else None
    return settled + _fail(tx, claim, run_id, _EVERYTHING, _common(general), error, reason, now)


def _common(failures: Sequence[Failure]) -> str | None:
    """The category of a run whose tasks failed for these reasons."""
    said = {failure.category for failure in failures}
    if Category.INVALID in said:
        return Category.INVALID
    return Category.TRANSIENT if said == {Category.TRANSIENT} else None


def _fail(
    tx: Transaction,
    claim: Row,
    run_id: str,
    bounds: tuple[int, int],
    category: str | None,
    error: str | None,
    reason: str,
    now: float,
) -> int:
    events = {"claim_id": claim["id"], "first": bounds[0], "last": bounds[1]}
    returned = tx.run(
        "return_entries",
        now=now,
        retry_delay=claim["retry_delay"],
        max_delay=MAX_DELAY,
        max_attempts=0 if category == Category.INVALID else claim["max_attempts"],
        **events,
    )
    tx.run(
        "bury_letters",
        dag_id=claim["dag_id"],
        run_id=run_id,
        category=str(category or Category.POISON),
        reason=reason,
        error=error,
        now=now,
        **events,
    )
    buried = tx.run("bury_entries", **events)
    if buried:
        tx.run("count_dead", watcher_id=claim["watcher_id"], n=buried)
    return returned + buried
