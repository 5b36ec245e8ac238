"""How much work a definition will be: events, batches and runs a day, from what the log has of the past.

::

    found = forecast(log, spec, since=now - 7 * 86400, until=now)
    print("\\n".join(found.lines()))

The forecast says that the coming days are like the past ones: it knows the hours and weekdays, not growth.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence

import msgspec

from windsock.backtest import Backtest, Outcome, in_parts, past
from windsock.log import Log
from windsock.log.records import REMEMBERED
from windsock.spec import WatcherSpec

__all__ = ["Forecast", "forecast"]

_DAY = 86400.0
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a watcher's definition makes of a day like those before."""

    watcher: str
    since: float
    until: float
    days: float
    """How long the past is that this is made of: from the first event in it to its end."""
    events: int
    """Events of that past, whatever became of them."""
    events_per_day: float
    """Events that are kept."""
    batches_per_day: float
    dags: int
    """Dags that are subscribed; without one, a single Dag is taken."""
    runs_per_day: float
    run_minutes_per_day: float | None
    """Minutes that runs have events, from claim to outcome, at the mean of that past; None if none ended."""
    by_hour: list[float]
    """Kept events in each hour of the day, UTC."""
    by_weekday: dict[str, float]
    """Kept events a day, on the weekdays that the past has."""
    notes: list[str]

    def lines(self, *, without: Sequence[str] = ()) -> list[str]:
        """The forecast as text; ``without`` are notes that are said elsewhere."""
        notes = [f"  note: {note}" for note in self.notes if note not in without]
        if not self.events:
            return [f"{self.watcher}: no forecast", *notes]
        minutes = "" if self.run_minutes_per_day is None else f", {self.run_minutes_per_day:,.1f} run minutes"
        peak = max(range(24), key=self.by_hour.__getitem__)
        weekdays = ", ".join(f"{day} {count:,.0f}" for day, count in self.by_weekday.items())
        head = f"{self.watcher}: {self.events_per_day:,.1f} events, {self.batches_per_day:,.1f} batches"
        return [
            f"{head}, {self.runs_per_day:,.1f} runs{minutes} a day",
            f"  from {self.events:,} events in {self.days:.1f} days until {_time(self.until)}",
            f"  busiest hour: {peak:02}:00 UTC with {self.by_hour[peak]:,.1f} events",
            f"  by weekday: {weekdays}",
            *notes,
        ]


def forecast(log: Log, spec: WatcherSpec, *, since: float, until: float) -> Forecast:
    """The forecast for a definition from the past of the watcher with its name."""
    test = Backtest(spec)
    first: float | None = None
    hours: Counter[int] = Counter()
    dates: Counter[dt.date] = Counter()
    for part in in_parts(past(log, spec.name, since=since, until=until)):
        first = part[0].at if first is None else first
        for moment, judged in zip(part, test.judge(part), strict=True):
            if judged.outcome is Outcome.KEPT:
                when = dt.datetime.fromtimestamp(moment.at, dt.UTC)
                hours[when.hour] += 1
                dates[when.date()] += 1
    test.batches.finish()
    # A past shorter than a day is taken as a whole one: scaled up it would promise too much.
    days = max((until - (first if first is not None else since)) / _DAY, 1.0)
    dags = [place.dag_id for place in log.subscriptions(watcher=spec.name, counts=False) if place.active]
    runs = test.batches.runs * (len(dags) or 1) / days
    minutes = _run_minutes(log, spec.name, dags, since, until)
    return Forecast(
        watcher=spec.name,
        since=since,
        until=until,
        days=days,
        events=test.tally.events,
        events_per_day=test.tally.kept / days,
        batches_per_day=test.batches.closed / days,
        dags=len(dags),
        runs_per_day=runs,
        run_minutes_per_day=None if minutes is None else runs * minutes,
        by_hour=[hours[hour] / days for hour in range(24)],
        by_weekday=_weekdays(dates, until if first is None else first, until),
        notes=_notes(log, spec, test.tally.events, days, until - since),
    )


def _run_minutes(log: Log, watcher: str, dags: list[str], since: float, until: float) -> float | None:
    """The mean minutes between the claim and the outcome of a run, over these Dags."""
    spans = [
        claim.settled_at - claim.claimed_at
        for dag_id in dags
        for claim in log.claims(dag_id, since=since, until=until)
        if claim.watcher == watcher and claim.settled_at is not None and claim.state in ("done", "failed")
    ]
    return sum(spans) / len(spans) / 60 if spans else None


def _weekdays(dates: Counter[dt.date], first: float, last: float) -> dict[str, float]:
    """The mean of each weekday between two times, days without events included."""
    day, end = (dt.datetime.fromtimestamp(moment, dt.UTC).date() for moment in (first, last))
    totals: dict[int, list[int]] = {}
    while day <= end:
        totals.setdefault(day.weekday(), []).append(dates[day])
        day += dt.timedelta(days=1)
    return {_WEEKDAYS[number]: sum(found) / len(found) for number, found in sorted(totals.items())}


def _notes(log: Log, spec: WatcherSpec, events: int, days: float, asked: float) -> list[str]:
    """What the numbers do not know."""
    if not events:
        return ["the log has nothing of this watcher in that time"]
    notes = []
    if days * _DAY < asked - _DAY / 2:
        notes.append(f"the log has only {days:.1f} of the {asked / _DAY:.0f} days that were asked for")
    if days < 7:
        notes.append("less than a week: weekdays may differ from it")
    if spec.batch.target is not None:
        notes.append(
            "adaptive batches depend on how fast the Dag is: counted as if each waited its target time"
        )
    if len(log.verdicts(watcher=spec.name, limit=REMEMBERED)) == REMEMBERED:
        notes.append(
            f"only the newest {REMEMBERED:,} filtered events are remembered: if the definition keeps more "
            "than before, there will be more than this"
        )
    notes.append(
        "runs are counted as if the Dag could always start one at once; a busy Dag takes more at a time"
    )
    return notes


def _time(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
