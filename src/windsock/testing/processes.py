"""Child processes that are never left behind: each in its own session, ended with all its offspring."""

from __future__ import annotations

import atexit
import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from windsock.testing import _guard

__all__ = ["Child", "free_port", "tail", "wait_gone"]

LOOPBACK = "127.0.0.1"
_given: set[int] = set()
"""Ports that were given out."""


class Child:
    """A running command, leader of its own session, with its output appended to a file.

    Signals of the terminal do not reach it. When this interpreter ends, in whatever way, so does the child
    with everything it started.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: int | None = None,
        group: int | None = None,
    ) -> None:
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
        self.pid = self._popen.pid
        self.started = time.time()
        self._leader = psutil.Process(self.pid)
        _guardian.add(self.pid)

    @property
    def returncode(self) -> int | None:
        """The main process's exit code (minus the signal that ended it), None while it runs."""
        return self._popen.poll()

    def members(self) -> list[psutil.Process]:
        """Every live process of this child: itself, its descendants, and orphans that it left."""
        self._popen.poll()
        return _guard.members(self._leader)

    def offspring(self) -> list[psutil.Process]:
        """The members without the main process."""
        return [process for process in self.members() if process.pid != self.pid]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the main process only; nothing happens if it has ended."""
        self._popen.send_signal(number)

    def wait(self, timeout: float) -> bool:
        """Wait for the main process to end; say whether it did."""
        try:
            self._popen.wait(max(timeout, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL the main process and wait until it is gone; its offspring is left as it is."""
        self._popen.kill()
        self._popen.wait()

    def end(self, timeout: float = 0.0) -> None:
        """Give the main process what is left of its time to end by itself, then SIGKILL all members."""
        self.wait(timeout)
        while left := self.members():
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            wait_gone(left, timeout=1.0)
        self._popen.wait()
        _guardian.remove(self.pid)


class _Guardian:
    """This interpreter's line to its guard process (see `windsock.testing._guard`), started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        atexit.register(self.close)

    def add(self, pid: int) -> None:
        """End this child when the interpreter ends."""
        self._tell(f"+{pid}")

    def remove(self, pid: int) -> None:
        """Forget a child that has ended, since its pid may come back as somebody else's."""
        self._tell(f"-{pid}")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", _guard.__file__],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Close the line: the guard ends what is left, and we wait for it to have done so."""
        with self._lock:
            if self._process is not None:
                self._process.communicate()
                self._process = None


_guardian = _Guardian()


def wait_gone(processes: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Wait until the processes have ended (a zombie has); return those that have not."""
    deadline = time.monotonic() + timeout
    left = list(processes)
    while left := [process for process in left if _lives(process)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.02)
    return left


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port(preferred: int | None = None) -> int:
    """A free loopback port: the preferred one or the next free one above it; any, without a preference.

    Any means one that the system gives to no outgoing connection, and that was not given out here before: the
    server that is to have it starts a moment later.
    """
    if preferred is None:
        candidates: Iterable[int] = (random.randrange(15_000, 32_000) for _ in range(1000))  # noqa: S311
    else:
        candidates = range(preferred, min(preferred + 100, 65536))
    for candidate in candidates:
        if preferred is None and candidate in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, candidate))
            except OSError:
                continue
        _given.add(candidate)
        return candidate
    raise OSError(f"no free port on {LOOPBACK} from {preferred or 15_000} on; name another one")


def tail(path: Path, lines: int = 40) -> str:
    """The last lines of a file that may be large, or nothing if it does not exist yet."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 400 * lines))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
