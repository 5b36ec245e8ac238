"""One Airflow for all live tests that do not break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live.field import Field, open_field
from windsock.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def field(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Field]:
    """A real Airflow with the Dags of ``tests/live/dags``."""
    with open_field(tmp_path_factory.mktemp("field"), postgres, "live") as field:
        yield field
