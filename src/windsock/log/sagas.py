"""How far sagas are: each step is stored as it begins and as it ends, fenced by who took the saga up last."""

from __future__ import annotations

from typing import Any

import msgspec

from windsock.events import LeaseLost
from windsock.log.subjects import SagaRecord, SagaStep
from windsock.log.transaction import Row, SqlPart, Transaction, known


class Sagas(SqlPart):
    """The part of the log that keeps the progress of sagas."""

    def open_saga(self, saga: str, id: str, data: Any, *, delivery: str = "") -> SagaRecord:
        now = self._clock()
        place = {"saga": saga, "id": id}
        begun = {"delivery": delivery, "data": msgspec.json.encode(data), "now": now}
        with self._transaction() as tx:
            tx.run("begin_saga", **place, **begun)
            row = known(tx.row("hold_saga", **place), saga)
            if row["state"] == "compensated" and row["delivery"] != delivery:
                tx.run("forget_steps", **place)
                tx.run("restart_saga", **place, **begun)
            tx.run("take_saga", **place)
            return _record(tx, known(tx.row("hold_saga", **place), saga))

    def put_saga(
        self,
        record: SagaRecord,
        *,
        step: SagaStep | None = None,
        state: str | None = None,
        error: str | None = None,
    ) -> SagaRecord:
        now = self._clock()
        place = {"saga": record.saga, "id": record.id}
        with self._transaction() as tx:
            row = tx.row("hold_saga", **place)
            if row is None or row["epoch"] != record.epoch:
                raise LeaseLost(f"saga {record.saga!r} of {record.id!r} was taken up by another run")
            if step is not None:
                tx.run(
                    "put_saga_step",
                    step=step.name,
                    state=step.state,
                    attempts=step.attempts,
                    undo_attempts=step.undo_attempts,
                    result=None if step.result is None else msgspec.json.encode(step.result),
                    error=step.error,
                    now=now,
                    **place,
                )
            tx.run("put_saga_state", state=state or row["state"], error=error, now=now, **place)
            return _record(tx, known(tx.row("hold_saga", **place), record.saga))

    def sagas(
        self, *, saga: str | None = None, id: str | None = None, unfinished: bool = False, limit: int = 100
    ) -> list[SagaRecord]:
        given = {name: value for name, value in (("saga", saga), ("id", id)) if value is not None}
        where = [f"{name} = :{name}" for name in given]
        if unfinished:
            where.append("state IN ('running', 'compensating')")
        with self._transaction(write=False) as tx:
            rows = tx.rows(self._fill("list_sagas", " AND ".join(where) or "1 = 1"), limit=limit, **given)
            return [_record(tx, row) for row in rows]

    def forget_sagas(self, saga: str, *, before: float) -> int:
        with self._transaction() as tx:
            tx.run("forget_saga_steps", saga=saga, before=before)
            return tx.run("forget_sagas", saga=saga, before=before)


def _record(tx: Transaction, row: Row) -> SagaRecord:
    steps = tx.rows("saga_steps", saga=row["saga"], id=row["id"])
    fields = {name: row[name] for name in SagaRecord.__struct_fields__ if name != "steps"}
    fields["data"] = msgspec.json.decode(bytes(row["data"]))
    return SagaRecord(**fields, steps=tuple(map(_step, steps)))


def _step(row: Row) -> SagaStep:
    copied = ("state", "attempts", "undo_attempts", "error", "at")
    return SagaStep(
        name=row["step"],
        result=None if row["result"] is None else msgspec.json.decode(bytes(row["result"])),
        **{name: row[name] for name in copied},
    )
