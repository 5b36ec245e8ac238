"""Live verification of the reference library: every Dag, on a real Airflow, with the real thing happening.

    make verify                          # all of them
    make verify ARGS="117_01_01 95_01"   # those whose name begins so
    make verify ARGS="--json"            # for machines

PostgreSQL, the services that the scenarios need and Airflow (scheduler, triggerer, Dag processor, API server,
LocalExecutor) are started, all reference Dags are loaded, and the scenarios are played side by side. It fails
on an import error, a Dag without a scenario, an unexpected outcome, a stranded event, a component that died
and a process that is left over.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from windsock.log import open_log
from windsock.testing.library import Library
from windsock.testing.postgres import PostgresServer, Unavailable
from windsock.testing.scenarios import Scenario, ServiceMaker, Unmet, load_scenarios
from windsock.testing.stack import AirflowStack, StackError, StackTimeout
from windsock.testing.stage import Stage, World

__all__ = ["Outcome", "Report", "Result", "verify"]

_MARK = "WINDSOCK_VERIFY"
_AT_ONCE = 12
_LOADING = 120.0
_ENDING = 120.0
_CONFIG = {
    "AIRFLOW__CORE__PARALLELISM": "8",
    # Many files on few cores: they are parsed once, and again when a scenario asks.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": "600",
}


class Outcome(msgspec.Struct, frozen=True):
    """The runs of one Dag."""

    dag: str
    runs: int
    expected: str
    actual: str


class Result(msgspec.Struct, frozen=True):
    """What became of one reference Dag, and of the others in its file."""

    dag: str
    events: int
    """Events that its watchers logged."""
    seconds: float
    outcomes: list[Outcome]
    problems: list[str]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether everything came out as expected."""
        return not self.problems


class Report(msgspec.Struct, frozen=True):
    """What became of all of them. `problems` are those that belong to no single Dag."""

    results: list[Result]
    problems: list[str]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.problems and all(result.ok for result in self.results)


class Watching(Protocol):
    """Somebody who is told how it goes."""

    def __call__(self, what: str, *, done: int = 0) -> None:
        """So many more scenarios are over; this is being done now."""


def verify(
    library: Library,
    postgres: PostgresServer,
    folder: Path,
    *,
    names: Sequence[str] = (),
    pictures: Path | None = None,
    tell: Watching = lambda what, *, done=0: None,
) -> Report:
    """Play the scenarios of the reference Dags whose name begins with one of `names`, or of all of them."""
    began = time.monotonic()
    scenarios, services = load_scenarios(library.directory / "scenarios")
    problems = _gaps(library, scenarios)
    chosen = [scenario for name, scenario in scenarios.items() if _wanted(name, names)]
    if not chosen:
        problems.append(f"no reference Dag is called {', '.join(names)}…")
        return Report([], problems, round(time.monotonic() - began, 1))
    makers = [maker for scenario in chosen for maker in services[scenario.name]]
    all_of_them = list(scenarios.values())
    mark = secrets.token_hex(8)
    try:
        with _world(library, postgres, folder, pictures, all_of_them, makers, mark, tell) as world:
            tell("loading the Dags")
            problems += _load(world, library, scenarios)
            results = _play_all(world, chosen, tell)
            died = [part for part in world.stack.components if not world.stack.alive(part)]
            problems += [f"the {part} died: see {world.stack.log(part)}" for part in died]
            tell("stopping Airflow")
    except StackError as error:
        return Report([], [*problems, str(error)], round(time.monotonic() - began, 1))
    problems += [f"process {process.pid} is left over: {process.name()}" for process in _left_over(mark)]
    return Report(results, problems, round(time.monotonic() - began, 1))


def _gaps(library: Library, scenarios: Mapping[str, Scenario]) -> list[str]:
    """What does not fit together, before anything is started."""
    written = library.written()
    gaps = [f"{name} has no scenario" for name in written if name not in scenarios]
    gaps += [f"scenario {name} has no Dag file" for name in scenarios if name not in written]
    return gaps + [f"{path.name} is in no checklist" for path in library.strays()]


def _wanted(name: str, names: Sequence[str]) -> bool:
    return not names or any(name.startswith(wanted.removesuffix(".py")) for wanted in names)


@contextmanager
def _world(
    library: Library,
    postgres: PostgresServer,
    folder: Path,
    pictures: Path | None,
    scenarios: Sequence[Scenario],
    makers: Sequence[ServiceMaker],
    mark: str,
    tell: Watching,
) -> Iterator[World]:
    """Services, then Airflow; stopped in the opposite order."""
    log_url, database = postgres.url("reference_windsock"), postgres.url("reference_airflow")
    secret = secrets.token_hex(16)
    for part in ("inbox", "outbox"):
        for scenario in scenarios:
            if scenario.inbox or part == "outbox":
                (folder / part / scenario.folder).mkdir(parents=True, exist_ok=True)
    config = {
        **_CONFIG,
        _MARK: mark,
        "AIRFLOW__WINDSOCK__LOG_URL": log_url,
        "AIRFLOW_CONN_REFERENCE_SHOP": json.dumps({"conn_type": "windsock_webhook", "password": secret}),
        "WINDSOCK_REFERENCE_INBOX": str(folder / "inbox"),
        "WINDSOCK_REFERENCE_OUTBOX": str(folder / "outbox"),
    }
    with ExitStack() as open_things:
        running: dict[str, Any] = {}
        for maker in makers:
            if maker.name not in running:
                tell(f"starting {maker.name}")
                running[maker.name] = open_things.enter_context(maker.make(folder / maker.name))
                config |= running[maker.name].env
        tell("starting Airflow")
        stack = AirflowStack(folder / "stack", library.directory, database=database, config=config)
        open_things.enter_context(stack)
        log = open_log(log_url)
        open_things.callback(log.close)
        pictures = pictures or folder / "pictures"
        yield World(stack, log, folder, pictures, secret, running)


def _load(world: World, library: Library, scenarios: Mapping[str, Scenario]) -> list[str]:
    """Wait until Airflow has parsed every reference Dag; which of them it could not, and why."""
    wanted = {
        dag_id for name in library.written() if name in scenarios for dag_id in scenarios[name].expected
    }
    errors: dict[str, str] = {}
    missing: set[str] = set()

    def loaded() -> bool:
        for failure in world.stack.api.import_errors():
            name = Path(failure.filename or "?").stem
            last_line = (failure.stack_trace or "").strip().splitlines()[-1:]
            errors[name] = f"{name} cannot be imported: {' '.join(last_line)}"
        parsed = {dag.dag_id for dag in world.stack.api.dags()}
        missing.clear()
        missing.update(dag_id for dag_id in wanted - parsed if not dag_id.startswith(tuple(errors)))
        return not missing

    try:
        world.stack.wait_for(loaded, _LOADING + 2 * len(wanted), "the reference Dags to be parsed", every=0.5)
    except StackTimeout:
        return [*errors.values(), *(f"Airflow finds no Dag {dag_id}" for dag_id in sorted(missing))]
    return list(errors.values())


def _play_all(world: World, scenarios: Sequence[Scenario], tell: Watching) -> list[Result]:
    """Play the scenarios side by side, then those that want to be alone; look at the outcome last of all."""
    together = [scenario for scenario in scenarios if not scenario.alone]
    tell(f"playing {len(together)} scenarios")
    stages = {scenario.name: Stage(world, scenario) for scenario in scenarios}
    played: dict[str, tuple[float, list[str]]] = {}

    def play(scenario: Scenario) -> None:
        began = time.monotonic()
        problems = _play(stages[scenario.name])
        played[scenario.name] = time.monotonic() - began, problems
        tell(scenario.name, done=1)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="scenario") as pool:
        list(pool.map(play, together))
    for scenario in scenarios:
        if scenario.alone:
            play(scenario)
    return [_result(stages[name], *played[name]) for name in sorted(played)]


def _play(stage: Stage) -> list[str]:
    """Make it happen, and wait until its runs have ended and nothing is left to do; what went wrong."""
    try:
        for dag_id in stage.scenario.expected:
            stage.wait(partial(stage.ready, dag_id), f"{dag_id} to have its place in the log")
        stage.scenario.play(stage)
        stage.wait(stage.over, "the runs to end and every event to be settled", _ENDING)
    except Unmet as unmet:
        return [str(unmet)]
    except Exception as error:  # noqa: BLE001 - one broken scenario must not hide the others' results
        return [f"the scenario broke: {type(error).__name__}: {error}"]
    return []


def _result(stage: Stage, seconds: float, problems: list[str]) -> Result:
    scenario = stage.scenario
    problems = list(problems)
    outcomes = []
    for dag_id, runs in scenario.expected.items():
        ended = stage.states(dag_id)
        states = Counter(ended)
        good, failed = states["success"], states["failed"]
        unfinished = states.total() - good - failed
        said = [f"{good} ok", failed and f"{failed} failed", unfinished and f"{unfinished} unfinished"]
        outcome = Outcome(dag_id, states.total(), str(runs), ", ".join(part for part in said if part))
        outcomes.append(outcome)
        if unfinished or not runs.met(good, failed):
            problems.append(f"runs of {dag_id}: expected {outcome.expected}, got {outcome.actual}")
        elif runs.least and ended[-1] != "success":
            problems.append(f"the last run of {dag_id} did not end well")
        problems += [
            f"stranded: {dag_id} has {place.pending} pending and {place.claimed} claimed events of watcher"
            f" {place.watcher}"
            for place in stage.log.subscriptions(dag_id=dag_id)
            if place.pending or place.claimed
        ]
    events, dead = stage.counted()
    if events != scenario.events:
        problems.append(f"expected {scenario.events} events in the log, found {events}")
    if dead != scenario.dead:
        problems.append(f"expected {scenario.dead} dead letters, found {dead}")
    return Result(scenario.name, events, round(seconds, 1), outcomes, problems, stage.notes)


def _left_over(mark: str) -> list[psutil.Process]:
    """Processes that were started for this verification and are still there."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # it ended while we looked, or is somebody else's
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command behind `make verify`."""
    parser = argparse.ArgumentParser(prog="make verify", description="Prove the reference Dags on Airflow.")
    parser.add_argument("names", nargs="*", metavar="DAG", help="how its name begins; all, if none is given")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--reference", type=Path, default=Path("reference"), help="the library's directory")
    parser.add_argument(
        "--pictures", type=Path, help="where measurements are written, if not beside the Dags"
    )
    options = parser.parse_args(arguments)
    library = Library(options.reference)
    pictures = options.pictures or library.directory
    folder = Path(tempfile.mkdtemp(prefix="windsock-verify-"))
    console = Console(stderr=True)
    try:
        with _progress(console, library, options.names) as tell, PostgresServer(durable=False) as postgres:
            report = verify(library, postgres, folder, names=options.names, pictures=pictures, tell=tell)
    except Unavailable as reason:
        console.print(f"nothing was verified: {reason}", style="red")
        return 1
    if options.json:
        sys.stdout.write(json.dumps({"ok": report.ok, **msgspec.to_builtins(report)}, indent=1) + "\n")
    else:
        _show(Console(width=None if sys.stdout.isatty() else 110), report)
    if report.ok:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"Airflow's files are kept in {folder}")
    return 0 if report.ok else 1


@contextmanager
def _progress(console: Console, library: Library, names: Sequence[str]) -> Iterator[Watching]:
    total = sum(1 for name in library.written() if _wanted(name, names))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting PostgreSQL", total=total)

        def tell(what: str, *, done: int = 0) -> None:
            progress.update(bar, description=what, advance=done)
            if done and not console.is_terminal:
                console.print(f"played {what}")

        yield tell


def _show(console: Console, report: Report) -> None:
    table = Table(title=f"{len(report.results)} reference Dags in {report.seconds:.0f} s")
    for column in ("Dag", "events in", "runs", "expected", "actual", "seconds", ""):
        right = column in ("events in", "runs", "seconds")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "Dag")
    for result in report.results:
        mark = "[green]ok[/]" if result.ok else "[red]wrong[/]"
        around = (str(result.events), f"{result.seconds:.1f}", mark)
        for each in result.outcomes:
            events, seconds, ok = around if each.dag == result.dag else ("", "", "")
            name = each.dag if each.dag == result.dag else f"  …{each.dag.removeprefix(result.dag)}"
            table.add_row(name, events, str(each.runs), each.expected, each.actual, seconds, ok)
    console.print(table)
    for result in report.results:
        for note in result.notes:
            console.print(note, markup=False, highlight=False)
        for problem in result.problems:
            console.print(f"{result.dag}: {problem}", style="red", markup=False, soft_wrap=True)
    for problem in report.problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
