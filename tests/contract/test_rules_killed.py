"""A correlation whose process is killed again and again: every result once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from windsock.events import Event
from windsock.log import Log, open_log
from windsock.log.records import Scan, Write
from windsock.sources import source_key
from windsock.spec import WatcherSpec

PROGRAM = Path(__file__).with_name("rules_process.py")
PATIENCE = 60.0
SHARE, KILLS = 2000, 4
RULES = {
    "paid": {"all_of": ["orders", "payments"], "within": "1h", "by": "data.id"},
    "fours": {"count": ["orders"], "n": 4, "within": "1h", "by": "data.shop"},
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty log that processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'log.db'}"
    return str(request.getfixturevalue("postgres").url(f"r{uuid.uuid4().hex}"))


@contextmanager
def reader(url: str, watcher: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads, ended without a chance to do anything."""
    process = subprocess.Popen([sys.executable, "-W", "error", str(PROGRAM), url, watcher])
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def until(question: Callable[[], bool], what: str) -> None:
    """Ask until the answer is yes."""
    deadline = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.005)


def found(log: Log, watcher: str) -> list[Event]:
    """The results in the log."""
    return [stored.event for stored in log.scan(Scan(watchers=[watcher]))]


@pytest.mark.parametrize("watcher", RULES)
def test_a_killed_correlation_loses_and_doubles_nothing(url: str, watcher: str) -> None:
    """Killed at random moments while legs fill up, a correlation tells each result exactly once."""
    dice = random.Random(7)
    log = open_log(url)
    for leg in ("orders", "payments"):
        log.register(WatcherSpec(name=leg, kind="memory"), source=leg)
    options = {"watcher": watcher, "rule": RULES[watcher]}
    key = source_key("correlate", options)
    # Without dedup in the log: what is told twice would be seen twice.
    log.register(WatcherSpec(name=watcher, kind="correlate", options=options, dedupe=0), source=key)
    with reader(url, watcher):
        until(lambda: log.cursor(key) is not None, "the first reader")
    pairs, unread = 0, list[int]()
    while len(unread) < KILLS or not any(unread):
        assert len(unread) < 10 * KILLS, "every reader was done before it was killed"
        append(log, dice, range(pairs, pairs + SHARE))
        pairs += SHARE
        before = len(found(log, watcher))
        with reader(url, watcher):
            some = before + dice.randrange(1, SHARE // 10)
            until(lambda some=some: len(found(log, watcher)) >= some, "some results")  # type: ignore[misc]
        unread.append(log.behind(log.cursor(key)["legs"]))  # type: ignore[index]
    with reader(url, watcher):
        until(lambda: log.behind(log.cursor(key)["legs"]) == 0, "everything to be read")  # type: ignore[index]
    results = found(log, watcher)
    used = Counter(cause["id"] for event in results for cause in event.data["causes"])
    assert set(used.values()) == {1}
    if watcher == "paid":
        assert len(used) == 2 * pairs
        assert list(log.remembered(key)) == []
    else:
        assert len(used) == pairs
        assert len(results) == pairs // 4
    log.close()


def append(log: Log, dice: random.Random, numbers: range) -> None:
    """These orders and their payments, in any order, in many transactions."""
    writes = [(leg, number) for number in numbers for leg in ("orders", "payments")]
    dice.shuffle(writes)
    for start in range(0, len(writes), 100):
        for leg in ("orders", "payments"):
            events = [
                Event.make({"id": number, "shop": number % 10}, source="shop", type=leg)
                for name, number in writes[start : start + 100]
                if name == leg
            ]
            log.append([Write(watcher=leg, events=events)])
