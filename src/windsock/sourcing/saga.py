"""Sagas: steps that belong together, each with the way to take it back, resumable after a crash.

::

    ship = Saga("ship", [
        Step("reserve", reserve, undo=release),
        Step("charge", charge, undo=refund),
        Step("send", send),
    ])
    ship.run(event).state           # "done", or "compensated" if a step failed for good

Each step is stored before it begins and after it ended. A run that finds a saga half done goes on there: what
is done is not done again. When a step fails for good, the steps that were done are taken back, the last one
first; a compensation that fails is tried again, and stays visible until it succeeds. The one step under way
when a process dies begins again, so an action gives the other side its ``context.key``, the same each time.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.subjects import SagaRecord, SagaStep, identity, indexed
from windsock.sourcing.base import OnLog, as_event, checked_name, plain
from windsock.spec import SpecError
from windsock.values import describe

__all__ = ["Saga", "SagaContext", "SagaStuck", "Step"]

logger = logging.getLogger(__name__)

_TO_UNDO = ("started", "done", "undoing", "stuck")
"""What has, or may have, done something."""


class SagaStuck(WindsockError):
    """A compensation failed again and again; the saga stays where it is, and the next run goes on there."""


@dataclass(frozen=True)
class SagaContext:
    """What an action or a compensation is given."""

    saga: str
    id: str
    step: str
    data: Any
    """What the saga was begun with: an event as plain values, or what the caller gave."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """What the steps that are done have returned, by their names."""
    attempt: int = 1

    @property
    def event(self) -> Event:
        """The event that the saga was begun with."""
        return Event.from_dict(self.data)

    @property
    def key(self) -> str:
        """An idempotency key for this step: the same whenever it is tried again."""
        return f"{self.saga}:{self.id}:{self.step}"


Action = Callable[[SagaContext], Any]


@dataclass(frozen=True)
class Step:
    """One step of a saga.

    :param name: under which its progress is kept
    :param action: does it; what it returns (plain JSON) is kept for the steps after it
    :param undo: takes it back; None if there is nothing to take back
    :param attempts: how often the action is tried before the saga is compensated
    :param undo_attempts: how often a compensation is tried before the run gives up for now
    :param delay: seconds before a second try; doubles each time
    :param undo_failed: take it back also when the action failed: it may have done something all the same
    """

    name: str
    action: Action
    undo: Action | None = None
    attempts: int = 1
    undo_attempts: int = 3
    delay: float = 0.0
    undo_failed: bool = False


class Saga(OnLog):
    """Steps with compensations, whose progress is kept in the log.

    :param name: under which its progress is kept
    :param steps: in their order
    :param transient: exceptions that mean "later": the saga stays where it is and the exception goes on to
        the caller, whose next run goes on there; every other exception counts as a failed attempt
    :param log: the log that keeps it
    :param sleep: how to wait between two tries
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        *,
        transient: tuple[type[Exception], ...] = (),
        log: Log | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(name, log)
        self.steps = tuple(steps)
        self._transient = transient
        self._sleep = sleep
        names = [checked_name(f"saga {name!r}: step", step.name) for step in self.steps]
        if not names or len(set(names)) < len(names):
            raise SpecError(f"saga {name!r}: it needs steps, each with a name of its own")
        for step in self.steps:
            if step.attempts < 1 or step.undo_attempts < 1:
                raise SpecError(f"saga {name!r}: step {step.name!r} must be tried at least once")

    def run(self, about: Event | Mapping[str, Any] | str, data: Any = None) -> SagaRecord:
        """Do what is left to do, or take back what is left to take back; the same again does nothing new.

        ``about`` is the event that the saga is for, or a name of its own with ``data``. The answer is
        ``done`` or ``compensated``; raises :class:`SagaStuck` while a compensation fails.
        """
        record = self._open(about, data)
        for step in self.steps:
            if record.state != "running":
                break
            if _state(record, step) != "done":
                record = self._try(record, step)
        return self._undo(record) if record.state == "compensating" else record

    def do(self, step: str, about: Event | Mapping[str, Any] | str, data: Any = None) -> Any:
        """Do one step, unless it is done, and return its result: for a saga whose steps are Airflow tasks.

        One after the other, not side by side. A failure is the caller's: nothing is taken back until
        :meth:`compensate` is called, which also takes back a step that was under way when its task died.
        """
        found = next((one for one in self.steps if one.name == step), None)
        if found is None:
            raise WindsockError(f"saga {self.name!r} has no step {step!r}")
        record = self._open(about, data)
        if _state(record, found) != "done":
            if record.state != "running":
                raise WindsockError(f"saga {self.name!r} of {record.id!r} is {record.state}: {record.error}")
            record, error = self._attempt(record, found)
            if error is not None:
                raise error
        done = record.step(step)
        return done.result if done else None

    def compensate(
        self, about: Event | Mapping[str, Any] | str, reason: str = "a step failed", data: Any = None
    ) -> SagaRecord:
        """Take back what was done, the last step first; a saga that is done stays so."""
        record = self._open(about, data)
        if record.state == "running":
            record = self.log.put_saga(record, state="compensating", error=reason)
        return self._undo(record) if record.state == "compensating" else record

    def progress(self, about: Event | Mapping[str, Any] | str) -> SagaRecord | None:
        """How far a saga is; None if it never began."""
        found = self.log.sagas(saga=self.name, id=_id(about), limit=1)
        return found[0] if found else None

    def unfinished(self, *, limit: int = 100) -> list[SagaRecord]:
        """Sagas that are under way or stuck, the latest first."""
        return self.log.sagas(saga=self.name, unfinished=True, limit=limit)

    def forget(self, *, before: dt.datetime) -> int:
        """Forget sagas that ended before that time; how many.

        Until then an event that is replayed finds its saga done; afterwards it would begin it anew.
        """
        return self.log.forget_sagas(self.name, before=before.timestamp())

    def _open(self, about: Event | Mapping[str, Any] | str, data: Any) -> SagaRecord:
        if isinstance(about, str):
            plain(data, f"the data of saga {self.name!r}")
            record = self.log.open_saga(self.name, _id(about), data)
        else:
            event = as_event(about)
            value = event.as_dict()
            record = self.log.open_saga(self.name, _id(event), value, delivery=event.replay or "")
        names = {step.name for step in self.steps}
        unknown = [step.name for step in record.steps if step.name not in names]
        if unknown and record.state in ("running", "compensating"):
            raise WindsockError(
                f"saga {self.name!r} of {record.id!r} has the steps {', '.join(unknown)} behind it, which "
                "are no longer declared: keep them until no unfinished saga needs them"
            )
        return record

    def _try(self, record: SagaRecord, step: Step) -> SagaRecord:
        """Do a step, as often as it allows; after the last failure the saga is to be compensated."""
        for number in range(1, step.attempts + 1):
            record, error = self._attempt(record, step)
            if error is None:
                return record
            if isinstance(error, self._transient):
                raise error
            if number < step.attempts:
                self._sleep(step.delay * 2 ** (number - 1))
        failed = record.step(step.name)
        said = f"step {step.name!r} failed: {failed.error if failed else ''}"
        logger.warning("windsock.saga.compensating saga=%s id=%s: %s", self.name, record.id, said)
        return self.log.put_saga(record, state="compensating", error=said)

    def _attempt(self, record: SagaRecord, step: Step) -> tuple[SagaRecord, Exception | None]:
        """Try a step once; the error, if it failed."""
        before = record.step(step.name) or SagaStep(name=step.name, state="started")
        begun = msgspec.structs.replace(before, state="started", attempts=before.attempts + 1, error=None)
        record = self.log.put_saga(record, step=begun)
        try:
            result = step.action(self._context(record, step, begun.attempts))
        except Exception as error:  # noqa: BLE001 - what the user's code says decides how the saga goes on
            failed = msgspec.structs.replace(begun, state="failed", error=describe(error))
            return self.log.put_saga(record, step=failed), error
        try:
            plain(result, f"what step {step.name!r} returned")
        except WindsockError as error:
            # It is done, so it is taken back with the others; only its result cannot be kept.
            done = msgspec.structs.replace(begun, state="done", error=str(error))
            return self.log.put_saga(record, step=done, state="compensating", error=str(error)), None
        last = all(_state(record, one) == "done" for one in self.steps if one is not step)
        done = msgspec.structs.replace(begun, state="done", result=result)
        return self.log.put_saga(record, step=done, state="done" if last else None), None

    def _undo(self, record: SagaRecord) -> SagaRecord:
        """Take back what was done, the last step first."""
        for step in reversed(self.steps):
            wanted = (*_TO_UNDO, "failed") if step.undo_failed else _TO_UNDO
            if _state(record, step) in wanted:
                record = self._undo_one(record, step)
        return self.log.put_saga(record, state="compensated")

    def _undo_one(self, record: SagaRecord, step: Step) -> SagaRecord:
        for number in range(1, step.undo_attempts + 1):
            before = record.step(step.name) or SagaStep(name=step.name, state="undoing")
            count = before.undo_attempts + 1
            begun = msgspec.structs.replace(before, state="undoing", undo_attempts=count)
            record = self.log.put_saga(record, step=begun)
            try:
                if step.undo is not None:
                    step.undo(self._context(record, step, count))
            except Exception as error:  # the user's code; it is stored, and tried again
                stuck = msgspec.structs.replace(begun, state="stuck", error=describe(error))
                record = self.log.put_saga(record, step=stuck)
                logger.warning(
                    "windsock.saga.undo_failed saga=%s id=%s step=%s attempt=%d: %s",
                    self.name, record.id, step.name, count, stuck.error,
                )  # fmt: skip
                if number == step.undo_attempts:
                    raise SagaStuck(
                        f"saga {self.name!r} of {record.id!r}: the compensation of step {step.name!r} failed "
                        f"{count} times ({stuck.error}); mend what it needs, and run the saga again"
                    ) from error
                self._sleep(step.delay * 2 ** (number - 1))
            else:
                undone = msgspec.structs.replace(begun, state="undone", error=None)
                return self.log.put_saga(record, step=undone)
        return record

    def _context(self, record: SagaRecord, step: Step, attempt: int) -> SagaContext:
        kept = ("done", "undoing", "stuck")
        results = {one.name: one.result for one in record.steps if one.state in kept}
        return SagaContext(
            saga=self.name,
            id=record.id,
            step=step.name,
            data=record.data,
            results=results,
            attempt=attempt,
        )


def _id(about: Event | Mapping[str, Any] | str) -> str:
    return indexed(about) if isinstance(about, str) else identity(as_event(about))


def _state(record: SagaRecord, step: Step) -> str | None:
    found = record.step(step.name)
    return found.state if found else None
