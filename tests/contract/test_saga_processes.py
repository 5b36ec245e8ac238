"""A saga whose process is killed: what is done is not done again, what is to be taken back is."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from windsock.log import Log, open_log

PROGRAM = Path(__file__).with_name("saga_process.py")
PATIENCE = 60.0
NEVER = "never"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A log of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/windsock.db"
    return str(request.getfixturevalue("postgres").url(f"s{uuid.uuid4().hex}"))


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    """The test's own handle on it."""
    with closing(open_log(url)) as log:
        yield log


def start(url: str, file: Path, fails: str, moment: str) -> subprocess.Popen[str]:
    """A process that runs the saga up to a moment."""
    command = [sys.executable, "-W", "error", str(PROGRAM), url, str(file), fails, moment]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill_at(url: str, file: Path, fails: str, moment: str) -> None:
    """Kill -9 a process when it has come to that moment."""
    with start(url, file, fails, moment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{moment}\n"
        process.kill()


def finish(url: str, file: Path, fails: str) -> str:
    """Run it to its end; how it ended."""
    with start(url, file, fails, NEVER) as process:
        out, _ = process.communicate(timeout=PATIENCE)
    return out.strip()


def test_a_killed_saga_is_finished_by_the_next_process(url: str, log: Log, tmp_path: Path) -> None:
    """Killed inside one step and inside another: every other step was done once, in order."""
    file = tmp_path / "effects"
    kill_at(url, file, NEVER, "before charge")
    [half] = log.sagas(unfinished=True)
    assert {step.name: step.state for step in half.steps} == {"reserve": "done", "charge": "started"}
    kill_at(url, file, NEVER, "done pack")
    assert finish(url, file, NEVER) == "done"
    # The effect of `pack` was there when its process died, but nobody could know: it begins again.
    assert file.read_text().split() == ["reserve", "charge", "pack", "pack", "send"]
    assert log.sagas(unfinished=True) == []


def test_a_killed_compensation_is_finished_by_the_next_process(url: str, log: Log, tmp_path: Path) -> None:
    """It goes on backwards where it was, also though the failed step could be done by now."""
    file = tmp_path / "effects"
    kill_at(url, file, "send", "before refund")
    [half] = log.sagas(unfinished=True)
    assert (half.state, half.error) == (
        "compensating",
        "step 'send' failed: RuntimeError: send is impossible",
    )
    assert {step.name: step.state for step in half.steps} == {
        "reserve": "done",
        "charge": "undoing",
        "pack": "undone",
        "send": "failed",
    }
    assert finish(url, file, NEVER) == "compensated"
    assert file.read_text().split() == ["reserve", "charge", "pack", "unpack", "refund", "release"]
