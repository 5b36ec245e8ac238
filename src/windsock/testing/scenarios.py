"""Scenarios: how a reference Dag is proved. Each makes the real thing happen and says what must come of it.

::

    @scenario("117_01_01_watcher_basics", events=2, runs=Runs(1, 2))
    def watcher_basics(stage: Stage) -> None:
        stage.drop("may.csv", "amount\\n12\\n")
        stage.drop("june.csv", "amount\\n30\\n")
        stage.wait(lambda: stage.returned("report") == [42], "the report")

Files in ``reference/scenarios`` hold them, one file per topic. What a scenario needs beside Airflow (a
broker, an HTTP server) is a service: it is started before Airflow and gives it environment variables.

::

    @service
    @contextmanager
    def shop(folder: Path) -> Iterator[Shop]:
        with Shop() as shop:
            yield shop      # has `env`, such as {"AIRFLOW_CONN_REFERENCE_SHOP": "http://…"}
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from windsock.testing.stage import Stage

__all__ = ["Runs", "Scenario", "Service", "ServiceMaker", "Unmet", "load_scenarios", "scenario", "service"]


class Unmet(AssertionError):
    """Something that a scenario expects did not come true; the message says what."""


@dataclass(frozen=True)
class Runs:
    """How many runs of a Dag must have ended well (at least, at most), and how many must have failed."""

    least: int
    most: int | None = None
    failed: int = 0

    def __str__(self) -> str:
        if self.most is None:
            good = f"≥ {self.least} ok"
        else:
            good = f"{self.least} ok" if self.least == self.most else f"{self.least}-{self.most} ok"
        return f"{good}, {self.failed} failed" if self.failed else good

    def reached(self, success: int, failed: int) -> bool:
        """Whether enough runs have ended."""
        return success >= self.least and failed >= self.failed

    def met(self, success: int, failed: int) -> bool:
        """Whether exactly what is expected has ended."""
        enough = self.reached(success, failed)
        return enough and failed == self.failed and (self.most is None or success <= self.most)


@dataclass(frozen=True)
class Scenario:
    """What happens, and what must come of it.

    ``name`` is the Dag file's name without its ending and the id of its first Dag; every other Dag of the
    file has that name with a suffix, the key in ``others``. ``events`` is how many the watchers of these Dags
    must have logged, ``dead`` how many dead letters there must be. Before Airflow starts, the folder
    ``<inbox>/<name without its number>`` is made, unless ``inbox`` is False. ``alone`` scenarios disturb
    their neighbours, or would be disturbed: they are played when all others are over.
    """

    name: str
    play: Callable[[Stage], None]
    events: int
    runs: Runs
    others: Mapping[str, Runs] = field(default_factory=dict)
    dead: int = 0
    inbox: bool = True
    alone: bool = False

    @property
    def folder(self) -> str:
        """The name of its folder in the inbox and the outbox."""
        return self.name.split("_", 3)[3]

    @property
    def expected(self) -> dict[str, Runs]:
        """The expected runs of every Dag of the file."""
        return {self.name: self.runs, **{self.name + suffix: runs for suffix, runs in self.others.items()}}


def scenario(
    name: str,
    *,
    events: int,
    runs: Runs,
    others: Mapping[str, Runs] | None = None,
    dead: int = 0,
    inbox: bool = True,
    alone: bool = False,
) -> Callable[[Callable[[Stage], None]], Scenario]:
    """Make a function the scenario of the reference Dag of that name; see :class:`Scenario`."""
    return lambda play: Scenario(name, play, events, runs, dict(others or {}), dead, inbox, alone)


class Service(Protocol):
    """A server that scenarios need, while it runs."""

    @property
    def env(self) -> Mapping[str, str]:
        """What Airflow has to know of it."""
        ...


@dataclass(frozen=True)
class ServiceMaker:
    """How a service is started, in a folder of its own, and stopped."""

    name: str
    make: Callable[[Path], AbstractContextManager[Service]]


def service(make: Callable[[Path], AbstractContextManager[Any]]) -> ServiceMaker:
    """Make a context manager the service of its name, for ``stage.service(name)``."""
    return ServiceMaker(make.__name__, make)


def load_scenarios(directory: Path) -> tuple[dict[str, Scenario], dict[str, list[ServiceMaker]]]:
    """The scenarios in the files of a directory, by name, and the services that go with each."""
    scenarios: dict[str, Scenario] = {}
    services: dict[str, list[ServiceMaker]] = {}
    for path in sorted(directory.glob("*.py")):
        values = vars(_load(path)).values()
        needed = [value for value in values if isinstance(value, ServiceMaker)]
        for found in (value for value in values if isinstance(value, Scenario)):
            if found.name in scenarios:
                raise ValueError(f"{path.name}: {found.name} has a scenario already, in another file")
            scenarios[found.name] = found
            services[found.name] = needed
    return scenarios, services


def _load(path: Path) -> ModuleType:
    name = f"windsock_reference_scenarios.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
