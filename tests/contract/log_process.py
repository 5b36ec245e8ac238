"""One process of test_log_processes.py: does as its arguments say, prints a JSON line for each commit.

It says ``ready`` once everything is imported and waits for a line before each start, so that several
processes start at the same moment.
"""

from __future__ import annotations

import json
import sys

from windsock.archive import ParquetArchive
from windsock.events import Event, dedup_hash
from windsock.log import Log, open_log, retention
from windsock.log.records import Write

SOURCE = "memory://processes"


def say(**line: object) -> None:
    """Print a line that is out before anything else happens."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def wait() -> None:
    """Wait for the parent's word."""
    say(ready=True)
    if not sys.stdin.readline():
        raise SystemExit("the parent is gone")


def write(watcher: str, *names: str) -> Write:
    """A write of deduplicated events with these ids."""
    events = [Event(id=name, source="process", type="tested", data={"name": name}) for name in names]
    return Write(watcher=watcher, events=events, dedup=[dedup_hash(watcher, name) for name in names])


def migrate(*urls: str) -> None:
    """Open one empty log after the other."""
    for url in urls:
        wait()
        log = open_log(url)
        say(watchers=len(log.watchers()))
        log.close()


def append(url: str, me: str, appends: str) -> None:
    """Append to the shared watcher and to its own; every process brings the same common events."""
    log = open_log(url)
    wait()
    for n in range(int(appends)):
        mine, own = log.append([write("shared", f"{me}-{n}", f"common-{n}"), write(f"own-{me}", f"{me}-{n}")])
        say(shared=[event.id for event in mine.new], own=[event.seq for event in own.new])
    log.close()


def read(url: str, appends: str) -> None:
    """Read on from the cursor as the one owner of the source, with the last append once more."""
    log = open_log(url)
    lease = log.acquire(SOURCE, "reader", 3600)
    at = (log.cursor(SOURCE) or {"n": 0})["n"]
    wait()
    for n in range(at, int(appends)):
        names = [f"{n}-{part}" for part in "abc"]
        log.append([write("shared", *names)], source=SOURCE, cursor={"n": n}, lease=lease)
        say(n=n)
    log.close()


def work(url: str, me: str) -> None:
    """Claim and settle until nothing is left; a run that has an event of a tenth append fails."""
    log: Log = open_log(url)
    wait()
    run = 0
    while events := log.claim(["shared"], "fulfil", f"{me}-{run}", limit=2):
        seqs = [event.seq for event in events]
        say(claimed=seqs)
        ok = not any(event.id.partition("-")[0].endswith("0") for event in events)
        log.settle("fulfil", f"{me}-{run}", ok=ok)
        say(settled=seqs, ok=ok)
        run += 1
    log.close()


def archive(url: str) -> None:
    """Archive everything, and say so before and after each file is written."""

    class Telling(ParquetArchive):
        def put(self, path: str, content: bytes) -> None:
            say(writing=path)
            super().put(path, content)
            say(written=path)

    retention.FILE_EVENTS = 100
    log = open_log(url)
    wait()
    say(moved=log.purge(before=0.0, archive=Telling()))
    log.close()


if __name__ == "__main__":
    commands = {"archive": archive, "migrate": migrate, "append": append, "read": read, "work": work}
    commands[sys.argv[1]](*sys.argv[2:])
