"""What a watcher's past would have become under a definition: verdicts, duplicates, batches and runs.

The past of a watcher is what the log still has of it: its stored events, the filtered events and duplicates
that it remembers (see :data:`windsock.log.records.REMEMBERED`), and dead letters that never became events. A
stored event is as the pipeline left it: unwrapped, transformed and of the newest version, so those steps are
left out for it, and conditions are evaluated on what they made.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from windsock.events import Event, InvalidEvent
from windsock.log import Log
from windsock.log.records import REMEMBERED, Scan
from windsock.pipeline import Outcome as Processed
from windsock.pipeline import Pipeline
from windsock.pipeline.expressions import compile_condition
from windsock.pipeline.reasons import reasons
from windsock.spec import Batching, WatcherSpec

__all__ = ["Backtest", "Judged", "Moment", "Outcome", "Tally", "in_parts", "past", "why"]

_PART = 500


class Form(enum.Enum):
    """How far an event had come when the log kept it."""

    SENT = "sent"
    """Still in its envelope."""
    OPENED = "opened"
    """Out of its envelope, not transformed."""
    STORED = "stored"
    """After every step."""


class Outcome(enum.StrEnum):
    """What became of an event."""

    KEPT = "kept"
    FILTERED = "filtered"
    INVALID = "invalid"
    DUPLICATE = "duplicate"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the past, and when it arrived."""

    at: float
    event: Event
    form: Form = Form.STORED


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What a definition makes of an event."""

    outcome: Outcome
    event: Event | None = None
    """As it would be stored, if it is kept or a duplicate."""


def past(
    log: Log, watcher: str, *, since: float | None = None, until: float | None = None
) -> Iterator[Moment]:
    """The watcher's past, oldest first; only what is remembered beside the stored events is in memory."""
    kept = (
        Moment(at=stored.received_at, event=msgspec.structs.replace(stored.event, seq=None))
        for stored in log.scan(Scan(watchers=[watcher], since=since, until=until))
    )
    others = [*_passed_over(log, watcher), *_letters(log, watcher)]
    inside = [m for m in others if (since is None or m.at >= since) and (until is None or m.at < until)]
    return heapq.merge(kept, sorted(inside, key=attrgetter("at")), key=attrgetter("at"))


def _passed_over(log: Log, watcher: str) -> Iterator[Moment]:
    for record in log.verdicts(watcher=watcher, limit=REMEMBERED):
        form = Form.STORED if record.verdict == "duplicate" else Form.OPENED
        yield Moment(at=record.at, event=record.event, form=Form.SENT if record.stage == "unwrap" else form)


def _letters(log: Log, watcher: str) -> Iterator[Moment]:
    """Dead letters that a step made; what died in its source is no event, and what a Dag had is stored."""
    forms = {"unwrap": Form.SENT, "transform": Form.OPENED}
    for letter in log.dead_letters(watcher=watcher, limit=REMEMBERED):
        if letter.seq is not None or letter.event_id is None:
            continue
        try:
            event = Event.decode(letter.body)
        except InvalidEvent:
            continue
        yield Moment(at=letter.at, event=event, form=forms.get(letter.stage, Form.STORED))


def in_parts(moments: Iterable[Moment]) -> Iterator[list[Moment]]:
    """The past in lists that a pipeline takes at once."""
    part: list[Moment] = []
    for moment in moments:
        part.append(moment)
        if len(part) == _PART:
            yield part
            part = []
    if part:
        yield part


@dataclass
class Tally:
    """How many events became what."""

    events: int = 0
    kept: int = 0
    filtered: int = 0
    invalid: int = 0
    duplicate: int = 0


class Backtest:
    """One definition with its memory: feed it the past in order, then read the tally and the batches."""

    def __init__(self, spec: WatcherSpec) -> None:
        self.spec = spec
        self.tally = Tally()
        self.batches = Batches(spec.batch, spec.throttle)
        opened = msgspec.structs.replace(spec, unwrap=None)
        stored = msgspec.structs.replace(opened, transform=None)
        if spec.versions is not None:
            last = list(spec.versions.schemas.values())[-1]
            stored = msgspec.structs.replace(stored, versions=None, schema=spec.schema or last)
        self._pipelines = {
            Form.SENT: Pipeline.compile(spec),
            Form.OPENED: Pipeline.compile(opened),
            Form.STORED: Pipeline.compile(stored),
        }
        flush = spec.batch.flush
        self._flush = compile_condition(flush, watcher=spec.name, option="batch.flush") if flush else None
        self._seen: dict[bytes, float] = {}

    def judge(self, moments: Sequence[Moment]) -> list[Judged]:
        """What becomes of these events, which follow those judged before."""
        judged: list[Judged] = []
        start = 0
        for index in range(1, len(moments) + 1):
            if index == len(moments) or moments[index].form is not moments[start].form:
                judged += self._judge(moments[start:index], self._pipelines[moments[start].form])
                start = index
        return judged

    def _judge(self, moments: Sequence[Moment], pipeline: Pipeline) -> list[Judged]:
        """The same for events of one form: all at once if what comes out can be told apart."""
        if len(moments) == 1 or isinstance(pipeline.spec.transform, str):
            return [self._judge_one(moment, pipeline) for moment in moments]
        outcome = pipeline.run([moment.event for moment in moments])
        gone = {id(verdict.event) for verdict in outcome.verdicts}
        filtered = [id(moment.event) in gone for moment in moments]
        if outcome.dead or sum(filtered) + len(outcome.kept) != len(moments):
            return [self._judge_one(moment, pipeline) for moment in moments]
        self.tally.events += len(moments)
        self.tally.filtered += sum(filtered)
        kept = iter(_labelled(outcome))
        return [
            Judged(outcome=Outcome.FILTERED) if passed else self._keep(moment.at, *next(kept))
            for moment, passed in zip(moments, filtered, strict=True)
        ]

    def _judge_one(self, moment: Moment, pipeline: Pipeline) -> Judged:
        outcome = pipeline.run([moment.event])
        self.tally.events += 1
        kept = [self._keep(moment.at, *one) for one in _labelled(outcome)]
        if kept:  # a function may have made several of it
            return next((one for one in kept if one.outcome is Outcome.KEPT), kept[0])
        if outcome.dead:
            self.tally.invalid += 1
            return Judged(outcome=Outcome.INVALID)
        self.tally.filtered += 1
        return Judged(outcome=Outcome.FILTERED)

    def _keep(self, at: float, event: Event, body: bytes, label: bytes | None) -> Judged:
        if label is not None:
            window = self.spec.dedupe
            if self._seen.get(label, 0.0) > at:
                self.tally.duplicate += 1
                return Judged(outcome=Outcome.DUPLICATE, event=event)
            self._seen[label] = float("inf") if window is None else at + window
        self.tally.kept += 1
        self.batches.add(at, len(body), flush=self._flush is not None and self._flush(event) is True)
        return Judged(outcome=Outcome.KEPT, event=event)


def _labelled(outcome: Processed) -> Iterable[tuple[Event, bytes, bytes | None]]:
    labels: Sequence[bytes | None] = outcome.dedup or [None] * len(outcome.kept)
    return zip(outcome.kept, outcome.bodies, labels, strict=True)


@dataclass
class Batches:
    """The batches and runs that events would make, one after another, at the limits of a definition.

    A run takes a batch, and at most ``size`` events; with a throttle, what closes meanwhile goes along with
    the next run. That the Dag has room to run at once is taken for granted.
    """

    limits: Batching
    throttle: float = 0.0
    closed: int = 0
    runs: int = 0
    _count: int = 0
    _bytes: int = 0
    _opened: float = 0.0
    _last: float | None = None
    _flush: bool = False
    _waiting: int = 0
    _next_run: float = field(default=float("-inf"))

    def add(self, at: float, size: int, *, flush: bool = False) -> None:
        """One more event; events of one append have the same time."""
        self._pass(at)
        limits, pause = self.limits, self._last is None or at - self._last >= self.limits.quiet
        if not self._count:
            self._opened = at
        leads = limits.leading and not self._count and pause
        self._count += 1
        self._bytes += size
        self._last = at
        self._flush |= flush
        if leads or self._count >= limits.size or self._bytes >= limits.bytes:
            self._close(at)

    def finish(self) -> None:
        """Close what is open and let runs take what is left."""
        if self._count:
            self._close(self._opened if self._last is None else self._last)
        self.runs += -(-self._waiting // self.limits.size)
        self._waiting = 0

    def _pass(self, now: float) -> None:
        """Close what the time up to now closes."""
        if not self._count or self._last is None or now == self._last:
            return
        limits = self.limits
        waits = [self._opened + wait for wait in (limits.within, limits.target or 0.0) if wait]
        if limits.quiet:
            waits.append(self._last + limits.quiet)
        due = self._last if self._flush or not waits else min(waits)
        if due <= now:
            self._close(due)

    def _close(self, at: float) -> None:
        while self._waiting and self._next_run <= at:  # what the throttle held back until now
            self._run()
            self._next_run += self.throttle
        self.closed += 1
        self._waiting += self._count
        self._count, self._bytes, self._flush = 0, 0, False
        while self._waiting and self._next_run <= at:
            self._run()
            self._next_run = at + self.throttle

    def _run(self) -> None:
        self.runs += 1
        self._waiting -= min(self._waiting, self.limits.size)


def why(spec: WatcherSpec, event: Event, outcome: Outcome) -> str:
    """Why a definition makes that of an event."""
    if outcome is Outcome.DUPLICATE:
        return f"dedupe_key {spec.dedupe_key or 'source and id'!r} was seen before"
    result = Pipeline.compile(msgspec.structs.replace(spec, unwrap=None, transform=None)).run([event])
    if result.dead:
        letter = result.dead[0]
        return ": ".join(filter(None, (letter.stage, letter.reason, letter.error)))
    if result.verdicts and result.verdicts[0].stage == "types":
        return f"type {event.type!r} is none of {', '.join(spec.types)}"
    conditions = (spec.where,) if isinstance(spec.where, str) else spec.where or ()
    return "; ".join(reason for condition in conditions for reason in reasons(condition, event))
