"""A real Airflow for tests, the demo and the benchmark: every component a process of its own, easy to kill.

    with AirflowStack(tmp_path, dags) as stack:
        run = stack.api.trigger("hello")
        stack.kill("scheduler")
        stack.restart("scheduler")
        stack.wait_for(lambda: stack.api.run("hello", run.run_id).finished, what="the run to end")

It is Airflow as installed beside this interpreter, with the LocalExecutor and the SimpleAuthManager (everyone
is an administrator), all state under one directory, on loopback only.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import importlib.metadata
import logging
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx
import psutil

from windsock.testing.airflow_api import AirflowApi, ApiError
from windsock.testing.airflow_env import database_address, environment
from windsock.testing.processes import LOOPBACK, Child, free_port, tail, wait_gone

__all__ = ["COMPONENTS", "TASKS", "WORKERS", "AirflowStack", "StackError", "StackTimeout"]

T = TypeVar("T")
COMPONENTS = ("scheduler", "triggerer", "dag-processor", "api-server")
WORKERS = r"^airflow worker -- LocalExecutor: "
"""Command lines of the LocalExecutor's workers: `<idle>` or a task instance's id follows."""
TASKS = r"^airflow worker -- [0-9a-f-]{36}$"
"""Command lines of the processes in which tasks run, once they have begun."""

log = logging.getLogger("windsock.testing.stack")

_HEALTH = {"scheduler": "scheduler", "triggerer": "triggerer", "dag-processor": "dag_processor"}


class StackError(Exception):
    """Airflow did not start, or a component is not what it should be; the message ends with its log."""


class StackTimeout(StackError, TimeoutError):
    """Something did not happen in time; the message ends with the components' logs."""


class AirflowStack:
    """Airflow's components as child processes.

    `database` is "sqlite" (a file under `home`) or a PostgreSQL address. `config` holds environment variables
    that go on top of ours (`AIRFLOW__SECTION__OPTION`, or any other). `port` is a wish: the next free one is
    taken when it is busy. A component may run more than once, as `triggerer-2`. With `supervise`, a component
    that ends is started again, as systemd or Kubernetes would.
    """

    def __init__(
        self,
        home: Path,
        dags: Path,
        *,
        database: str = "sqlite",
        config: Mapping[str, str] | None = None,
        port: int | None = None,
        components: Sequence[str] = COMPONENTS,
        supervise: bool = False,
    ) -> None:
        for component in components:
            if _command(component) not in COMPONENTS:
                raise ValueError(
                    f"unknown component {component!r}: use {', '.join(COMPONENTS)}, or e.g. triggerer-2"
                )
        self.home = home.resolve()
        self.dags = dags.resolve()
        self.components = tuple(components)
        self.airflow_home = self.home / "airflow"
        self.restarts: Counter[str] = Counter()
        self.port = port
        self._config = dict(config or {})
        self._database = database_address(database, self.airflow_home)
        self._supervise = supervise
        self._running: dict[str, Child] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._api: AirflowApi | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address of the API server and its web pages, without a slash at the end."""
        return self.api.base_url

    @property
    def api(self) -> AirflowApi:
        """A client for this stack's REST API."""
        if self._api is None:
            raise StackError("Airflow has not been started: call start() first")
        return self._api

    @property
    def env(self) -> dict[str, str]:
        """The environment of the components, to run `python -m airflow …` or a script beside them."""
        if self.port is None:
            raise StackError("the port is not known before start()")
        return {**environment(self.airflow_home, self.dags, self._database, self.port), **self._config}

    def start(self, timeout: float = 120.0) -> None:
        """Create or reuse what is under `home`, start all components, wait until they are healthy."""
        for directory in (self.airflow_home, self.home / "logs", self.dags):
            directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port(self.port)
        self._api = AirflowApi(f"http://{LOOPBACK}:{self.port}")
        self._stopping.clear()
        try:
            self._migrate()
            for component in self.components:
                self._launch(component)
            if self._supervise:
                self._supervisor = threading.Thread(target=self._keep_alive, name="airflow-supervisor")
                self._supervisor.start()
            self.wait_healthy(timeout=timeout)
        except BaseException:
            self.stop(timeout=0.0)
            raise

    def stop(self, timeout: float = 10.0) -> None:
        """SIGTERM all components, SIGKILL what is left after `timeout` seconds. No process stays."""
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.join()
            self._supervisor = None
        if self._api is not None:
            self._api.close()
            self._api = None
        with self._lock:
            deadline = time.monotonic() + timeout
            for child in self._running.values():
                child.signal(signal.SIGTERM)
            for child in self._running.values():
                child.end(deadline - time.monotonic())
            self._running.clear()

    def alive(self, component: str) -> bool:
        """Whether the component's main process runs."""
        child = self._running.get(component)
        return child is not None and child.returncode is None

    def pid(self, component: str) -> int:
        """The main process's id, also after its end."""
        return self._child(component).pid

    def processes(self, component: str) -> list[psutil.Process]:
        """All live processes of a component: the main one, its descendants, orphans of a killed one."""
        return self._child(component).members()

    def kill(self, component: str, *, group: bool = False) -> None:
        """SIGKILL the main process, or with `group` everything that the component started, too.

        Orphans stay at work until `restart` or `stop`: the LocalExecutor's workers outlive their scheduler,
        go on with their tasks, and keep its database session open.
        """
        child = self._child(component)
        if group:
            child.end()
        else:
            child.kill()
        log.info("windsock.stack.killed component=%s group=%s", component, group)

    def children(self, component: str, match: str = "") -> list[psutil.Process]:
        """The component's child processes whose command line has a match for the regular expression.

        The triggerer's only child is its trigger runner. The scheduler's are the LocalExecutor's workers
        (`WORKERS`) and, as their children, the processes that run a task (`TASKS`).
        """
        found = []
        for process in self._child(component).offspring():
            with contextlib.suppress(psutil.NoSuchProcess):
                if re.search(match, " ".join(part for part in process.cmdline() if part)):
                    found.append(process)
        return found

    def kill_children(self, component: str, match: str = "") -> list[int]:
        """SIGKILL those children; return their ids."""
        victims = self.children(component, match)
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_gone(victims, timeout=5.0)
        return [process.pid for process in victims]

    def restart(self, component: str, *, wait: bool = True, timeout: float = 120.0) -> None:
        """Start a component again, after SIGTERM if it still runs; wait until Airflow says it is healthy.

        What is left of the old one is killed first, as systemd and Kubernetes do.
        """
        with self._lock:
            old = self._child(component)
            old.signal(signal.SIGTERM)
            old.end(10.0)
            self._launch(component)
        if wait:
            self.wait_healthy([component], timeout)

    def log(self, component: str) -> Path:
        """The file with the component's output."""
        return self.home / "logs" / f"{component}.log"

    def tail(self, component: str, n: int = 40) -> str:
        """The last lines of the component's output."""
        return tail(self.log(component), n)

    def wait_for(
        self,
        predicate: Callable[[], T],
        timeout: float = 60.0,
        what: str = "the condition",
        every: float = 0.2,
    ) -> T:
        """Ask until the answer is true, and return it; `StackTimeout` with all that helps if it never is.

        An API server that is away or answers 5xx counts as "not yet".
        """
        deadline = time.monotonic() + timeout
        last: object = None
        while True:
            try:
                if answer := predicate():
                    return answer
                last = answer
            except httpx.TransportError as error:
                last = error
            except ApiError as error:
                if error.status < 500:
                    raise
                last = error
            if time.monotonic() >= deadline:
                raise StackTimeout(
                    f"waited {timeout:g} s in vain for {what}; the last answer was {last!r}\n{self._report()}"
                )
            time.sleep(every)

    def wait_healthy(self, components: Sequence[str] | None = None, timeout: float = 120.0) -> None:
        """Wait until the API server answers and says that the components (all, unless named) are healthy.

        A heartbeat counts when it is younger than the process: an old one looks healthy for a while. Without
        an API server in the stack there is nobody to ask, and nothing is awaited.
        """
        components = self.components if components is None else components
        if "api-server" not in self.components:
            return
        if "api-server" in components:
            self.wait_for(self.api.warm_up, timeout, "the API server to answer")
        expected = {
            part: self._child(name).started for name in components if (part := _HEALTH.get(_command(name)))
        }

        def healthy() -> bool:
            for name in components:
                if not self.alive(name) and not self._supervise:
                    code = self._child(name).returncode
                    raise StackError(f"{name} ended with {code}; its output ends with:\n{self.tail(name)}")
            health = self.api.health()
            for part, started in expected.items():
                heartbeat = health[part].get(f"latest_{part}_heartbeat")
                if health[part].get("status") != "healthy" or heartbeat is None:
                    return False
                if dt.datetime.fromisoformat(heartbeat).timestamp() < started:
                    return False
            return True

        self.wait_for(healthy, timeout, f"{', '.join(components)} to be healthy")

    def _child(self, component: str) -> Child:
        try:
            return self._running[component]
        except KeyError:
            raise StackError(f"{component!r} is not part of this stack, or it was not started") from None

    def _launch(self, component: str) -> None:
        options = {"scheduler": ["--skip-serve-logs"], "triggerer": ["--skip-serve-logs"]}
        command = _command(component)
        self._running[component] = Child(
            [sys.executable, "-m", "airflow", command, *options.get(command, ())],
            log=self.log(component),
            env=self.env,
            cwd=self.home,
        )

    def _migrate(self) -> None:
        """Create or upgrade Airflow's tables, unless this home did so for this database and version."""
        marker = self.home / "migrated"
        state = f"{importlib.metadata.version('apache-airflow-core')} {self._database}"
        fingerprint = hashlib.sha256(state.encode()).hexdigest()
        if marker.is_file() and marker.read_text() == fingerprint:
            return
        migration = Child(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            log=self.log("migrate"),
            env=self.env,
            cwd=self.home,
        )
        migration.end(timeout=300.0)
        if migration.returncode != 0:
            raise StackError(
                f"`airflow db migrate` ended with {migration.returncode}; its output ends with:\n"
                f"{self.tail('migrate')}"
            )
        marker.write_text(fingerprint)

    def _keep_alive(self) -> None:
        """Start again what ended: at once if it lived a while, after growing pauses if it keeps ending."""
        again: dict[str, float] = {}
        short_lives: Counter[str] = Counter()
        while not self._stopping.wait(0.2):
            for component in self.components:
                with self._lock:
                    if self._stopping.is_set() or self.alive(component):
                        continue
                    now = time.time()
                    if component not in again:
                        long_life = now - self._child(component).started > 30.0
                        short_lives[component] = 0 if long_life else short_lives[component] + 1
                        again[component] = now + (0 if long_life else min(2 ** short_lives[component], 30))
                    if now < again[component]:
                        continue
                    del again[component]
                    code = self._child(component).returncode
                    self._child(component).end()
                    self._launch(component)
                    self.restarts[component] += 1
                log.warning("windsock.stack.restarted component=%s exit=%s", component, code)

    def _report(self) -> str:
        """What every component is up to, for a failure's message."""
        parts = []
        for component in self.components:
            child = self._running.get(component)
            code = None if child is None else child.returncode
            state = "not started" if child is None else "running" if code is None else f"ended with {code}"
            parts.append(f"--- {component} ({state}), {self.log(component)}\n{self.tail(component, 25)}")
        return "\n".join(parts)


def _command(component: str) -> str:
    return re.sub(r"-\d+$", "", component)
