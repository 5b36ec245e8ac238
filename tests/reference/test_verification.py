"""The verification can fail: each kind of trouble that it looks for is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windsock.testing import verify as verification
from windsock.testing.airflow_api import ImportFailure
from windsock.testing.library import Library
from windsock.testing.postgres import PostgresServer
from windsock.testing.scenarios import Runs, Scenario, Unmet, load_scenarios
from windsock.testing.stack import StackTimeout
from windsock.testing.stage import Stage, World

REFERENCE = Path(__file__).parents[2] / "reference"
NAME = "117_01_01_watcher_basics"


@dataclass
class FakeStage:
    """A stage on which nothing runs: it tells what it is given."""

    scenario: Scenario
    runs: dict[str, list[str]]
    places: list[Any] = field(default_factory=list)
    logged: tuple[int, int] = (1, 0)
    notes: list[str] = field(default_factory=list)

    @property
    def log(self) -> Any:
        """The Dags' places in the log."""
        return SimpleNamespace(subscriptions=lambda *, dag_id: self.places)

    def states(self, dag_id: str) -> list[str]:
        """The states of the Dag's runs."""
        return self.runs.get(dag_id, [])

    def counted(self) -> tuple[int, int]:
        """Events and dead letters."""
        return self.logged

    def wait(self, *_: Any) -> None:
        """Everything is there at once."""

    def ready(self, dag_id: str) -> bool:
        """As is every Dag."""
        return True

    def over(self) -> bool:
        """And nothing is under way."""
        return True


def scenario(**changes: Any) -> Scenario:
    """One event, one good run."""
    options: dict[str, Any] = {"play": lambda stage: None, "events": 1, "runs": Runs(1, 1)}
    return Scenario(name=NAME, **{**options, **changes})


def problems(stage: FakeStage) -> list[str]:
    """What the verification finds wrong with it."""
    return verification._result(cast(Stage, stage), 1.0, []).problems


@pytest.mark.parametrize(
    ("runs", "success", "failed", "met"),
    [
        (Runs(1, 2), 1, 0, True),
        (Runs(1, 2), 2, 0, True),
        (Runs(1, 2), 0, 0, False),
        (Runs(1, 2), 3, 0, False),
        (Runs(1), 30, 0, True),
        (Runs(1, 2), 1, 1, False),
        (Runs(1, 2, failed=1), 1, 1, True),
        (Runs(1, 2, failed=1), 1, 0, False),
        (Runs(0, 0, failed=1), 0, 1, True),
    ],
)
def test_runs_are_met_only_by_what_they_say(runs: Runs, success: int, failed: int, met: bool) -> None:
    """Too few, too many and unexpectedly failed or well-ended runs are all noticed."""
    assert runs.met(success, failed) is met


def test_runs_are_told_in_words() -> None:
    """The table says what was expected."""
    expected = [str(runs) for runs in (Runs(1), Runs(2, 2), Runs(1, 3), Runs(1, 3, failed=2))]
    assert expected == ["≥ 1 ok", "2 ok", "1-3 ok", "1-3 ok, 2 failed"]


def test_a_good_outcome_has_no_problem() -> None:
    """One event, one run, nothing left."""
    assert problems(FakeStage(scenario(), {NAME: ["success"]})) == []


def test_an_unexpected_state_is_a_problem() -> None:
    """A failed, a missing and an unfinished run are named with the Dag."""
    for states in (["failed"], [], ["success", "running"]):
        (problem,) = problems(FakeStage(scenario(), {NAME: states}))
        assert NAME in problem


def test_a_dag_must_end_well() -> None:
    """A failed run that is expected must not be the last one."""
    expected = scenario(runs=Runs(1, 1, failed=1))
    assert problems(FakeStage(expected, {NAME: ["failed", "success"]})) == []
    (problem,) = problems(FakeStage(expected, {NAME: ["success", "failed"]}))
    assert "last run" in problem


def test_the_other_dags_of_the_file_count_too() -> None:
    """A second Dag that did not run is a problem."""
    stage = FakeStage(scenario(others={"_second": Runs(1)}), {NAME: ["success"]})
    (problem,) = problems(stage)
    assert f"{NAME}_second" in problem


def test_a_stranded_event_is_a_problem() -> None:
    """An event that is pending or claimed at the end is named with its watcher."""
    for pending, claimed in ((1, 0), (0, 1)):
        place = SimpleNamespace(watcher="orders", pending=pending, claimed=claimed)
        (problem,) = problems(FakeStage(scenario(), {NAME: ["success"]}, [place]))
        assert problem.startswith("stranded")
        assert "orders" in problem


def test_a_lost_event_and_a_dead_letter_are_problems() -> None:
    """The log must hold as many events and dead letters as the scenario says."""
    (lost,) = problems(FakeStage(scenario(), {NAME: ["success"]}, logged=(0, 0)))
    assert "expected 1 events" in lost
    (dead,) = problems(FakeStage(scenario(), {NAME: ["success"]}, logged=(1, 1)))
    assert "expected 0 dead letters" in dead


def test_a_scenario_that_breaks_is_a_problem_of_its_own() -> None:
    """An unmet expectation and an error become problems; other scenarios go on."""

    def unmet(stage: Stage) -> None:
        raise Unmet("the moon is not blue")

    def broken(stage: Stage) -> None:
        raise KeyError("moon")

    stages = [FakeStage(scenario(play=play), {}) for play in (unmet, broken)]
    first, second = (verification._play(cast(Stage, stage)) for stage in stages)
    assert first == ["the moon is not blue"]
    assert "KeyError" in second[0]


def test_a_dag_without_a_scenario_is_a_problem(tmp_path: Path) -> None:
    """So are a scenario without a Dag and a file that no checklist names."""
    (tmp_path / "checklist.json").write_bytes((REFERENCE / "checklist.json").read_bytes())
    folder = tmp_path / "watchers_117"
    folder.mkdir()
    (folder / f"{NAME}.py").touch()
    (folder / "extra.py").touch()
    found = verification._gaps(Library(tmp_path), {"95_01_01_asset_producer": scenario()})
    assert found == [
        f"{NAME} has no scenario",
        "scenario 95_01_01_asset_producer has no Dag file",
        "extra.py is in no checklist",
    ]


def test_an_import_error_is_a_problem() -> None:
    """A Dag that Airflow cannot import is named, and does not make the others wait for ever."""
    library = Library(REFERENCE)
    scenarios, _ = load_scenarios(REFERENCE / "scenarios")
    good = [dag_id for name, each in scenarios.items() if name != NAME for dag_id in each.expected]
    failure = ImportFailure(filename=f"watchers_117/{NAME}.py", stack_trace="Traceback\nValueError: no")
    api = SimpleNamespace(
        import_errors=lambda: [failure], dags=lambda: [SimpleNamespace(dag_id=dag_id) for dag_id in good]
    )
    stack = SimpleNamespace(api=api, wait_for=lambda question, *_, **__: question() or pytest.fail("waits"))
    world = cast(World, SimpleNamespace(stack=stack))
    assert verification._load(world, library, scenarios) == [f"{NAME} cannot be imported: ValueError: no"]


def test_a_dag_that_airflow_does_not_find_is_a_problem() -> None:
    """A scenario may expect a Dag that its file does not have."""

    def wait_for(question: Any, *_: Any, **__: Any) -> None:
        assert not question()
        raise StackTimeout("waited in vain")

    api = SimpleNamespace(import_errors=list, dags=list)
    world = cast(World, SimpleNamespace(stack=SimpleNamespace(api=api, wait_for=wait_for)))
    found = verification._load(world, Library(REFERENCE), {NAME: scenario()})
    assert found == [f"Airflow finds no Dag {NAME}"]


def test_a_leftover_process_is_noticed() -> None:
    """A process that carries this verification's mark is found for as long as it lives."""
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        env={**os.environ, verification._MARK: "test-mark"},
    ) as child:
        assert [process.pid for process in verification._left_over("test-mark")] == [child.pid]
    assert verification._left_over("test-mark") == []


def test_an_unknown_name_fails_before_anything_is_started(tmp_path: Path) -> None:
    """Nothing is proved when nothing was played."""
    report = verification.verify(Library(REFERENCE), cast(PostgresServer, None), tmp_path, names=["117_99"])
    assert not report.ok
    assert "117_99" in report.problems[-1]


def test_a_dag_has_one_scenario(tmp_path: Path) -> None:
    """A second scenario for the same Dag is refused, with the file that has it."""
    text = """
from windsock.testing.scenarios import Runs, scenario

@scenario("a_b_c_d", events=1, runs=Runs(1))
def play(stage):
    pass
"""
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"two\.py: a_b_c_d"):
        load_scenarios(tmp_path)


def test_a_scenario_comes_with_the_services_of_its_file(tmp_path: Path) -> None:
    """Only what the played scenarios need is started."""
    scenarios, services = load_scenarios(REFERENCE / "scenarios")
    assert [maker.name for maker in services["117_01_04_event_vs_polling"]] == ["shop"]
    assert services[NAME] == []
    with services["117_01_04_event_vs_polling"][0].make(tmp_path) as shop:
        assert list(shop.env) == ["AIRFLOW_CONN_REFERENCE_SHOP_API"]
    assert scenarios[NAME].folder == "watcher_basics"
