"""Child processes end with everything they started, whatever happens to their parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from windsock.testing.processes import LOOPBACK, Child, free_port, tail, wait_gone

FAMILY = """
import subprocess, sys, time
nap = [sys.executable, "-c", "import time; time.sleep(600)"]
for new_session in (False, True):
    subprocess.Popen(nap, start_new_session=new_session)
print("ready", flush=True)
time.sleep(600)
"""

PARENT = f"""
import os, sys, time
from pathlib import Path
from windsock.testing.processes import Child
child = Child([sys.executable, "-c", {FAMILY!r}], log=Path(sys.argv[1]))
while "ready" not in Path(sys.argv[1]).read_text():
    time.sleep(0.01)
print(*(process.pid for process in child.members()), flush=True)
time.sleep(600)
"""


def until(predicate: Callable[[], object], timeout: float = 20.0) -> None:
    """Poll until true; fail after a deadline."""
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Child]:
    """A child with two children of its own, one of which left for another session."""
    log = tmp_path / "log"
    child = Child([sys.executable, "-c", FAMILY], log=log)
    until(lambda: "ready" in log.read_text())
    yield child
    child.end()


def test_members_are_all_descendants(family: Child) -> None:
    """The main process and its children are members, in its session or not."""
    assert len(family.members()) == 3
    assert family.pid not in {process.pid for process in family.offspring()}


def test_orphans_are_found_after_the_main_process_is_killed(family: Child) -> None:
    """Killing the main process leaves its offspring in the session at work, and it is still found."""
    family.kill()
    assert family.returncode == -signal.SIGKILL
    (orphan,) = [process for process in family.members() if os.getsid(process.pid) == family.pid]
    assert orphan.is_running()


def test_end_leaves_nobody(family: Child) -> None:
    """After `end` no process of the family runs, and to end it again is harmless."""
    everybody = family.members()
    family.end()
    assert wait_gone(everybody, timeout=0.0) == []
    family.end()


def test_nobody_survives_a_killed_parent(tmp_path: Path) -> None:
    """When the interpreter that started a child is killed with SIGKILL, the whole family follows."""
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        everybody = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(everybody) == 3
        parent.kill()
    assert wait_gone(everybody, timeout=20.0) == []


def test_a_busy_port_gives_way_to_the_next_one() -> None:
    """The preferred port is returned when it is free, a higher one when somebody listens there."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        busy = taken.getsockname()[1]
        assert busy < free_port(busy) < busy + 100
    assert free_port(busy) == busy


def test_tail_is_the_end_of_a_file(tmp_path: Path) -> None:
    """Only the last lines are returned, and a missing file is empty."""
    (tmp_path / "log").write_text("".join(f"line {n}\n" for n in range(5000)))
    assert tail(tmp_path / "log", 2) == "line 4998\nline 4999"
    assert tail(tmp_path / "nothing") == ""
