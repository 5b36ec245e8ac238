"""What became of the events: the log says who has them, Airflow's REST API says how the runs are."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from windsock.cli.demo.doors import Parcel
from windsock.cli.demo.site import DAGS
from windsock.log import Log
from windsock.log.records import EventQuery, EventRecord, State
from windsock.testing.airflow_api import AirflowApi, ApiError, DagRun

__all__ = ["Row", "Summary", "Trail"]

_SETTLED = (State.DONE, State.DEAD)
_PAGE = 100


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as the terminal shows it."""

    seq: int
    name: str
    door: str
    received_at: float
    dag_id: str | None
    run_id: str | None
    state: State
    attempts: int
    reason: str | None
    """Why it was set aside."""
    seconds: float | None
    """From received to the end of its run."""

    @property
    def settled(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in _SETTLED


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted; `windsock demo --help` says what each number means."""

    sent: int
    logged: int
    announced: int
    runs: int
    done: int
    dead: int
    lost: int
    duplicated: int
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether every event ended, once."""
        return not (self.lost or self.duplicated)


class Trail:
    """Follows the events that were received since `began`."""

    def __init__(self, log: Log, api: AirflowApi, began: float) -> None:
        self._log = log
        self._api = api
        self._began = began
        self._ends: dict[tuple[str, str], float] = {}

    def rows(self, limit: int) -> list[Row]:
        """The newest events, newest first."""
        records = self._log.events(EventQuery(since=self._began, limit=limit))
        reasons = {letter.seq: letter.reason for letter in self._log.dead_letters(limit=_PAGE)}
        return [self._row(record, reasons.get(record.event.seq)) for record in records]

    def settled(self, parcels: Sequence[Parcel]) -> bool:
        """Whether each of them is in the log, and done or dead."""
        found = self._found(parcels)
        return len(found) == len(parcels) and all(
            record.state in _SETTLED for records in found.values() for record in records
        )

    def summary(self, parcels: Sequence[Parcel], seconds: float) -> Summary:
        """Count what became of the parcels, from the log and from Airflow."""
        found = self._found(parcels)
        ends = Counter(_end(records) for records in found.values())
        runs = [run for dag_id in DAGS for run in self._api.runs(dag_id) if self._is_new(run)]
        had = Counter(name for run in runs if run.state == "success" for name in self._had(run))
        twice = {name for name, records in found.items() if len({record.event.seq for record in records}) > 1}
        return Summary(
            sent=len(parcels),
            logged=len(found),
            announced=self._announced(found.values(), runs),
            runs=len(runs),
            done=ends[State.DONE],
            dead=ends[State.DEAD],
            lost=len(parcels) - ends[State.DONE] - ends[State.DEAD],
            duplicated=len(twice | {parcel.name for parcel in parcels if had[parcel.name] > 1}),
            seconds=round(seconds, 1),
        )

    def _found(self, parcels: Sequence[Parcel]) -> dict[str, list[EventRecord]]:
        """The records of the parcels in the log, by name."""
        wanted = {(parcel.watcher, parcel.name) for parcel in parcels}
        found: dict[str, list[EventRecord]] = {}
        for watcher in {parcel.watcher for parcel in parcels}:
            before: int | None = None
            while True:
                query = EventQuery(watcher=watcher, since=self._began, before=before, limit=_PAGE)
                records = self._log.events(query)
                for record in records:
                    if (watcher, _name(record)) in wanted:
                        found.setdefault(_name(record), []).append(record)
                if len(records) < _PAGE:
                    break
                before = records[-1].event.seq
        return found

    def _row(self, record: EventRecord, reason: str | None) -> Row:
        end = self._ended_at(record)
        return Row(
            seq=record.event.seq or 0,
            name=_name(record),
            door="webhook" if record.event.source.startswith("webhook:") else "file",
            received_at=record.received_at,
            dag_id=record.dag_id,
            run_id=record.run_id,
            state=record.state,
            attempts=record.attempts,
            reason=reason if record.state == State.DEAD else None,
            seconds=None if end is None else max(end - record.received_at, 0.0),
        )

    def _ended_at(self, record: EventRecord) -> float | None:
        """When the run that settled the event ended; Airflow is asked once."""
        if record.dag_id is None or record.run_id is None or record.state not in _SETTLED:
            return None
        place = (record.dag_id, record.run_id)
        if place not in self._ends:
            try:
                run = self._api.run(*place)
            except (httpx.TransportError, ApiError):
                return None  # the API server is away or overloaded: it is asked again in a moment
            if run.end_date is None:
                return None  # an event is set aside before its run ends
            self._ends[place] = run.end_date.timestamp()
        return self._ends[place]

    def _is_new(self, run: DagRun) -> bool:
        return run.queued_at is not None and run.queued_at.timestamp() >= self._began

    def _had(self, run: DagRun) -> Iterator[str]:
        """The names of the events that the run's tasks got, as they returned them."""
        task = DAGS[run.dag_id]
        run_path = f"dags/{run.dag_id}/dagRuns/{quote(run.run_id, safe='')}"
        path = f"{run_path}/taskInstances/{task}/xcomEntries/return_value"
        try:
            value = self._api.request("GET", path)["value"]
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise
            return  # the task returned nothing, so it had nothing
        for item in json.loads(value) if isinstance(value, str) else value:
            yield item["id"] if isinstance(item, dict) else item

    def _announced(self, found: Any, runs: Sequence[DagRun]) -> int:
        reach: dict[str, list[tuple[int, int]]] = {}
        for note in self._announcements():
            reach.setdefault(note["watcher"], []).append((note["first"], note["up_to"]))
        started = {(run.dag_id, run.run_id) for run in runs if run.run_type == "asset_triggered"}

        def told(record: EventRecord) -> bool:
            seq = record.event.seq or 0
            covered = any(first <= seq <= up_to for first, up_to in reach.get(record.watcher, ()))
            return covered or (record.dag_id, record.run_id) in started

        return sum(1 for records in found if any(told(record) for record in records))

    def _announcements(self) -> Iterator[dict[str, Any]]:
        """What Windsock wrote into Airflow's asset events since the demo began."""
        since = dt.datetime.fromtimestamp(self._began, dt.UTC).isoformat()
        offset = 0
        while True:
            params = {"limit": _PAGE, "offset": offset, "timestamp_gte": since, "order_by": "timestamp"}
            page = self._api.request("GET", "assets/events", params=params)["asset_events"]
            for asset_event in page:
                payload = (asset_event["extra"] or {}).get("payload")
                if isinstance(payload, dict) and "windsock" in payload:
                    yield payload["windsock"]
            offset += len(page)
            if len(page) < _PAGE:
                return


def _name(record: EventRecord) -> str:
    """A file's name, a webhook's delivery id."""
    return record.event.subject or record.event.id


def _end(records: Sequence[EventRecord]) -> State | None:
    """How a parcel ended, if it did for everyone who has it."""
    states = {record.state for record in records}
    if not states <= set(_SETTLED):
        return None
    return State.DEAD if State.DEAD in states else State.DONE
