"""A log of its own for each test of the Airflow room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windsock.airflow import settings
from windsock.log import Log


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """The log that ``settings.get_log()`` gives during the test."""
    monkeypatch.setenv("AIRFLOW__WINDSOCK__LOG_URL", f"sqlite:///{tmp_path}/windsock.db")
    log = settings.get_log()
    yield log
    log.close()
    settings.forget_log()
