"""Why: every stage's verdict on an event, and why a Dag ran at a time or did not.

::

    for line in explain_event(log, "order-1017").lines():
        print(line)

    explain_dag(log, "fulfil", at=time.time() - 3600)

Everything is read from the log. What was filtered or a duplicate is known for the newest events of each
watcher (see :data:`windsock.log.records.REMEMBERED`); what is older is only counted.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence

import msgspec

from windsock.events import Event
from windsock.log import Log
from windsock.log.records import (
    ClaimRecord,
    DeadRecord,
    EventTrace,
    HeldEvent,
    NextRetry,
    PlaceTrace,
    Scan,
    State,
    Subscription,
    VerdictRecord,
)
from windsock.pipeline.reasons import reasons
from windsock.rules.waiting import waiting_for

__all__ = ["DagExplanation", "EventExplanation", "Step", "explain_dag", "explain_event"]

_WINDOW = 3600.0
"""How far around a moment is looked for what a Dag did."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One stage's verdict."""

    stage: str
    verdict: str
    detail: str = ""
    at: float | None = None


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event at one watcher, stage by stage."""

    watcher: str
    asset: str | None
    steps: list[Step]
    next: str
    """What happens next, or what to do."""


class EventExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of an event."""

    event_id: str
    ways: list[Way]

    def lines(self) -> list[str]:
        """The explanation as text."""
        if not self.ways:
            unknown = (
                f"Nothing is known of the event {self.event_id!r}: it never arrived, or it was filtered or a "
                "duplicate too long ago to be remembered, or it was deleted by the retention."
            )
            return [unknown]
        lines = []
        for way in self.ways:
            lines.append(f"{way.watcher} ({way.asset or 'no asset'})")
            lines += [_line(step) for step in way.steps]
            lines.append(f"  next: {way.next}")
        return lines


class DagExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a Dag ran around a time, or did not."""

    dag_id: str
    at: float
    conclusion: str
    steps: list[Step]

    def lines(self) -> list[str]:
        """The explanation as text."""
        steps = [_line(step) for step in self.steps]
        return [f"{self.dag_id} at {_clock(self.at)}: {self.conclusion}", *steps]


def explain_event(log: Log, event_id: str, *, watcher: str | None = None) -> EventExplanation:
    """Each stage's verdict on an event, at every watcher that saw it."""
    letters = log.dead_letters(event_id=event_id, watcher=watcher, state=None, limit=1000)
    retries = log.next_retries([letter.id for letter in letters if letter.state == "dead"])
    ways = [_stored(log, trace, letters, retries) for trace in log.trace(event_id, watcher=watcher)]
    ways += [_not_stored(log, record) for record in log.verdicts(event_id=event_id, watcher=watcher)]
    ways += [_held(record) for record in log.held(event_id=event_id, watcher=watcher)]
    ways += [_set_aside(letter, retries) for letter in letters if letter.seq is None]
    return EventExplanation(event_id=event_id, ways=ways)


def explain_dag(log: Log, dag_id: str, *, at: float, window: float = _WINDOW) -> DagExplanation:
    """Why a Dag ran around a time, or did not: arrivals, announcements, claims, and what stood in the way."""
    places = log.subscriptions(dag_id=dag_id)
    since, until = at - window, at + window
    if not places:
        conclusion = (
            "the log knows no subscription of it: is the Dag parsed, scheduled on a watched asset, and is "
            "the triggerer running?"
        )
        return DagExplanation(dag_id=dag_id, at=at, conclusion=conclusion, steps=[])
    steps: list[Step] = []
    arrived = 0
    health = {one.watcher: one for one in log.health()}
    for place in places:
        query = Scan(watchers=[place.watcher], since=since, until=until, limit=1000)
        times = [stored.received_at for stored in log.scan(query)]
        arrived += len(times)
        state = health[place.watcher]
        steps.append(
            Step(
                stage="arrival",
                verdict=f"{len(times)}{'+' if len(times) == 1000 else ''} events",
                detail=f"at {place.watcher} within {window:g} s; {state.filtered} filtered and "
                f"{state.duplicates} duplicates in all",
                at=times[-1] if times else state.last_event_at,
            )
        )
        if state.state not in (None, "running"):
            steps.append(Step(stage="source", verdict=str(state.state), detail=state.error or "", at=None))
        if place.paused or not place.active:
            verdict = "paused" if place.active else "ended"
            steps.append(Step(stage="Dag", verdict=verdict, detail=f"{place.pending} events wait for it"))
    runs = log.claims(dag_id, since=since, until=until)
    steps += [
        Step(
            stage="run",
            verdict=run.state,
            detail=f"{run.run_id} took {run.count} of {run.watcher}",
            at=run.claimed_at,
        )
        for run in runs
    ]
    return DagExplanation(dag_id=dag_id, at=at, conclusion=_conclusion(places, runs, arrived), steps=steps)


def _conclusion(places: Sequence[Subscription], runs: Sequence[ClaimRecord], arrived: int) -> str:
    waiting = sum(place.pending for place in places)
    if runs:
        return f"it ran: {len(runs)} claims of events around then"
    if all(place.paused for place in places):
        return f"the Dag is paused; {waiting} events wait until it is not"
    if not arrived:
        return "no event arrived for it around then"
    if waiting:
        return f"events arrived, and {waiting} still wait to be claimed"
    return "events arrived and were taken by runs at another time"


def _stored(
    log: Log, trace: EventTrace, letters: Sequence[DeadRecord], retries: Mapping[int, NextRetry]
) -> Way:
    event = trace.event
    letters = [letter for letter in letters if letter.seq == event.seq]
    steps = [
        Step(stage="source", verdict="received", detail=f"by {trace.source}", at=trace.received_at),
        Step(
            stage="log",
            verdict="stored",
            detail=f"seq {event.seq}{_keyed(event)}",
            at=trace.received_at,
        ),
    ]
    if trace.batch is None:
        steps.append(Step(stage="batch", verdict="open", detail="its batch is not closed yet"))
    else:
        detail = f"batch {trace.batch} with {trace.batch_count} events, by {trace.batch_reason}"
        steps.append(Step(stage="batch", verdict="closed", detail=detail, at=trace.batch_closed_at))
        told = "announced" if trace.announced_at else "not announced yet"
        steps.append(Step(stage="announce", verdict=told, at=trace.announced_at))
    nexts = []
    for place in trace.places:
        steps += [
            Step(
                stage="run", verdict=run.state, detail=f"{place.dag_id}, run {run.run_id}", at=run.settled_at
            )
            for run in place.earlier
        ]
        steps.append(
            Step(
                stage="Dag",
                verdict=place.state.value,
                detail=_place(place),
                at=place.settled_at or place.claimed_at,
            )
        )
        own = [letter for letter in letters if letter.dag_id == place.dag_id]
        nexts.append(f"{place.dag_id}: {_next(place, own, retries)}")
    steps += [
        Step(stage="dead", verdict=letter.state, detail=_letter(letter), at=letter.at) for letter in letters
    ]
    for correlation, wait in waiting_for(log, trace.watcher, event).items():
        steps.append(Step(stage="correlate", verdict=correlation, detail=wait))
    then = "; ".join(nexts) or "no Dag is subscribed: it stays until the retention takes it"
    return Way(watcher=trace.watcher, asset=trace.asset, steps=steps, next=then)


def _place(place: PlaceTrace) -> str:
    parts = [place.dag_id]
    if place.run_id:
        parts.append(f"run {place.run_id} ({place.run_state})")
    if place.attempts:
        parts.append(f"{place.attempts} failed {'attempt' if place.attempts == 1 else 'attempts'}")
    if place.replay:
        parts.append(f"delivered again by {place.replay}")
    if not place.active:
        parts.append("the Dag is gone")
    elif place.paused:
        parts.append("the Dag is paused")
    return ", ".join(parts)


def _next(place: PlaceTrace, letters: Sequence[DeadRecord], retries: Mapping[int, NextRetry]) -> str:
    """What will happen to the event at a Dag that set it aside with these letters, or what to do."""
    if place.state is State.DONE:
        return "nothing, its run succeeded" if place.run_id else "nothing, the Dag's place was moved past it"
    if place.state is State.DEAD:
        left = [_way_back(letter, retries.get(letter.id)) for letter in letters if letter.state == "dead"]
        return left[0] if left else "nothing, its letter is closed"
    if not place.active:
        return "nothing, the Dag is gone"
    if place.state is State.CLAIMED:
        return f"the outcome of run {place.run_id}"
    if place.state is State.OPEN:
        return "its batch is closed by size, time or a flush"
    if place.paused:
        return "it is delivered when the Dag is unpaused"
    if place.key_run_id:
        return f"it waits for run {place.key_run_id}, which has an earlier event of its key"
    if place.available_at > time.time():
        return f"it is delivered again at {_clock(place.available_at)}"
    ahead = f", behind {place.ahead} others" if place.ahead else ""
    if place.woken_at:
        return f"the Dag was told at {_clock(place.woken_at)} and claims it with its next run{ahead}"
    return f"it is announced with the next look{ahead}"


def _not_stored(log: Log, record: VerdictRecord) -> Way:
    spec = log.watcher(record.watcher)
    received = Step(stage="source", verdict="received", at=record.at)
    if record.verdict == "duplicate":
        detail = f"of seq {record.seq}"
        step = Step(stage=record.stage, verdict=record.verdict, detail=detail, at=record.at)
        return Way(
            watcher=record.watcher, asset=None, steps=[received, step], next="nothing, the first one counts"
        )
    detail = record.reason
    if record.stage == "filter" and spec is not None and spec.where:
        conditions = (spec.where,) if isinstance(spec.where, str) else spec.where
        false = [reason for condition in conditions for reason in reasons(condition, record.event)]
        detail = "; ".join(false) or f"{record.reason} (the condition has been changed since)".strip()
    elif record.stage == "types" and spec is not None:
        detail = f"type {record.event.type!r} is none of {', '.join(spec.types)}"
    step = Step(stage=record.stage, verdict=record.verdict, detail=detail, at=record.at)
    return Way(
        watcher=record.watcher,
        asset=None,
        steps=[received, step],
        next="nothing, the watcher does not want it",
    )


def _held(record: HeldEvent) -> Way:
    detail = f"number {record.number} of key {record.event.key!r} waits for number {record.next_number}"
    step = Step(stage="sequence", verdict="held", detail=detail, at=record.held_at)
    return Way(
        watcher=record.watcher,
        asset=None,
        steps=[step],
        next=f"it goes on when number {record.next_number} arrives, or when the watcher gives up waiting",
    )


def _set_aside(letter: DeadRecord, retries: Mapping[int, NextRetry]) -> Way:
    step = Step(stage=letter.stage, verdict=letter.state, detail=_letter(letter), at=letter.at)
    then = _way_back(letter, retries.get(letter.id)) if letter.state == "dead" else "nothing"
    return Way(watcher=letter.watcher, asset=None, steps=[step], next=then)


def _way_back(letter: DeadRecord, retry: NextRetry | None) -> str:
    """How an open letter's event goes on: by its watcher's ``retry``, or by hand."""
    by_hand = f"`windsock dlq redrive {letter.id}`"
    if retry is None:
        return f"nothing by itself; {by_hand} after a fix"
    when = f"at {_clock(retry.at)}" if retry.at > time.time() else "with the next look"
    attempts = "attempt" if retry.left == 1 else "attempts"
    return f"it is retried {when}, {retry.left} {attempts} left; {by_hand} does so at once"


def _letter(letter: DeadRecord) -> str:
    error = f" ({letter.error.strip().splitlines()[-1]})" if letter.error else ""
    return f"letter {letter.id}, {letter.category}: {letter.reason}{error}"


def _keyed(event: Event) -> str:
    return f", key {event.key!r}" if event.key is not None else ""


def _line(step: Step) -> str:
    said = f"{step.verdict}: {step.detail}" if step.detail else step.verdict
    return f"  {_clock(step.at)}  {step.stage:<10} {said}"


def _clock(moment: float | None) -> str:
    if moment is None:
        return " " * 19
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
