"""The pipeline: what happens to a watcher's events between its source and the log.

::

    pipeline = Pipeline.compile(spec)      # SpecError if an expression is wrong
    outcome = pipeline.run(events)         # never raises for an event
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windsock.events import DeadLetter, Event, Verdict
from windsock.pipeline.base import Result, Step, set_aside
from windsock.pipeline.dedupe import DedupeStep
from windsock.pipeline.expressions import Evaluate, Failure, compile_condition
from windsock.pipeline.filter import FilterStep, TypesStep
from windsock.pipeline.key import KeyStep
from windsock.pipeline.number import NumberStep
from windsock.pipeline.schemas import is_remote
from windsock.pipeline.size import SizeStep
from windsock.pipeline.transform import TransformStep
from windsock.pipeline.unwrap import UnwrapStep
from windsock.pipeline.validate import ValidateStep, VersionsStep
from windsock.spec import WatcherSpec

__all__ = ["Outcome", "Pipeline", "Result", "Step"]


@dataclass(slots=True)
class Outcome:
    """What a pipeline made of a list of events."""

    kept: list[Event]
    bodies: list[bytes] = field(default_factory=list)
    """The encoded form of each kept event."""
    dedup: list[bytes] = field(default_factory=list)
    """The dedup hash of each kept event; empty if the watcher does not dedupe."""
    verdicts: list[Verdict] = field(default_factory=list)
    """What was filtered, and why if the filter could not be evaluated."""
    dead: list[DeadLetter] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The sequence number of each kept event, if the watcher orders by one."""
    flush: bool = False
    """Whether a kept event closes the batch."""


_CHOOSING = (UnwrapStep, TypesStep, FilterStep)
"""The steps that decide whether a watcher wants an event; they come before all others."""


class Pipeline:
    """A watcher's steps, compiled. Holds no state; safe to run in several threads at once."""

    def __init__(
        self,
        spec: WatcherSpec,
        steps: Sequence[Step],
        size: SizeStep,
        dedupe: DedupeStep | None,
        flush: Evaluate | None,
        numbers: NumberStep | None = None,
    ) -> None:
        self.spec = spec
        self._steps = steps
        self._size = size
        self._dedupe = dedupe
        self._flush = flush
        self._numbers = numbers

    @classmethod
    def compile(cls, spec: WatcherSpec, *, scope: str | None = None, online: bool = True) -> Pipeline:
        """Compile what the spec declares; raises SpecError that shows where an expression is wrong.

        Events are duplicates of each other only inside one ``scope``, by default the watcher. With
        ``online=False`` schemas behind a URL are left out: the definition is checked, events are not.
        """
        steps: list[Step] = []
        if spec.unwrap is not None:
            steps.append(UnwrapStep(spec.unwrap, watcher=spec.name))
        if spec.types:
            steps.append(TypesStep(spec.types))
        conditions = (spec.where,) if isinstance(spec.where, str) else spec.where or ()
        for index, condition in enumerate(conditions):
            option = "where" if len(conditions) == 1 else f"where[{index}]"
            steps.append(FilterStep(condition, watcher=spec.name, option=option))
        if spec.transform is not None:
            steps.append(TransformStep(spec.transform, watcher=spec.name))
        coerce = spec.schema_mode == "coerce"
        if spec.schema is not None and (online or not is_remote(spec.schema)):
            steps.append(ValidateStep(spec.schema, coerce=coerce, watcher=spec.name))
        if spec.versions is not None and (online or not any(map(is_remote, spec.versions.schemas.values()))):
            steps.append(VersionsStep(spec.versions, coerce=coerce, watcher=spec.name))
        if spec.key:
            steps.append(KeyStep(spec.key, watcher=spec.name))
        # The log adds the asset to keys that count for all of it.
        scope = scope or ("" if spec.dedupe_scope == "asset" else spec.name)
        dedupe = DedupeStep(spec.dedupe_key, scope=scope, watcher=spec.name)
        numbers = NumberStep(spec.sequence.by, watcher=spec.name) if spec.sequence else None
        flush = spec.batch.flush and compile_condition(
            spec.batch.flush, watcher=spec.name, option="batch.flush"
        )
        labels = None if spec.dedupe == 0 else dedupe
        return cls(spec, steps, SizeStep(spec.max_bytes), labels, flush or None, numbers)

    def wants(self, event: Event) -> bool:
        """Whether the event, taken out of its envelope, passes the filters."""
        events: Sequence[Event] = [event]
        for step in self._steps:
            if isinstance(step, _CHOOSING):
                events = step.apply(events).kept
        return bool(events)

    def run(self, events: Sequence[Event]) -> Outcome:
        """Take events through every step, in order."""
        outcome = Outcome([])
        for step in self._steps:
            result = step.apply(events)
            events = result.kept
            outcome.verdicts += result.filtered
            outcome.dead += result.dead
        numbered = self._numbers.apply(events) if self._numbers else None
        if numbered is not None:
            events = numbered.kept
            outcome.dead += numbered.dead
        sized = self._size.apply(events)
        outcome.kept, outcome.bodies = sized.kept, sized.bodies
        outcome.dead += sized.dead
        if self._dedupe:
            self._label(self._dedupe, outcome)
        if numbered is not None:
            outcome.numbers = numbered.of(outcome.kept)
        if self._flush:
            # An event on which the flush condition fails does not close the batch; its limits will.
            outcome.flush = any(self._flush(event) is True for event in outcome.kept)
        return outcome

    def _label(self, dedupe: DedupeStep, outcome: Outcome) -> None:
        """Give each kept event its dedup hash, and set aside those that have none."""
        kept, bodies, labels = outcome.kept, outcome.bodies, dedupe.label(outcome.kept)
        outcome.dedup = [label for label in labels if not isinstance(label, Failure)]
        if len(outcome.dedup) == len(labels):
            return
        outcome.kept, outcome.bodies = [], []
        for event, body, label in zip(kept, bodies, labels, strict=True):
            if isinstance(label, Failure):
                reason = f"dedupe_key expression {dedupe.expression!r} gives no key"
                outcome.dead.append(set_aside(event, stage=dedupe.name, reason=reason, error=label.reason))
            else:
                outcome.kept.append(event)
                outcome.bodies.append(body)
