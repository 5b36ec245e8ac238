"""The reference library, proved: what `make verify` does, once for all Dags."""

from __future__ import annotations

from pathlib import Path

import pytest

from windsock.testing.library import Library
from windsock.testing.postgres import PostgresServer
from windsock.testing.verify import Report, verify

pytestmark = pytest.mark.live

LIBRARY = Library(Path(__file__).parents[2] / "reference")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Airflow lives and where pictures go."""
    return tmp_path_factory.mktemp("reference")


@pytest.fixture(scope="module")
def report(folder: Path, postgres: PostgresServer) -> Report:
    """All scenarios, played side by side on one Airflow."""
    return verify(LIBRARY, postgres, folder)


def test_nothing_is_wrong_around_the_dags(report: Report) -> None:
    """No import error, no Dag without a scenario, no component that died, no process left over."""
    assert report.problems == []


@pytest.mark.parametrize("name", sorted(LIBRARY.written()))
def test_the_dag_does_what_it_shows(name: str, report: Report) -> None:
    """Its scenario came out as expected: events in, runs and their states, nothing stranded."""
    (result,) = [result for result in report.results if result.dag == name]
    assert result.problems == []


def test_the_comparison_is_measured(report: Report, folder: Path) -> None:
    """117.1.4 writes a table and a picture with the figures of this very run."""
    measured = folder / "pictures" / "watchers_117" / "117_01_04_event_vs_polling"
    table, picture = measured.with_suffix(".md").read_text(), measured.with_suffix(".svg").read_text()
    (result,) = [result for result in report.results if result.dag == "117_01_04_event_vs_polling"]
    (note,) = result.notes
    for line in note.splitlines()[3:]:
        label, *values = (cell.strip() for cell in line.strip("|").split("|"))
        assert line in table
        assert all(f">{word}</text>" in picture for word in (label, *values))
