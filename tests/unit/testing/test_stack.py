"""The stack's own decisions, without an Airflow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from windsock.testing.airflow_api import ApiError
from windsock.testing.airflow_env import database_address, environment
from windsock.testing.processes import Child
from windsock.testing.stack import AirflowStack, StackError, StackTimeout


class Sleepers(AirflowStack):
    """A stack whose components only sleep."""

    def _migrate(self) -> None: ...

    def _launch(self, component: str) -> None:
        nap = [sys.executable, "-c", "import time; time.sleep(600)"]
        self._running[component] = Child(nap, log=self.log(component))


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Sleepers]:
    """Two sleeping components under supervision."""
    components = ("scheduler", "triggerer-2")
    with Sleepers(tmp_path / "home", tmp_path / "dags", components=components, supervise=True) as stack:
        yield stack


def test_a_supervised_component_comes_back(sleepers: Sleepers) -> None:
    """A component that is killed is started again and counted; the others are left alone."""
    before, other = sleepers.pid("scheduler"), sleepers.pid("triggerer-2")
    sleepers.kill("scheduler")
    sleepers.wait_for(lambda: sleepers.restarts["scheduler"] == 1, 20, "the restart")
    assert sleepers.alive("scheduler")
    assert sleepers.pid("scheduler") != before
    assert sleepers.pid("triggerer-2") == other


def test_waiting_outlives_an_absent_server_but_not_a_refusal(sleepers: Sleepers) -> None:
    """No connection and 5xx mean "not yet"; any other error status is raised at once."""
    answers = iter([httpx.ConnectError("away"), ApiError("GET", "/x", 503, ""), None])

    def ask() -> bool:
        if error := next(answers):
            raise error
        return True

    assert sleepers.wait_for(ask, 10, every=0.0)

    def refused() -> bool:
        raise ApiError("GET", "/x", 404, "no such run")

    with pytest.raises(ApiError, match="404: no such run"):
        sleepers.wait_for(refused, 10)


def test_a_wait_in_vain_says_what_was_seen_last(sleepers: Sleepers) -> None:
    """The error names the wish, the last answer and each component's state."""
    sleepers.log("scheduler").write_text("a line of log\n")
    with pytest.raises(
        StackTimeout, match=r"for snow; the last answer was \[\]\n--- scheduler \(running\).*\na line"
    ):
        sleepers.wait_for(list, 0.0, "snow")


def test_mistakes_are_named(tmp_path: Path) -> None:
    """An unknown component, an unknown database and a stack that was not started are told apart."""
    with pytest.raises(ValueError, match="unknown component 'webserver'"):
        AirflowStack(tmp_path, tmp_path, components=["webserver"])
    with pytest.raises(ValueError, match="mysql://x"):
        AirflowStack(tmp_path, tmp_path, database="mysql://x")
    with pytest.raises(StackError, match="start"):
        AirflowStack(tmp_path, tmp_path).api.dags()
    with pytest.raises(StackError, match="not started"):
        AirflowStack(tmp_path, tmp_path).kill("scheduler")


def test_the_environment_is_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow settings and warning filters of the caller do not leak in; the keys stay the same."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_VAR_COLOUR", "red")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    env = environment(tmp_path / "home", tmp_path / "dags", "sqlite:////x", 1234)
    assert env["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW_VAR_COLOUR" not in env
    assert "PYTHONWARNINGS" not in env
    assert env["PYTHONPATH"] == "somewhere"
    again = environment(tmp_path / "home", tmp_path / "dags", "sqlite:////x", 1234)
    assert again["AIRFLOW__API_AUTH__JWT_SECRET"] == env["AIRFLOW__API_AUTH__JWT_SECRET"]


@pytest.mark.parametrize("given", ["postgres://u@h/d", "postgresql://u@h/d", "postgresql+psycopg2://u@h/d"])
def test_every_spelling_of_postgresql_uses_psycopg(given: str, tmp_path: Path) -> None:
    """Airflow is given the one driver that we install, for its asynchronous engine as well."""
    address = database_address(given, tmp_path)
    assert address == "postgresql+psycopg://u@h/d"
    env = environment(tmp_path, tmp_path, address, 1234)
    assert env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] == address
