"""Part G: a join with 100,000 live keys: the memory that they take, that more do not, and the pace.

Each key holds one event of 460 bytes that waits for its partner. It is measured in a process of its own,
with the results, the positions and the state committed to a SQLite log in the same transactions as always.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from report import Finding, number, progress

from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.rules.source import CorrelateConfig, CorrelateSource
from windsock.sources import source_key
from windsock.spec import WatcherSpec

__all__ = ["measure_correlation"]

KEYS, PAGE = 100_000, 1000
BOUND = 1.25
"""How much more memory half as many keys again may take when the bound is reached."""
RULE = {"all_of": ["orders", "payments"], "within": "1d", "by": "data.id"}
_MIB = 2**20


def measure_correlation(folder: Path, *, quick: bool) -> Iterator[Finding]:
    """Memory and pace of a correlation with very many live keys."""
    keys = KEYS // 10 if quick else KEYS
    progress(f"correlation: {number(keys)} live keys")
    program = [sys.executable, str(Path(__file__)), str(folder / "correlation.db"), str(keys)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    raw = json.loads(done.stdout)
    yield Finding(
        part="correlation",
        what=f"memory of {number(keys)} live keys, each an event of 460 bytes",
        baseline="",
        windsock=f"{raw['live'] / _MIB:.0f} MiB, {raw['live'] / keys:.0f} bytes a key",
        target="stated",
        raw=raw,
    )
    yield Finding(
        part="correlation",
        what=f"{number(keys // 2)} keys more than max_keys",
        baseline=f"{raw['live'] / _MIB:.0f} MiB",
        windsock=f"{raw['over'] / _MIB:.0f} MiB",
        ratio=raw["over"] / raw["live"],
        target=f"< {BOUND:.2f}x",
        reached=raw["over"] < raw["live"] * BOUND,
    )
    yield Finding(
        part="correlation",
        what="events a second into the state, and pairs a second out of it, with the SQLite log",
        baseline="",
        windsock=f"{number(raw['events_per_s'])}/s, {number(raw['pairs_per_s'])}/s",
        target="stated",
    )
    yield Finding(
        part="correlation",
        what=f"restart with {number(keys)} live keys",
        baseline="",
        windsock=f"{raw['restart_s']:.1f} s",
        target="stated",
    )


def _measured(path: str, keys: int) -> dict[str, Any]:
    log = SqliteLog(path)
    for leg in ("orders", "payments"):
        log.register(WatcherSpec(name=leg, kind="memory"), source=leg)
    options = {"watcher": "paid", "rule": RULE, "max_keys": keys}
    log.register(
        WatcherSpec(name="paid", kind="correlate", options=options), source=source_key("correlate", options)
    )
    source = _opened(log, options)
    _drain(log, source)
    gc.collect()
    before = _memory()
    _fill(log, "orders", range(keys))
    filled = _drain(log, source)
    gc.collect()
    live = _memory() - before
    _fill(log, "orders", range(keys, keys + keys // 2))
    _drain(log, source)
    gc.collect()
    over = _memory() - before
    began = time.perf_counter()
    source = _opened(log, options)
    restart = time.perf_counter() - began
    _fill(log, "payments", range(keys // 2, keys + keys // 2))
    paired = _drain(log, source)
    log.close()
    return {
        "live": live,
        "over": over,
        "events_per_s": keys / filled,
        "pairs_per_s": keys / paired,
        "restart_s": restart,
    }


def _opened(log: SqliteLog, options: dict[str, Any]) -> CorrelateSource:
    source = CorrelateSource(CorrelateConfig(**options))
    source.log, source.key = log, source_key("correlate", options)
    asyncio.run(source.connect(log.cursor(source.key)))
    return source


def _fill(log: SqliteLog, leg: str, ids: range) -> None:
    note = "x" * 370
    for start in range(ids.start, ids.stop, PAGE):
        events = [
            Event.make({"id": id, "note": note}, source="shop", type=leg, id=f"{leg}-{id}")
            for id in range(start, min(start + PAGE, ids.stop))
        ]
        log.append([Write(watcher=leg, events=events)])


def _drain(log: SqliteLog, source: CorrelateSource) -> float:
    """Let the source read to the end, as the runner does; the seconds that it took."""
    began = time.perf_counter()
    while (delivery := source.step(time.time())) is not None:
        write = Write(
            watcher="paid",
            events=delivery.events,
            verdicts=delivery.verdicts,
            filtered=len(delivery.verdicts),
        )
        log.append([write], source=source.key, cursor=delivery.cursor, state=delivery.state)
    return time.perf_counter() - began


def _memory() -> int:
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], int(sys.argv[2]))))
