"""What a changed definition would change: a watcher's past through the old and the new one, side by side.

::

    found = diff(log, old=definitions("registered", log), new=definitions("watchers.yaml"), since=a_week_ago)
    print(found.summary())          # "+37 runs, -412 events kept, 3 newly invalid"

See :mod:`windsock.backtest` for what the log knows of the past; ``notes`` say what it does not.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping

import msgspec

from windsock.backtest import Backtest, Judged, Moment, Outcome, in_parts, past, why
from windsock.log import Log
from windsock.spec import WatcherSpec

__all__ = ["Diff", "Difference", "Side", "WatcherDiff", "diff"]

_CHANGES = {
    (Outcome.FILTERED, Outcome.KEPT): "newly kept",
    (Outcome.KEPT, Outcome.FILTERED): "newly filtered",
    (Outcome.KEPT, Outcome.DUPLICATE): "newly duplicate",
    (Outcome.DUPLICATE, Outcome.KEPT): "no longer duplicate",
}
_UNTRIED = ("unwrap", "transform", "versions", "sequence", "route", "rate_limit")
"""Options whose change the past cannot show, or not wholly."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What one definition makes of the past."""

    kept: int
    filtered: int
    invalid: int
    duplicates: int
    batches: int
    runs: int
    """Runs of all subscribed Dags together, at least one Dag."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An event of which the two definitions think differently."""

    event_id: str
    at: float
    change: str
    old: str
    new: str
    reason: str
    """Why the definition that does not keep it does not; or what differs in it."""


class WatcherDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What changes at one watcher."""

    watcher: str
    options: list[str]
    """The options that differ."""
    events: int
    """How many events were judged."""
    first_at: float | None
    last_at: float | None
    old: Side
    new: Side
    changes: dict[str, int]
    """Change → events: newly kept, newly filtered, newly invalid, altered, …"""
    first: Difference | None
    notes: list[str]

    @property
    def changed(self) -> bool:
        """Whether anything would be different."""
        return bool(self.changes) or self.old != self.new

    def summary(self) -> str:
        """The change in one line."""
        parts = [
            f"{delta:+,} {noun}"
            for noun, delta in (
                ("runs", self.new.runs - self.old.runs),
                ("batches", self.new.batches - self.old.batches),
                ("events kept", self.new.kept - self.old.kept),
            )
            if delta
        ]
        parts += [f"{count:,} {change}" for change, count in self.changes.items()]
        return ", ".join(parts) or "nothing changes"

    def lines(self) -> list[str]:
        """The change as text."""
        header = f"{self.watcher}: {self.summary()}"
        if not self.events:
            return [header, *(f"  note: {note}" for note in self.notes)]
        lines = [header, f"  {self.events:,} events from {_time(self.first_at)} to {_time(self.last_at)}"]
        lines += [f"  {n:<10} {old:>9,} → {new:>9,}" for n, old, new in _table(self) if old or new]
        if self.first is not None:
            lines.append(f"  first: {_told(self.first)}")
        return lines + [f"  note: {note}" for note in self.notes]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What changes, watcher by watcher."""

    watchers: list[WatcherDiff]
    added: list[str]
    """Watchers that only the new side has: there is no past to judge them by."""
    removed: list[str]

    @property
    def changed(self) -> bool:
        """Whether anything would be different."""
        return bool(self.added or self.removed) or any(one.changed for one in self.watchers)

    def summary(self) -> str:
        """The change in one line."""
        parts = [f"{one.watcher}: {one.summary()}" for one in self.watchers if one.changed]
        parts += [f"{name}: new" for name in self.added] + [f"{name}: removed" for name in self.removed]
        return "; ".join(parts) or "Nothing changes."

    def lines(self) -> list[str]:
        """The change as text."""
        lines = [line for one in self.watchers for line in one.lines()]
        lines += [f"{name}: new, no past to judge it by" for name in self.added]
        return lines + [f"{name}: removed" for name in self.removed]

    def markdown(self) -> str:
        """The change as a comment on a pull request."""
        lines = ["### Windsock: what this changes", "", f"**{self.summary()}**"]
        for one in self.watchers:
            if not one.changed:
                continue
            lines += ["", f"#### `{one.watcher}`", "", "| | before | after | |", "|---|---:|---:|---:|"]
            lines += [f"| {n} | {old:,} | {new:,} | {new - old:+,} |" for n, old, new in _table(one)]
            lines += ["", f"{one.events:,} events from {_time(one.first_at)} to {_time(one.last_at)}."]
            if one.first is not None:
                lines += ["", f"First event that differs: {_told(one.first)}"]
            if one.notes:
                lines += ["", *(f"- {note}" for note in one.notes)]
        return "\n".join(lines) + "\n"


def diff(
    log: Log,
    *,
    old: Mapping[str, WatcherSpec],
    new: Mapping[str, WatcherSpec],
    since: float | None = None,
    until: float | None = None,
) -> Diff:
    """Judge the past of every watcher that both sides have."""
    both = sorted(old.keys() & new.keys())
    return Diff(
        watchers=[_diff(log, old[name], new[name], since, until) for name in both],
        added=sorted(new.keys() - old.keys()),
        removed=sorted(old.keys() - new.keys()),
    )


def _diff(
    log: Log, old: WatcherSpec, new: WatcherSpec, since: float | None, until: float | None
) -> WatcherDiff:
    before, after = Backtest(old), Backtest(new)
    changes: Counter[str] = Counter()
    first: Difference | None = None
    first_at = last_at = None
    for part in in_parts(past(log, old.name, since=since, until=until)):
        first_at, last_at = (part[0].at if first_at is None else first_at), part[-1].at
        for moment, was, is_now in zip(part, before.judge(part), after.judge(part), strict=True):
            change = _change(was, is_now)
            if change is not None:
                changes[change] += 1
                first = first or _difference(moment, was, is_now, change, old, new)
    dags = sum(place.active for place in log.subscriptions(watcher=old.name, counts=False)) or 1
    differing = [name for name in WatcherSpec.__struct_fields__ if getattr(old, name) != getattr(new, name)]
    return WatcherDiff(
        watcher=old.name,
        options=differing,
        events=before.tally.events,
        first_at=first_at,
        last_at=last_at,
        old=_side(before, dags),
        new=_side(after, dags),
        changes=dict(changes),
        first=first,
        notes=_notes(log, old, new, differing, before.tally.events),
    )


def _change(was: Judged, is_now: Judged) -> str | None:
    if was.outcome is is_now.outcome:
        return None if was.event == is_now.event else "altered"
    if is_now.outcome is Outcome.INVALID:
        return "newly invalid"
    if was.outcome is Outcome.INVALID:
        return "no longer invalid"
    return _CHANGES.get((was.outcome, is_now.outcome), f"{was.outcome} before, {is_now.outcome} now")


def _difference(
    moment: Moment, was: Judged, is_now: Judged, change: str, old: WatcherSpec, new: WatcherSpec
) -> Difference:
    if change == "altered" and was.event is not None and is_now.event is not None:
        pairs = (
            (n, getattr(was.event, n), getattr(is_now.event, n)) for n in ("key", "type", "subject", "data")
        )
        reason = "; ".join(f"{name} {a!r} → {b!r}" for name, a, b in pairs if a != b)
    elif is_now.outcome is Outcome.KEPT:
        reason = f"before: {why(old, moment.event, was.outcome)}"
    else:
        reason = why(new, is_now.event or moment.event, is_now.outcome)
    return Difference(
        event_id=moment.event.id,
        at=moment.at,
        change=change,
        old=was.outcome,
        new=is_now.outcome,
        reason=reason,
    )


def _side(test: Backtest, dags: int) -> Side:
    test.batches.finish()
    return Side(
        kept=test.tally.kept,
        filtered=test.tally.filtered,
        invalid=test.tally.invalid,
        duplicates=test.tally.duplicate,
        batches=test.batches.closed,
        runs=test.batches.runs * dags,
    )


def _notes(log: Log, old: WatcherSpec, new: WatcherSpec, differing: list[str], events: int) -> list[str]:
    """What the numbers do not know."""
    notes = []
    if not events:
        notes.append("the log has nothing of this watcher in that time")
    if any((spec.transform, spec.unwrap, spec.versions) != (None, None, None) for spec in (old, new)):
        notes.append(
            "stored events are as unwrap, transform and versions left them: those steps are not run on them "
            "again, and conditions see what they made"
        )
    untried = [name for name in differing if name in _UNTRIED]
    if untried:
        notes.append(f"a change of {', '.join(untried)} shows only in part, or not at all")
    filtered = next((health.filtered for health in log.health() if health.watcher == old.name), 0)
    known = sum(one.verdict == "filtered" for one in log.verdicts(watcher=old.name, limit=1_000_000))
    if filtered > known:
        notes.append(
            f"{filtered:,} events were filtered so far, the newest {known:,} are remembered: of the others "
            "nobody can say whether they would be kept now"
        )
    return notes


def _table(one: WatcherDiff) -> list[tuple[str, int, int]]:
    return [(name, getattr(one.old, name), getattr(one.new, name)) for name in Side.__struct_fields__]


def _told(found: Difference) -> str:
    reason = f" ({found.reason})" if found.reason else ""
    return f"{found.event_id} at {_time(found.at)}: {found.change}{reason}"


def _time(moment: float | None) -> str:
    if moment is None:
        return "never"
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
