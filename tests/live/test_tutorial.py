"""The tutorial, typed into a shell command by command, with the Airflow that it starts."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from docs.pages import ROOT, Typed, typed
from windsock.log import open_log
from windsock.testing.airflow_api import AirflowApi
from windsock.testing.processes import Child, free_port, tail

pytestmark = pytest.mark.live

TUTORIAL = ROOT / "docs" / "tutorial" / "README.md"
PATIENCE = 180.0

GIVEN = re.compile(r"\.venv\b|^pip install ")
"""Commands that the environment of this test stands for."""

LOOKS = re.compile(r"^windsock (status|events|dlq list)\b")
"""Commands that a reader repeats until they show what the page shows."""

ANY = (
    (re.compile(r"\d\d:\d\d:\d\d(…\S{4})?"), "TIME"),
    (re.compile(r"\d+ (s|min) ago"), "AGE"),
    (re.compile(r'"seq":\d+'), "SEQ"),
)
"""What differs from one reader to the next."""


class Terminal:
    """A shell that remembers its directory and variables from one command to the next."""

    def __init__(self, folder: Path, port: int) -> None:
        self._state = folder / "state.sh"
        self._state.write_text(f"cd {shlex.quote(str(folder))}\n")
        self.output = folder / "standalone.log"
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        self._env |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PORT": str(port),
            "PYTHONWARNINGS": "",
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
        }

    def run(self, command: str) -> str:
        """Run one command to its end; what it printed, errors included."""
        keep = f"{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} > {shlex.quote(str(self._state))}"
        done = subprocess.run(
            self._bash(f"{command}\n{keep}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.stdout

    def leave_running(self, command: str) -> Child:
        """Start a command that stays."""
        return Child(self._bash(f"exec {command}"), log=self.output, env=self._env)

    def _bash(self, script: str) -> list[str]:
        return ["bash", "-c", f". {shlex.quote(str(self._state))}\n{script}"]


class Reader:
    """Does what the page says, in its order."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.project = folder / "kites"
        self.terminal = Terminal(folder, self.port)
        self.airflow: Child | None = None

    def type(self, line: Typed) -> None:
        """Run a command and see that it prints what the page shows."""
        if GIVEN.search(line.command):
            return
        if line.command == "airflow standalone":
            self.airflow = self.terminal.leave_running(line.command)
        elif LOOKS.match(line.command):
            command = f"{line.command} --table"
            self.wait(lambda: self._shows(line, f"WINDSOCK_LOG=airflow/windsock.db {command}"), command)
            assert self._shows(line, command)  # as the page has it: it asks Airflow's configuration, slowly
        else:
            assert self._shows(line, line.command)

    def wait(self, question: Callable[[], object], what: str) -> None:
        """Ask until the answer is true."""
        deadline = time.monotonic() + PATIENCE
        answer: object = None
        while time.monotonic() < deadline:
            try:
                if answer := question():
                    return
            except (AssertionError, httpx.TransportError) as error:
                answer = error
            if self.airflow is not None and self.airflow.returncode is not None:
                break
            time.sleep(0.5)
        pytest.fail(f"waited in vain for {what}: {answer}\n{tail(self.terminal.output)}")

    def _shows(self, line: Typed, command: str) -> bool:
        printed = self.terminal.run(command)
        found = iter(essence(printed.splitlines()))
        for expected in essence(line.shown):
            assert expected in found, f"$ {command}\n{printed}\nwithout, or not in this order: {expected}"
        return True


def essence(lines: Sequence[str]) -> Iterator[list[str]]:
    """The rows of tables as their cells, and other lines, without what only draws or names a table."""
    for line in lines:
        for pattern, name in ANY:
            line = pattern.sub(name, line)
        if row := re.fullmatch("[│┃](.*)[│┃]", line.strip()):
            yield [cell.strip() for cell in re.split("[│┃]", row[1])]
        elif not re.match("[┏┡└]|Watchers in |Events in |Subscriptions", line):
            yield [line]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Somebody with an empty directory."""
    reader = Reader(tmp_path_factory.mktemp("tutorial"))
    yield reader
    if reader.airflow is not None:
        if reader.airflow.returncode is None:
            os.killpg(reader.airflow.pid, signal.SIGINT)  # Ctrl-C reaches every process of the terminal
        reader.airflow.end(10.0)


def test_the_tutorial_works_as_it_stands(reader: Reader) -> None:
    """Every command of the page, in order, prints what the page shows; in the end all events are settled."""
    lines = typed(TUTORIAL)
    for line in lines:
        reader.type(line)
    assert "airflow standalone" in [line.command for line in lines]

    with closing(AirflowApi(f"http://127.0.0.1:{reader.port}")) as api:
        reader.wait(lambda: all(run.finished for run in api.runs("~")), "every run to end")
        assert api.import_errors() == []
        states = {dag_id: [run.state for run in api.runs(dag_id)] for dag_id in ("add_up", "ship")}
    assert states["add_up"].count("failed") == 2
    assert (states["add_up"][-1], set(states["ship"])) == ("success", {"success"})

    with closing(open_log(f"sqlite:///{reader.project}/airflow/windsock.db")) as log:
        places = {place.dag_id: place for place in log.subscriptions()}
        letters = {letter.watcher: letter for letter in log.dead_letters()}
    assert {dag_id: (place.pending, place.claimed, place.dead) for dag_id, place in places.items()} == {
        "add_up": (0, 0, 1),
        "ship": (0, 0, 1),
    }
    assert (letters["reports"].category, letters["reports"].attempts) == ("poison", 2)
    assert letters["orders"].reason == "there is nothing to pack"
