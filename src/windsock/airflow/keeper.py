"""The keeper: brings to the log what only Airflow's database knows.

* Which Dags are scheduled on which watched assets, and which of them are paused or gone: the subscriptions.
* Which runs have ended: a run that the listener could not settle (its process was killed, the log was away)
  is settled here, from the committed state.
* What a Dag that never calls ``claim`` was triggered with.

It also looks after dead letters (:mod:`windsock.airflow.letters`).

It is a thread in the triggerer's main process, the one Airflow component that has the database and forks
no children after its start. With several triggerers a lease lets one keeper work at a time. It only reads
Airflow's tables.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from windsock.airflow import settings
from windsock.airflow.connections import airflow_connection
from windsock.airflow.letters import LetterCare
from windsock.airflow.runs import run_states
from windsock.archive import ParquetArchive
from windsock.events import LeaseLost, WindsockError
from windsock.log import Log
from windsock.log.records import Lease
from windsock.rules import feeders
from windsock.rules.contract import unheard
from windsock.sources import source_key
from windsock.spec import SpecError, WatcherSpec, start_time

__all__ = ["Keeper", "run_link"]

logger = logging.getLogger(__name__)

TRIGGER = "windsock.airflow.trigger.WatcherTrigger"
START_TAG = "windsock:start="
"""A Dag with the tag ``windsock:start=earliest`` (or latest, or a time) begins there when it is new."""
_LEASE = "windsock-keeper"
_LEASE_SECONDS = 15.0
_PURGE_SECONDS = 3600.0
_CLEARABLE_SECONDS = 86400.0
_LOOK_BACK_SECONDS = 3600.0
_FIRST_ROUND = 2.0
_MAX_PAUSE = 15.0

Plan = list[tuple[str, list[WatcherSpec]]]
"""The assets that a Dag is scheduled on, each with the watchers that the Dag's file attaches to it."""


class Keeper(threading.Thread):
    """See the module's docstring. ``interval`` is the pause between two rounds, in seconds."""

    def __init__(self, *, interval: float = 1.0) -> None:
        super().__init__(name="windsock-keeper", daemon=True)
        self._interval = interval
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = threading.Event()
        self._lease: Lease | None = None
        self._plans: dict[str, tuple[str, Plan]] = {}
        self._starts: dict[str, str] = {}
        self._registered: dict[str, tuple[WatcherSpec, str]] = {}
        self._subscribed: dict[tuple[str, str], bool] = {}
        self._examined: set[tuple[str, str]] = set()
        self._unheard: set[str] = set()
        self._letters = LetterCare()
        self._purged_at = time.monotonic()

    def run(self) -> None:
        # The first round waits until the triggerer has forked its runner: no lock of ours is held by then.
        self._stopping.wait(_FIRST_ROUND)
        pause = self._interval
        while not self._stopping.wait(pause):
            try:
                self.round()
                pause = self._interval
            except LeaseLost:
                self._forget()
            except WindsockError as error:
                pause = min(pause * 2, _MAX_PAUSE)
                logger.warning("windsock.keeper.waits retry_in=%.0fs: %s", pause, error)
                self._forget()
            except Exception:
                # Whatever the database or the log did, the next round starts from their committed state.
                logger.exception("windsock.keeper.failed")
                self._forget()
        if self._lease is not None:
            with contextlib.suppress(WindsockError):
                settings.get_log().release(self._lease)

    def stop(self) -> None:
        """End after the current round and give the lease back."""
        self._stopping.set()

    def round(self) -> None:
        """Bring everything up to date once, if this keeper holds the lease."""
        log = settings.get_log()
        if self._lease is None:
            self._lease = log.acquire(_LEASE, self._owner, _LEASE_SECONDS)
            if self._lease is None:
                return
        self._lease = log.renew(self._lease, _LEASE_SECONDS)
        self.sync_subscriptions(log)
        self.claim_for_plain_dags(log)
        self.settle_ended_runs(log)
        self._letters.round(log)
        if time.monotonic() - self._purged_at > _PURGE_SECONDS:
            self._purged_at = time.monotonic()
            # Archives may take long to write; nobody should wait for that.
            threading.Thread(target=self.purge, args=(log,), name="windsock-purge", daemon=True).start()

    def purge(self, log: Log) -> None:
        """Forget, or archive, what is past its watcher's retention; what fails is tried again in an hour."""
        try:
            purged = log.purge(
                before=time.time() - settings.retention(), archive=ParquetArchive(airflow_connection)
            )
            logger.info("windsock.log.purged events=%d", purged)
        except WindsockError as error:
            logger.warning("windsock.log.purge_failed retry_in=%.0fs: %s", _PURGE_SECONDS, error)
        except Exception:
            # The thread has nobody to tell.
            logger.exception("windsock.log.purge_failed")

    def _forget(self) -> None:
        """Compare everything anew: another keeper may have worked meanwhile."""
        self._lease = None
        self._registered.clear()
        self._subscribed.clear()

    # subscriptions

    def sync_subscriptions(self, log: Log) -> None:
        """Make the log's watchers and subscriptions those of Airflow's parsed Dags."""
        dags = self._scheduled_dags()
        attached: dict[str, list[WatcherSpec]] = {}
        for _, plan in dags.values():
            for asset, specs in plan:
                attached.setdefault(asset, []).extend(specs)
        for asset, specs in attached.items():
            for spec in specs:
                self._register(log, spec, asset)
        silent = unheard(spec for specs in attached.values() for spec in specs)
        for name in sorted(silent - self._unheard):
            logger.warning(
                "windsock.expectation.unheard watcher=%s: schedule a Dag on an ExpectationAssetWatcher", name
            )
        self._unheard = silent
        wanted: dict[tuple[str, str], bool] = {}
        for dag_id, (paused, plan) in dags.items():
            for asset, _ in plan:
                feeding = feeders(attached[asset])
                for spec in attached[asset]:
                    if spec.name not in feeding:
                        wanted[spec.name, dag_id] = paused
        if not self._subscribed:
            known = log.subscriptions(counts=False)
            self._subscribed = {(s.watcher, s.dag_id): s.paused for s in known if s.active}
        for (watcher, dag_id), paused in wanted.items():
            if self._subscribed.get((watcher, dag_id)) != paused:
                log.subscribe(watcher, dag_id, paused=paused, start=self._starts.get(dag_id))
        for watcher, dag_id in self._subscribed.keys() - wanted.keys():
            log.unsubscribe(watcher, dag_id)
            logger.info("windsock.subscription.ended watcher=%s dag=%s", watcher, dag_id)
        self._subscribed = wanted

    def _register(self, log: Log, spec: WatcherSpec, asset: str) -> None:
        known = self._registered.get(spec.name)
        if known == (spec, asset):
            return
        if known is not None and known[1] != asset:
            logger.error(
                "windsock.watcher.name_taken watcher=%s asset=%s: %s has a watcher of that name; rename one",
                spec.name,
                asset,
                known[1],
            )
            return
        log.register(spec, source=source_key(spec.kind, spec.options), asset=asset)
        self._registered[spec.name] = (spec, asset)

    def _scheduled_dags(self) -> dict[str, tuple[bool, Plan]]:
        """dag_id → (paused, plan) of every Dag that is scheduled on assets and still exists."""
        from airflow.models.dag import DagModel
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.utils.session import create_session
        from sqlalchemy import func, select

        with create_session() as session:
            rows = session.execute(
                select(DagModel.dag_id, DagModel.is_paused, func.max(SerializedDagModel.last_updated))
                .join(SerializedDagModel, SerializedDagModel.dag_id == DagModel.dag_id)
                .where(DagModel.asset_expression.is_not(None), DagModel.is_stale.is_(False))
                .group_by(DagModel.dag_id, DagModel.is_paused)
            ).all()
            versions = {dag_id: str(updated) for dag_id, _, updated in rows}
            stale = [d for d, version in versions.items() if self._plans.get(d, ("",))[0] != version]
            if stale:
                for row in SerializedDagModel.get_latest_serialized_dags(dag_ids=stale, session=session):
                    self._plans[row.dag_id] = (versions[row.dag_id], _plan(row.dag_id, row.dag))
                    self._starts.pop(row.dag_id, None)
                    self._starts |= _start(row.dag_id, row.dag.tags)
        plans = {dag_id: self._plans.get(dag_id, ("", []))[1] for dag_id, _, _ in rows}
        return {dag_id: (bool(paused), plans[dag_id]) for dag_id, paused, _ in rows}

    # runs

    def claim_for_plain_dags(self, log: Log) -> None:
        """Take for each run of a Dag that does not claim what its asset events announced."""
        from airflow.models.dagrun import DagRun
        from airflow.sdk import timezone
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState
        from sqlalchemy import or_, select
        from sqlalchemy.orm import selectinload

        plain = {s.dag_id for s in log.subscriptions(counts=False) if s.active and not s.explicit}
        if not plain:
            return
        with create_session() as session:
            recent = session.execute(
                select(DagRun.id, DagRun.dag_id, DagRun.run_id).where(
                    DagRun.dag_id.in_(plain),
                    or_(
                        DagRun.state.in_([DagRunState.QUEUED, DagRunState.RUNNING]),
                        # A run may begin and end between two rounds, or while no keeper was there.
                        DagRun.end_date >= timezone.utcnow() - timedelta(seconds=_LOOK_BACK_SECONDS),
                    ),
                )
            ).all()
            new = [id for id, dag_id, run_id in recent if (dag_id, run_id) not in self._examined]
            runs = session.scalars(
                select(DagRun).where(DagRun.id.in_(new)).options(selectinload(DagRun.consumed_asset_events))
            )
            found = {(run.dag_id, run.run_id): _announced(run.consumed_asset_events) for run in runs}
        for (dag_id, run_id), reaches in found.items():
            for watcher, up_to in reaches.items():
                log.claim_announced(watcher, dag_id, run_id, up_to)
        self._examined = {(dag_id, run_id) for _, dag_id, run_id in recent}

    def settle_ended_runs(self, log: Log) -> None:
        """Settle claims of ended runs, give back those of deleted runs, resume those of cleared runs."""
        from airflow.utils.state import DagRunState

        open_runs = log.active_runs()
        failed_runs = log.failed_runs(since=time.time() - _CLEARABLE_SECONDS)
        if not open_runs and not failed_runs:
            return
        states = run_states([*open_runs, *failed_runs])
        for dag_id, run_id in open_runs:
            state = states.get((dag_id, run_id))
            if state is None:
                log.release_run(dag_id, run_id)
            elif state in (DagRunState.SUCCESS, DagRunState.FAILED):
                log.settle(dag_id, run_id, ok=state == DagRunState.SUCCESS, reason=failure(dag_id, run_id))
        for dag_id, run_id in failed_runs:
            state = states.get((dag_id, run_id))
            if state == DagRunState.SUCCESS:
                log.settle(dag_id, run_id, ok=True)
            elif state in (DagRunState.QUEUED, DagRunState.RUNNING):
                log.reopen(dag_id, run_id)


def _start(dag_id: str, tags: Iterable[str]) -> dict[str, str]:
    """Where the Dag begins, if one of its tags says so."""
    for tag in tags:
        if not tag.startswith(START_TAG):
            continue
        start = tag.removeprefix(START_TAG)
        try:
            if start not in ("earliest", "latest"):
                start_time(start)
            return {dag_id: start}
        except SpecError as error:
            logger.error("windsock.dag.tag_refused dag=%s tag=%s: %s", dag_id, tag, error)
    return {}


def _plan(dag_id: str, dag: Any) -> Plan:
    """The assets that a serialized Dag is scheduled on, with their Windsock watchers."""
    plan: Plan = []
    for _, asset in dag.timetable.asset_condition.iter_assets():
        specs = []
        for watcher in asset.watchers:
            if watcher.trigger["classpath"] != TRIGGER:
                continue
            try:
                spec = WatcherSpec.from_dict(watcher.trigger["kwargs"]["watcher"])
                source_key(spec.kind, spec.options)
                specs.append(spec)
            except WindsockError as error:
                logger.error("windsock.watcher.refused dag=%s: %s", dag_id, error)
        plan.append((asset.uri, specs))
    return plan


def _announced(asset_events: Iterable[Any]) -> dict[str, int]:
    """watcher → how far the asset events of a run reach."""
    reach: dict[str, int] = {}
    for asset_event in asset_events:
        payload = (asset_event.extra or {}).get("payload")
        note = payload.get("windsock") if isinstance(payload, dict) else None
        if isinstance(note, dict):
            reach[note["watcher"]] = max(reach.get(note["watcher"], 0), int(note["up_to"]))
    return reach


def run_link(dag_id: str, run_id: str) -> str:
    """The run's page in Airflow."""
    from urllib.parse import quote

    from airflow.configuration import conf

    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}/dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}"


def failure(dag_id: str, run_id: str) -> str:
    """What a dead letter says of the run that failed with it."""
    return f"run {run_id} of Dag {dag_id} failed: {run_link(dag_id, run_id)}"
