"""The way back: dead letters redriven through the watcher's present definition, and events replayed.

::

    redrive(log, [letter.id for letter in log.dead_letters(watcher="orders")])
    replay(log, "fix-1017", watchers=["orders"], where="data.total > 100", since=yesterday)
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import msgspec

from windsock.archive import archived
from windsock.events import Event, InvalidEvent, WindsockError, parse_json
from windsock.log import Log
from windsock.log.archive import Archive, ArchivedEvent, ArchiveFile
from windsock.log.records import DeadRecord, Replay, Scan, StoredEvent
from windsock.messages import Message, MessageOptions, event_of
from windsock.pipeline import Pipeline
from windsock.pipeline.expressions import compile_condition
from windsock.runner import writes_for
from windsock.sources import source_class
from windsock.spec import WatcherSpec

__all__ = ["Preview", "Redriven", "choose", "preview", "redrive", "replay", "retry_letters"]

_BATCH = 5000
"""Events of a replay that are planned at once."""


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the letters that were redriven."""

    delivered: int = 0
    """Events that wait for their Dag again, in their old place."""
    appended: int = 0
    """Letters that went through the watcher's pipeline and are events now."""
    filtered: int = 0
    """Letters that the watcher does not want any more; they are closed."""
    failed: dict[int, str] = {}
    """Letter → why it still cannot go on; it stays as it was."""
    missing: list[int] = []
    """Ids of no open letter: unknown, or redriven or discarded before."""


Repair = Callable[[DeadRecord], Event | bytes | None]
"""What is to be read instead of a letter's body; None leaves the letter where it is."""


def redrive(log: Log, ids: Sequence[int], *, repair: Repair | None = None) -> Redriven:
    """Give dead letters another chance: identity and order stay as they were.

    A letter of a Dag's run returns to that Dag, as it is stored. One that never became an event is mended by
    ``repair`` and goes through the watcher's pipeline as it is declared now; if it fails again, it stays
    where it is.
    """
    revived = log.redrive(ids)
    count: Counter[str] = Counter(delivered=revived.delivered)
    failed: dict[int, str] = {}
    pipelines: dict[str, Pipeline] = {}
    for letter in revived.others:
        try:
            if letter.watcher not in pipelines:
                pipelines[letter.watcher] = Pipeline.compile(_spec(log, letter.watcher))
            pipeline = pipelines[letter.watcher]
            write = writes_for(pipeline, [_mended(letter, pipeline.spec, repair)])
            if write.dead:
                raise InvalidEvent(write.dead[0].reason)
        except WindsockError as error:
            failed[letter.id] = str(error)
        else:
            log.append([msgspec.structs.replace(write, redriven=[letter.id])])
            count["appended" if write.events else "filtered"] += 1
    return Redriven(failed=failed, missing=revived.missing, **count)


def retry_letters(log: Log) -> Redriven:
    """Redrive the letters whose watcher wants it now, by its ``retry``; each failure uses up an attempt."""
    ids = log.letters_to_retry()
    if not ids:
        return Redriven()
    result = redrive(log, ids)
    if result.failed:
        log.retried_in_vain(list(result.failed))
    return result


def _mended(letter: DeadRecord, spec: WatcherSpec, repair: Repair | None) -> Event:
    """What a function makes of a letter; it may change anything but the event's identity."""
    if repair is None:
        return _event(letter, spec)
    try:
        mended = repair(letter)
    except Exception as error:  # the function is the user's
        raise InvalidEvent(f"repair failed: {type(error).__name__}: {error}") from error
    if mended is None:
        raise InvalidEvent("repair left it as it is")
    if not isinstance(mended, Event):
        mended = _event(msgspec.structs.replace(letter, body=bytes(mended)), spec)
    elif letter.event_id is not None and mended.id != letter.event_id:
        raise InvalidEvent(f"repair changed the id from {letter.event_id!r} to {mended.id!r}: keep it")
    return mended


def _spec(log: Log, watcher: str) -> WatcherSpec:
    spec = log.watcher(watcher)
    if spec is None:
        raise WindsockError(f"watcher {watcher!r} is not registered any more: redrive needs its definition")
    return spec


def _event(letter: DeadRecord, spec: WatcherSpec) -> Event:
    """The event in a letter's body: as the pipeline had it, or as its source reads it now."""
    try:
        return Event.decode(letter.body)
    except InvalidEvent:
        pass  # it died in the source, before it was an event
    config = source_class(spec.kind).config
    name = f"dead-letter-{letter.id}"
    if issubclass(config, MessageOptions):
        options = msgspec.convert(spec.options, config)
        return event_of(Message(body=letter.body, id=name), options, source=spec.kind, kind=spec.kind)
    return Event.make(parse_json(letter.body), id=name, source=spec.kind, type=f"windsock.{spec.kind}")


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would do."""

    events: int
    first_at: float | None
    last_at: float | None
    watchers: dict[str, int]
    runs: dict[str, int]
    """Dag → runs that it would take at the watchers' batch sizes."""


def choose(
    log: Log, query: Scan, where: str | None = None, *, archive: Archive | None = None
) -> Iterator[StoredEvent]:
    """Stored events that match the query and the CEL expression, oldest first; with ``archive``, its, too."""
    return (stored for _, stored in _choose(log, query, where, archive))


def _choose(
    log: Log, query: Scan, where: str | None, archive: Archive | None
) -> Iterator[tuple[tuple[ArchiveFile, ArchivedEvent] | None, StoredEvent]]:
    """The same, each with what it was read from, if that was a file."""
    condition = compile_condition(where, watcher="replay", option="where") if where else None
    here = ((None, stored) for stored in log.scan(query))
    there = archived(log, archive, query) if archive is not None else ()
    filed = (
        (
            (file, packed),
            StoredEvent(event=packed.event, watcher=packed.watcher, received_at=packed.received_at),
        )
        for file, packed in there
    )
    last, seen = None, 0
    for origin, stored in heapq.merge(filed, here, key=lambda one: one[1].event.seq or 0):
        if stored.event.seq == last:
            continue  # it was restored, so it is in the log as well
        last, seen = stored.event.seq, seen + 1
        if query.limit is not None and seen > query.limit:
            return
        if condition is None or condition(stored.event) is True:
            yield origin, stored


def preview(
    log: Log,
    query: Scan,
    where: str | None = None,
    *,
    dag_id: str | None = None,
    archive: Archive | None = None,
) -> Preview:
    """How many events, of which watchers, and how many runs a replay would take."""
    counts: Counter[str] = Counter()
    first = last = None
    for stored in choose(log, query, where, archive=archive):
        counts[stored.watcher] += 1
        first, last = (stored.received_at if first is None else first), stored.received_at
    sizes = {spec.name: spec.batch.size for spec in log.watchers()}
    runs: Counter[str] = Counter()
    for place in log.subscriptions(counts=False):
        if place.active and dag_id in (None, place.dag_id) and counts[place.watcher]:
            runs[place.dag_id] += -(-counts[place.watcher] // sizes[place.watcher])
    return Preview(
        events=counts.total(),
        first_at=first,
        last_at=last,
        watchers={name: count for name, count in counts.items() if count},
        runs=dict(runs),
    )


def replay(
    log: Log,
    name: str,
    query: Scan,
    where: str | None = None,
    *,
    dag_id: str | None = None,
    cap: int = 1000,
    archive: Archive | None = None,
) -> Replay:
    """Deliver the chosen events again, to all subscribed Dags or to one, as the replay ``name``.

    They keep their time and identity and carry the name as ``event.replay``; at most ``cap`` deliveries are
    under way at once. The same name twice delivers nothing twice. With ``archive`` archived events are
    chosen from, too: they come back to their old place in the log for as long as the replay needs them.
    """
    replayed = log.plan_replay(name, [], dag_id=dag_id, cap=cap)
    chosen = _choose(log, query, where, archive)
    while batch := list(islice(chosen, _BATCH)):
        for file, origins in groupby((origin for origin, _ in batch if origin), key=lambda origin: origin[0]):
            log.restore(file, [packed for _, packed in origins])
        seqs: list[Any] = [stored.event.seq for _, stored in batch]
        replayed = log.plan_replay(name, seqs, dag_id=dag_id, cap=cap)
    return replayed
