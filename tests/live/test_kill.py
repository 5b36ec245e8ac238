"""Nothing is lost when any process is killed."""

from __future__ import annotations

import pytest

from live.chaos import kill_everything
from live.field import open_field
from windsock.testing.postgres import PostgresServer

pytestmark = pytest.mark.live


def test_kill_everything_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every process and connection is killed at random while events flow in: 0 lost, 0 twice, all settled."""
    with open_field(tmp_path_factory.mktemp("kill"), postgres, "kill") as field:
        report = kill_everything(field, seconds=45)
    with capsys.disabled():
        print(f"\nkill test: {report}")
    assert report.clean, report
    assert report.sent > 0
    assert report.done == report.logged
