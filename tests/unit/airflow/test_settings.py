"""Where the log is, as Airflow's configuration says."""

from __future__ import annotations

import os

import pytest

from windsock.airflow import settings
from windsock.log import Log, LogUnavailable
from windsock.spec import SpecError


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AIRFLOW__WINDSOCK__")]:
        monkeypatch.delenv(name)


def test_by_default_a_file_in_airflow_home() -> None:
    """With nothing configured the log is a SQLite file beside Airflow's own."""
    assert settings.log_url().startswith("sqlite:///")
    assert settings.log_url().endswith("/windsock.db")


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ("postgresql://ann:s%40crt@db:5433/events", "postgresql://ann:s%40crt@db:5433/events"),
        ('{"conn_type": "windsock", "host": "db", "schema": "events"}', "postgresql://db/events"),
        ('{"conn_type": "sqlite", "host": "/data/log.db"}', "sqlite:////data/log.db"),
    ],
)
def test_by_a_connection(monkeypatch: pytest.MonkeyPatch, connection: str, url: str) -> None:
    """A Connection names the database; its password survives special characters."""
    monkeypatch.setenv("AIRFLOW__WINDSOCK__LOG_CONN_ID", "event_log")
    monkeypatch.setenv("AIRFLOW_CONN_EVENT_LOG", connection)
    assert settings.log_url() == url


def test_a_missing_connection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which option names which Connection."""
    monkeypatch.setenv("AIRFLOW__WINDSOCK__LOG_CONN_ID", "nowhere")
    with pytest.raises(LogUnavailable, match="log_conn_id = nowhere"):
        settings.log_url()


def test_one_log_per_process(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same log is given again; after a fork a new one is opened."""
    assert settings.get_log() is log
    monkeypatch.setattr(os, "getpid", lambda: -1)
    other = settings.get_log()
    assert other is not log
    other.close()


@pytest.mark.parametrize(
    ("high", "low", "marks"), [("", "", (0, 0)), ("1000", "", (1000, 500)), ("1000", "10", (1000, 10))]
)
def test_water_marks_of_all_watchers(
    monkeypatch: pytest.MonkeyPatch, high: str, low: str, marks: tuple[int, int]
) -> None:
    """There is no limit in all unless one is set; the low mark is half of it by default."""
    for name, value in (("HIGH", high), ("LOW", low)):
        if value:
            monkeypatch.setenv(f"AIRFLOW__WINDSOCK__{name}_WATER_TOTAL", value)
    assert settings.water_total() == marks


def test_water_marks_the_wrong_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A low mark above the high one is refused with both values."""
    monkeypatch.setenv("AIRFLOW__WINDSOCK__HIGH_WATER_TOTAL", "10")
    monkeypatch.setenv("AIRFLOW__WINDSOCK__LOW_WATER_TOTAL", "11")
    with pytest.raises(SpecError, match="low_water_total = 11 must be between 0 and high_water_total = 10"):
        settings.water_total()
