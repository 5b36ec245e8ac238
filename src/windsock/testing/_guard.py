"""The test kit's last resort: a tiny process that outlives its parent just long enough to end its children.

The parent starts this file as a script and writes one line per child that it starts (`+pid`) or has ended
(`-pid`). When the pipe closes, because the parent ended in whatever way, `kill -9` included, everything that
still belongs to a registered child is killed. A pipe, rather than Linux' parent-death signal, since that one
is bound to the thread that forked, is dropped when a server changes its user, and stops at the first
generation.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable

import psutil


def members(leader: psutil.Process) -> list[psutil.Process]:
    """Every live process of the leader's session, and their descendants even if those left the session.

    It finds orphans too: the kernel keeps a dead leader's pid reserved while its session has a member. That
    is also why a *new* process under the leader's pid means that nobody is left.
    """
    if not leader.is_running() and psutil.pid_exists(leader.pid):
        return []
    inside: dict[int, psutil.Process] = {}
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            children.setdefault(process.ppid(), []).append(process)
            if os.getsid(process.pid) == leader.pid:
                inside[process.pid] = process
        except (psutil.Error, OSError):
            continue  # it ended while we looked, or is none of our business
    unvisited = list(inside)
    while unvisited:
        for child in children.get(unvisited.pop(), ()):
            if child.pid not in inside:
                inside[child.pid] = child
                unvisited.append(child.pid)
    return list(inside.values())


def watch(lines: Iterable[str]) -> None:
    """Follow `+pid` and `-pid` until the parent is gone, then kill what it left behind."""
    leaders: dict[int, psutil.Process] = {}
    for line in lines:
        pid = int(line[1:])
        if line[0] == "-":
            leaders.pop(pid, None)
        elif psutil.pid_exists(pid):
            leaders[pid] = psutil.Process(pid)
    for leader in leaders.values():
        for process in members(leader):
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass  # it followed its parent by itself


if __name__ == "__main__":
    watch(sys.stdin)
