"""Runs, task instances and asset events of this or another Airflow 3.

::

    source = AirflowSource(AirflowConfig(conn_id="airflow_eu", dags=("etl_*",), states=("failed",)))
    await source.connect(None)
    async for delivery in source.read():
        print([event.subject for event in delivery.events])   # ['etl_orders/scheduled__2026-11-15', ...]
        await delivery.ack()

**Events.** ``airflow.dag_run.<state>``, ``airflow.task_instance.<state>``, ``airflow.asset_event.created``;
source ``airflow://<host>``. Subject and key of a run are ``dag_id/run_id``, of a task instance
``dag_id/run_id/task_id`` (with ``/map_index`` if it is mapped), of an asset event the asset's URI. ``data``
is what the API says, every field of it. The id is made of the subject, the state and its time, so that a run
that is cleared and ends again is a new event; of an asset event it is Airflow's own.

**Guarantee.** At least once for every run and task that is in one of the ``states`` when Airflow is asked.
The begin (``running``) is seen even if the run has ended since; an end that is undone (cleared, retried)
within one interval is not. A Dag that watches itself starts itself for ever: name the ``dags``.

**Where it resumes.** The cursor is a watermark of the times plus the latest rows one by one (see
:mod:`windsock.sources._airflow_memory`): rows with one timestamp, and rows that become visible up to a minute
late, are not missed.

**Connection** of type ``http``, ``https`` or ``airflow``: host (or a whole URL with a path), port, schema
(``http`` or ``https``); login and password, for which a token is fetched from ``/auth/token``, or a token
alone as the password or as the extra ``token``; with neither, Airflow must let everybody in. Further extras:
``verify`` (false, or the path of a CA bundle) and ``timeout`` (seconds, 30). To watch the Airflow that
Windsock runs in, give the address of its own API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, parse_time
from windsock.messages import unreadable
from windsock.sources._airflow_api import Api, NotFound
from windsock.sources._airflow_memory import Seen
from windsock.sources._ending import Ended, Ending
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["AirflowConfig", "AirflowSource"]

_PAGE = 500  # Airflow may give fewer; with two events a row, a delivery stays within its limit
_BEGUN = ("running", "success", "failed")
_BEGUN_TASKS = ("skipped", "up_for_retry", "deferred", "restarting", "up_for_reschedule")
_NEVER_RAN = ("skipped", "upstream_failed")
"""States that a task may be put into without running; both of its times are then the same."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class AirflowConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to watch, and where."""

    conn_id: Annotated[str, Meta(description="Airflow Connection of the API server.", min_length=1)]
    events: Annotated[
        tuple[Literal["dag_run", "task_instance", "asset_event"], ...],
        Meta(description="What to announce: `dag_run`, `task_instance`, `asset_event`.", min_length=1),
    ] = ("dag_run",)
    states: Annotated[
        tuple[Literal["running", "success", "failed", "skipped", "upstream_failed", "up_for_retry"], ...],
        Meta(
            description="States of runs and task instances that are announced; runs know `running`, "
            "`success` and `failed`.",
            min_length=1,
        ),
    ] = ("success", "failed")
    dags: Annotated[
        tuple[str, ...],
        Meta(
            description="Ids of Dags, or globs of them; all when empty. Of asset events, those that a task "
            "of such a Dag made."
        ),
    ] = ()
    assets: Annotated[
        tuple[str, ...],
        Meta(description="Names or URIs of assets whose events are wanted, or globs; all when empty."),
    ] = ()
    start: Annotated[
        Literal["latest", "earliest"],
        Meta(
            description="Where a watcher begins that has no position yet: `latest` with what comes, "
            "`earliest` with all there is."
        ),
    ] = "latest"
    interval: Annotated[float, Meta(description="Seconds between two looks.", gt=0)] = 10.0


@dataclass(frozen=True)
class _Stream:
    """Rows of one kind in the order of one of their times."""

    kind: str
    time: str
    """The field that says when the row came into its state."""
    path: str
    rows: str
    """The field of the answer that holds the rows."""
    params: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.time}"


class AirflowSource(UsesConnection):
    """Watches an Airflow through its API."""

    kind: ClassVar[str] = "airflow"
    config: ClassVar[type[AirflowConfig]] = AirflowConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="key",
        position="log",
        lag=False,
        tested="Airflow 3.3",
        notes="Polls. What begins and is undone within one interval is not seen.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"interval"})

    def __init__(self, config: AirflowConfig) -> None:
        self.options = config
        self._api: Api | None = None
        self._ending: Ending | None = None
        self._seen: dict[str, Seen] = {}
        self._new = False

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        self._ending = Ending()
        self._api = await Api.open(await self.connection())
        now, known = time.monotonic(), cursor or {}
        self._seen = {s.name: Seen(known.get(s.name), now=now) for s in self._streams()}
        self._new = cursor is None
        for stream in self._streams():
            page = self._page(self._api, stream, since=0, offset=0, order=f"-{stream.time}", limit=_PAGE)
            rows, total = await page
            newest = [_micros(row, stream.time) for row in rows if row.get(stream.time)]
            if self._new and self.options.start == "latest" and total:
                self._seen[stream.name].start_after(max(newest, default=time.time_ns() // 1000))

    async def read(self) -> AsyncIterator[Delivery]:
        api, ending = self._api, self._ending
        if api is None or ending is None:
            raise SourceError("Airflow is not being watched: call connect first")
        try:
            if (
                self._new and self.options.start == "latest"
            ):  # it must still mean the same moment after a crash
                yield Delivery([], cursor=self._cursor())
            while True:
                for stream in self._streams():
                    async for delivery in self._news(api, ending, stream):
                        yield delivery
                await ending.first(asyncio.sleep(self.options.interval))
        except Ended:
            return

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        api, ending, self._api, self._ending = self._api, self._ending, None, None
        if ending is not None:
            ending.end()
        if api is not None:
            await api.close()

    def _streams(self) -> list[_Stream]:
        """What to ask for; begins before ends, so that they come in this order."""
        options, streams = self.options, list[_Stream]()
        one = options.dags[0] if len(options.dags) == 1 and not _is_glob(options.dags[0]) else None
        below = f"dags/{quote(one, safe='') if one else '~'}/dagRuns"
        several = {"dag_id_pattern": "|".join(map(_like, options.dags))} if options.dags and not one else {}
        ends = [state for state in options.states if state != "running"]
        for kind, path, rows in (
            ("dag_run", below, "dag_runs"),
            ("task_instance", f"{below}/~/taskInstances", "task_instances"),
        ):
            wanted = [s for s in ends if kind == "task_instance" or s in ("success", "failed")]
            if kind not in options.events:
                continue
            if "running" in options.states:
                begun = {"state": [*_BEGUN, *(_BEGUN_TASKS if kind == "task_instance" else ())]}
                streams.append(_Stream(kind, "start_date", path, rows, {**several, **begun}))
            if wanted:
                streams.append(_Stream(kind, "end_date", path, rows, {**several, "state": wanted}))
        if "asset_event" in options.events:
            by = {"source_dag_id": one} if one else {}
            streams.append(_Stream("asset_event", "timestamp", "assets/events", "asset_events", by))
        return streams

    async def _news(self, api: Api, ending: Ending, stream: _Stream) -> AsyncIterator[Delivery]:
        """What came since, page by page, from the oldest to the newest."""
        seen = self._seen[stream.name]
        since, offset = max(seen.mark, 0), 0
        while True:
            asked = self._page(api, stream, since=since, offset=offset, order=stream.time, limit=_PAGE)
            rows, total = await ending.first(asked)
            offset += len(rows)
            done = not rows or offset >= total
            rows = [row for row in rows if row.get(stream.time)]  # Airflow counts "not yet" as now
            events, dead, news = self._read(stream, rows)
            last = _micros(rows[-1], stream.time) if rows else since
            seen.trim(before=last + done, now=time.monotonic())
            if news:
                yield Delivery(events, cursor=self._cursor(), dead=dead)
            if done:
                return
            # By time and not by place: rows that vanish or come late would shift the places.
            if last > since:
                since, offset = last, 0

    async def _page(
        self, api: Api, stream: _Stream, *, since: int, offset: int, order: str, limit: int
    ) -> tuple[list[dict[str, Any]], int]:
        moment = (_EPOCH + since * _MICROSECOND).isoformat()
        params = {
            **stream.params,
            f"{stream.time}_gte": moment,
            "order_by": order,
            "offset": offset,
            "limit": limit,
        }
        try:
            body = await api.get(stream.path, params)
        except NotFound as error:
            if self.options.dags:
                raise SourceError(
                    f"Airflow at {api.url} knows no Dag {self.options.dags[0]!r}: check dags, and that the "
                    "connection's user may read it"
                ) from error
            raise
        try:
            rows = msgspec.convert(body[stream.rows], list[dict[str, Any]])
            return rows, int(body["total_entries"])
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"Airflow at {api.url} did not answer {stream.path} as Airflow 3 does: check its version"
            ) from error

    def _read(
        self, stream: _Stream, rows: list[dict[str, Any]]
    ) -> tuple[list[Event], list[DeadLetter], bool]:
        """The events of the rows that are news; whether any row was, wanted or not."""
        events: list[Event] = []
        dead: list[DeadLetter] = []
        news = False
        for row in rows:
            for field, state in self._states(stream, row):
                seen, moment = self._seen[f"{stream.kind}.{field}"], _micros(row, field)
                subject = _subject(stream.kind, row)
                identity = f"{subject}/{state}"
                if seen.knows(moment, identity):
                    continue
                seen.add(moment, identity, now=time.monotonic())
                news = True
                if not self._wanted(stream.kind, row):
                    continue
                try:
                    events.append(self._event(stream.kind, row, subject, field, state))
                except InvalidEvent as error:
                    dead.append(unreadable(msgspec.json.encode(row), error, where=identity))
        return events, dead, news

    def _states(self, stream: _Stream, row: dict[str, Any]) -> list[tuple[str, str]]:
        """Which changes of state the row tells of: the field with the time, and the state."""
        if stream.time == "timestamp":
            return [("timestamp", str(row.get("id")))]
        begun = row.get("start_date")
        if row.get("state") in _NEVER_RAN and begun == row.get("end_date"):
            begun = None
        begins = [("start_date", "running")] if begun and f"{stream.kind}.start_date" in self._seen else []
        # A row that began since the begins were read must not be seen to end first.
        return begins if stream.time == "start_date" else [*begins, ("end_date", str(row.get("state")))]

    def _wanted(self, kind: str, row: dict[str, Any]) -> bool:
        options = self.options
        dag = row.get("source_dag_id" if kind == "asset_event" else "dag_id")
        if options.dags and not any(fnmatchcase(str(dag or ""), pattern) for pattern in options.dags):
            return False
        if kind != "asset_event" or not options.assets:
            return True
        names = [str(row.get(field) or "") for field in ("name", "uri")]
        return any(fnmatchcase(name, pattern) for name in names for pattern in options.assets)

    def _event(self, kind: str, row: dict[str, Any], subject: str, field: str, state: str) -> Event:
        asset = kind == "asset_event"
        host = urlsplit(self._api.url).netloc if self._api is not None else ""
        return Event.make(
            row,
            id=state if asset else f"{kind}/{subject}/{state}/{row[field]}",
            source=f"airflow://{host}",
            type=f"airflow.{kind}.{'created' if asset else state}",
            time=row[field],
            subject=subject,
            key=subject,
        )

    def _cursor(self) -> Cursor:
        return {name: seen.saved() for name, seen in self._seen.items()}


def _subject(kind: str, row: dict[str, Any]) -> str:
    if kind == "asset_event":
        return str(row.get("uri") or row.get("name") or row.get("asset_id"))
    parts = [row.get("dag_id"), row.get("dag_run_id")]
    if kind == "task_instance":
        parts.append(row.get("task_id"))
        if row.get("map_index", -1) != -1:
            parts.append(row["map_index"])
    return "/".join(map(str, parts))


def _micros(row: dict[str, Any], field: str) -> int:
    moment = None
    with contextlib.suppress(InvalidEvent):
        moment = parse_time(row.get(field))
    if moment is None:
        raise SourceError(f"Airflow gave a row whose {field} is no time: check its version")
    return (moment - _EPOCH) // _MICROSECOND


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _like(pattern: str) -> str:
    """A pattern for SQL's LIKE that finds at least what the glob means; the rest is sorted out here."""
    return pattern.partition("[")[0].replace("*", "%").replace("?", "_") or "%"
