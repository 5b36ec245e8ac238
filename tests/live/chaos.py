"""The kill test: events flow in while processes are killed at random; nothing may be lost or doubled.

``tests/live/test_kill.py`` runs it for a minute, ``make soak`` for as long as you like.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import msgspec
import psycopg

from live.field import Field
from windsock.log import LogUnavailable
from windsock.log.records import EventQuery
from windsock.testing.airflow_api import ApiError

DAGS = ("chaos_hooks", "chaos_files")

BUSY = "airflow worker -- (?!LocalExecutor: <idle>)"
"""Workers that run a task, and their tasks. An idle worker of the LocalExecutor waits while it holds the lock
of its queue; killed, it leaves the lock locked, and no task starts until the scheduler is started anew."""

STUCK_SECONDS = 60.0
"""If nothing moves for so long the scheduler is started anew, as somebody on call would; it is counted."""


class Report(msgspec.Struct):
    """What the kill test counted."""

    seconds: float
    kills: dict[str, int]
    sent: int
    logged: int
    lost: int
    twice: int
    """Events that are in the log more than once."""
    runs: int
    done: int
    dead: int
    unsettled: int
    repeated: int
    """Events that more than one successful run had."""
    helped: int
    """How often Airflow's executor was stuck and the scheduler was started anew by hand."""

    @property
    def clean(self) -> bool:
        """Whether nothing was lost or doubled, and everything ended."""
        return not (self.lost or self.twice or self.unsettled or self.repeated)


@dataclass
class Senders:
    """Two senders, as the world has them: one drops files, one calls a webhook until it is accepted."""

    target: Field
    per_second: float
    hooks: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Senders:
        self._threads = [threading.Thread(target=self._send_hooks), threading.Thread(target=self._drop_files)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _drop_files(self) -> None:
        folder = self.target.inbox / "chaos"
        while not self._stop.wait(1 / self.per_second):
            name = f"{len(self.files)}.json"
            draft = folder / f".{name}.tmp"
            draft.write_text(name)
            draft.rename(folder / name)
            self.files.append(name)

    def _send_hooks(self) -> None:
        while not self._stop.wait(1 / self.per_second):
            delivery = f"hook-{len(self.hooks)}"
            self.hooks.append(delivery)
            self._until_accepted(delivery)

    def _until_accepted(self, delivery: str) -> None:
        """A sender repeats what it has no answer for: the delivery id makes that harmless."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                answer = self.target.post("chaos-hooks", {"id": delivery}, **{"Idempotency-Key": delivery})
                if answer.status_code in (200, 202):
                    return
            time.sleep(0.2)
        raise TimeoutError(f"{delivery} was not accepted for two minutes")


def kill_everything(target: Field, *, seconds: float, per_second: float = 5.0, seed: int = 0) -> Report:
    """Send for so many seconds, killing all the while; then wait for quiet and count."""
    stack, chance = target.stack, random.Random(seed)
    kills: dict[str, Callable[[], None]] = {
        "trigger runner": lambda: _kill_children(target, "triggerer", ""),
        "triggerer": lambda: _kill(target, "triggerer"),
        "scheduler": lambda: _kill(target, "scheduler"),
        "api-server": lambda: _kill(target, "api-server"),
        "workers": lambda: _kill_children(target, "scheduler", BUSY),
        "database connections": lambda: _cut_connections(target),
    }
    for dag_id in DAGS:
        stack.wait_for(target.subscribed(dag_id), 120, f"the subscription of {dag_id}")
    counts = dict.fromkeys(kills, 0)
    started = time.monotonic()
    with Senders(target, per_second) as senders:
        while time.monotonic() - started < seconds or min(counts.values()) == 0:
            for name in chance.sample(sorted(kills), len(kills)):
                time.sleep(chance.uniform(0.5, 2.0))
                kills[name]()
                counts[name] += 1
                _revive(target)
    rest = Rest(target, len(senders.hooks), len(senders.files))
    stack.wait_for(rest.quiet, 300, "quiet", every=1.0)
    return _count(target, senders, counts, time.monotonic() - started, rest.helped)


def _kill(target: Field, component: str) -> None:
    if target.stack.alive(component):
        target.stack.kill(component, group=True)


def _kill_children(target: Field, component: str, match: str) -> None:
    if target.stack.alive(component):
        target.stack.kill_children(component, match)


def _cut_connections(target: Field) -> None:
    with psycopg.connect(target.postgres.url("postgres"), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def _revive(target: Field) -> None:
    """Start what is down, as systemd or Kubernetes would."""
    for component in target.stack.components:
        if not target.stack.alive(component):
            target.stack.restart(component, wait=component == "api-server")


@dataclass
class Rest:
    """Waits for everything that was sent to be settled."""

    target: Field
    hooks: int
    files: int
    helped: int = 0
    _last: object = None
    _moved_at: float = field(default_factory=time.monotonic)

    def quiet(self) -> bool:
        """Whether all is logged and nothing is pending or claimed; helps a stuck executor."""
        _revive(self.target)
        with contextlib.suppress(LogUnavailable, ApiError):
            logged = {health.watcher: health.logged for health in self.target.log.health()}
            places = [self.target.log.subscriptions(dag_id=dag_id)[0] for dag_id in DAGS]
            self._help_if_stuck((logged, places))
            complete = logged["chaos-hooks"] >= self.hooks and logged["chaos-files"] >= self.files
            return complete and not any(place.pending or place.claimed for place in places)
        return False

    def _help_if_stuck(self, state: object) -> None:
        if state != self._last:
            self._last, self._moved_at = state, time.monotonic()
        elif time.monotonic() - self._moved_at > STUCK_SECONDS:
            self.helped += 1
            self._moved_at = time.monotonic()
            self.target.stack.restart("scheduler")


def _count(target: Field, senders: Senders, kills: dict[str, int], seconds: float, helped: int) -> Report:
    hooks = target.log.events(EventQuery(watcher="chaos-hooks", limit=100_000))
    files = target.log.events(EventQuery(watcher="chaos-files", limit=100_000))
    logged = [record.event.id for record in hooks] + [record.event.subject for record in files]
    sent = set(senders.hooks) | set(senders.files)
    states = [record.state for record in [*hooks, *files]]
    had = target.times(DAGS[0]) + target.times(DAGS[1])
    return Report(
        seconds=round(seconds, 1),
        kills=kills,
        sent=len(sent),
        logged=len(logged),
        lost=len(sent - set(logged)),
        twice=len(logged) - len(set(logged)),
        runs=sum(len(target.stack.api.runs(dag_id)) for dag_id in DAGS),
        done=states.count("done"),
        dead=states.count("dead"),
        unsettled=len(states) - states.count("done") - states.count("dead"),
        repeated=sum(1 for count in had.values() if count > 1),
        helped=helped,
    )
