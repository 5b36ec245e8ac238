"""Whether everything agrees: source positions, the log, announcements, runs and their settlements.

::

    report = reconcile(log, runs=run_states)     # finds
    report = reconcile(log, runs=run_states, repair=True)   # finds, repairs, and looks again

A position cannot disagree with the events before it, since one transaction stores both; so of a source it is
asked whether somebody reads it, whether it is stuck, and how far it is behind. ``runs`` knows what became of
Airflow's runs (:func:`windsock.airflow.runs.run_states`); without it, runs are not compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from windsock.events import WindsockError
from windsock.log import Log
from windsock.log.records import Gap, WatcherHealth

__all__ = ["Finding", "Report", "RunStates", "reconcile"]

RunStates = Callable[[Sequence[tuple[str, str]]], Mapping[tuple[str, str], str]]
"""(dag_id, run_id)s → the state of each run that Airflow knows: queued, running, success, failed."""

_CLEARABLE = 86400.0
"""How long ago a run may have failed that is looked at once more: it may have been cleared since."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not agree."""

    kind: str
    where: str
    what: str
    why: str
    """Why it matters."""
    repair: str
    """What ``--repair`` does, or what to do if it can do nothing."""
    repairable: bool = True
    run: tuple[str, str] | None = None
    """The run that it is about, if it is one."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared and what does not agree."""

    compared: dict[str, int]
    findings: list[Finding]
    """What does not agree, after the repair if there was one."""
    repaired: list[Finding]
    notes: list[str]

    @property
    def clean(self) -> bool:
        """Whether everything agrees."""
        return not self.findings

    def lines(self) -> list[str]:
        """The report as text."""
        lines = [f"repaired: {one.where}: {one.what}" for one in self.repaired]
        for one in self.findings:
            lines += [f"{one.where}: {one.what} [{one.kind}]", f"  why it matters: {one.why}"]
            lines.append(f"  {'repair' if one.repairable else 'to do'}: {one.repair}")
        counted = ", ".join(f"{count:,} {noun}" for noun, count in self.compared.items())
        verdict = "everything agrees" if self.clean else f"{len(self.findings)} do not agree"
        return [*lines, f"{verdict}: compared {counted}", *(f"note: {note}" for note in self.notes)]


_GAPS: dict[str, tuple[str, str, str]] = {
    "logged": (
        "has had {count} events, the newest here is at {first}, and its counters say less",
        "health and the position of new Dags are wrong",
        "counts what is stored, archived, purged and erased",
    ),
    "missing": (
        "has logged {first} events, and {count} of them are neither stored, archived, purged nor erased",
        "they are lost: no Dag and no replay will get them; a backup or the source may still have them",
        "writes them off, so that the next loss is seen",
    ),
    "open_batch": (
        "has events behind its last batch ({first}) that its open batch, of {count}, does not count",
        "they would never be announced",
        "the open batch is made of what is stored",
    ),
    "overdue_batch": (
        "has an open batch of {count} events from {first} on whose time is over",
        "its events wait although they should be announced; is a triggerer running?",
        "closes it",
    ),
    "not_announced": (
        "has {count} closed batches from {first} on that were never announced",
        "the Dag does not know of them; is a triggerer running, and its trigger not failing?",
        "lets the next announcement through if a clock that jumped held it back; else start the triggerer",
    ),
    "not_claimed": (
        "was told {count} times and has claimed nothing since, with events waiting after {first}",
        "the Dag may be at its limit of runs, broken, or not scheduled on the asset any more",
        "tells it again at once",
    ),
    "waiting": (
        "has {count} events, the oldest at {first}, that have waited too long",
        "the Dag is slower than what arrives, or does not run at all",
        "look at the Dag's runs and limits, or pass over them with `windsock subscription move`",
    ),
    "no_event": (
        "has {count} deliveries under way, the first of {first}, whose events are not stored any more",
        "they would wake the Dag for nothing, again and again",
        "forgets them",
    ),
    "ahead": (
        "has {count} deliveries beyond its place, the first of {first}",
        "the Dag's next claim would fail",
        "moves the place behind them; what lies between waits for the Dag",
    ),
    "lost": (
        "has no record of {count} events behind its place, the first at {first}",
        "the Dag would never get them",
        "they wait for the Dag again",
    ),
    "no_claim": (
        "has {count} events, the first at {first}, with a run that has no claim under way",
        "nothing would ever settle them",
        "they wait for the Dag again, with no attempt counted",
    ),
    "letter_open": (
        "has {count} open dead letters, the first is {first}, of events that went on",
        "a redrive would promise what has happened already",
        "closes them as redriven",
    ),
    "no_letter": (
        "has {count} dead events, the first at {first}, without a dead letter",
        "nobody would find or redrive them",
        "makes a letter for each",
    ),
    "dead_count": (
        "has {count} dead letters and counts fewer",
        "health and alerts are wrong",
        "counts the letters",
    ),
    "held_count": (
        "counts {count} held events, and holds another number",
        "health is wrong, and gaps may never be given up",
        "counts what is held",
    ),
    "held": (
        "holds {count} events of key {first!r} whose turn has come",
        "they would wait for ever",
        "lets them go on",
    ),
    "replay": (
        "{first!r} has {count} deliveries left and nothing under way",
        "it waits for a Dag that is gone, or for a triggerer",
        "leaves out what is meant for Dags that are gone, and goes on",
    ),
}
"""Kind of gap → what it is, why it matters, what its repair does."""

_NOT_REPAIRABLE = {"waiting"}


def reconcile(
    log: Log,
    *,
    runs: RunStates | None = None,
    repair: bool = False,
    grace: float = 300.0,
    older: float = 86400.0,
    now: Callable[[], float] = time.time,
) -> Report:
    """Compare everything; with ``repair``, mend what can be mended and look again.

    ``grace`` is how late something may be before it counts, ``older`` how long an event may wait for a Dag.
    """
    found = _findings(log, runs, grace, older, now())
    repaired: list[Finding] = []
    if repair and found:
        for kind in dict.fromkeys(one.kind for one in found if one.kind in _GAPS):
            log.mend(kind, grace=grace)
        for one in found:
            _settle(log, one)
        left = _findings(log, runs, grace, older, now())
        still = {(one.kind, one.where) for one in left}
        repaired = [one for one in found if (one.kind, one.where) not in still]
        found = left
    compared = dict(log.totals())
    notes = []
    if runs is None:
        notes.append("runs were not compared: the log was named by hand (see --airflow)")
    else:
        compared["unsettled runs"] = len(log.active_runs())
    return Report(compared=compared, findings=found, repaired=repaired, notes=notes)


def _findings(log: Log, runs: RunStates | None, grace: float, older: float, now: float) -> list[Finding]:
    found = [finding for health in _by_source(log) for finding in _source(health, grace, now)]
    found += [_told(gap) for gap in log.gaps(grace=grace, older=older)]
    return found + (_runs(log, runs, now) if runs is not None else [])


def _by_source(log: Log) -> list[WatcherHealth]:
    """One watcher's health for each source that a Dag wants."""
    unwanted = log.unwanted()
    wanted = {place.watcher for place in log.subscriptions(counts=False) if place.active}
    return list(
        {h.source: h for h in log.health() if h.watcher in wanted and h.source not in unwanted}.values()
    )


def _source(health: WatcherHealth, grace: float, now: float) -> list[Finding]:
    """Whether somebody reads the source, and gets on."""
    if health.source.startswith("webhook:"):
        return []  # nobody reads a webhook: senders come by themselves
    where, silent = f"source {health.source}", now - (health.heartbeat_at or 0.0) > grace
    if silent:
        last = "never" if health.heartbeat_at is None else f"{now - health.heartbeat_at:.0f} s ago"
        what = f"nobody reads it: its reader was last seen {last}"
        return [
            Finding(
                kind="source_unread", where=where, what=what, why="what happens there does not arrive",
                repair="start a triggerer, or unpause a Dag that wants it", repairable=False,
            )
        ]  # fmt: skip
    found = []
    if health.state == "backoff":
        found.append(
            Finding(
                kind="source_failing", where=where, what=f"its reader fails: {health.error or 'unknown'}",
                why="what happens there does not arrive", repair="mend what it names",
                repairable=False,
            )
        )  # fmt: skip
    if health.lag and health.state != "paused" and now - (health.last_event_at or 0.0) > grace:
        found.append(
            Finding(
                kind="source_stuck", where=where,
                what=f"it is {health.lag} behind, and nothing has arrived for {grace:.0f} s",
                why="its position does not move on", repair="look at the triggerer's log", repairable=False,
            )
        )  # fmt: skip
    return found


def _told(gap: Gap) -> Finding:
    what, why, repair = _GAPS[gap.kind]
    place = " of ".join(part for part in (gap.dag_id and f"Dag {gap.dag_id}", gap.watcher) if part)
    return Finding(
        kind=gap.kind,
        where=place or ("replay" if gap.kind == "replay" else "log"),
        what=what.format(count=gap.count, first=gap.first),
        why=why,
        repair=repair,
        repairable=gap.kind not in _NOT_REPAIRABLE,
    )


def _runs(log: Log, runs: RunStates, now: float) -> list[Finding]:
    """Claims that do not say of a run what Airflow says."""
    active, ended = log.active_runs(), log.failed_runs(since=now - _CLEARABLE)
    states = runs([*active, *ended]) if active or ended else {}
    kinds = {None: "run_unknown", "success": "run_succeeded", "failed": "run_failed"}
    found = [_run(kinds[state], run) for run in active if (state := states.get(run)) in kinds]
    again = {"success": "run_succeeded", "queued": "run_again", "running": "run_again"}
    return found + [_run(again[state], run) for run in ended if (state := states.get(run)) in again]


_RUNS = {
    "run_unknown": ("has events, and Airflow does not know the run", "gives them back, no attempt counted"),
    "run_succeeded": ("succeeded, and its events are not done", "its events are done"),
    "run_failed": ("failed, and its events are still with it", "returns them, or sets them aside"),
    "run_again": ("was cleared and runs again without its events", "gives it back what nobody else took"),
}


def _run(kind: str, run: tuple[str, str]) -> Finding:
    what, repair = _RUNS[kind]
    return Finding(
        kind=kind,
        where=f"run {run[1]} of Dag {run[0]}",
        what=what,
        why="its events would wait, or come twice",
        repair=repair,
        run=run,
    )


def _settle(log: Log, finding: Finding) -> None:
    """Bring a run's settlement in line with Airflow."""
    if finding.run is None:
        return
    dag_id, run_id = finding.run
    match finding.kind:
        case "run_unknown":
            log.release_run(dag_id, run_id)
        case "run_succeeded":
            log.settle(dag_id, run_id, ok=True)
        case "run_failed":
            log.settle(dag_id, run_id, ok=False, reason=f"run {run_id} of Dag {dag_id} failed")
        case "run_again":
            log.reopen(dag_id, run_id)
        case _:
            raise WindsockError(f"nothing is known of how to repair {finding.kind!r}")
