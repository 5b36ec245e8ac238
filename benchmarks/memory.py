"""Part D: whether the processes that hold events grow with the number of events that pass through them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil
from report import Finding

__all__ = ["Samples", "sampled"]

FLAT = 0.10
_EVERY = 0.25
_MIB = 2**20


@dataclass
class Samples:
    """The resident memory of some processes over time, in bytes."""

    values: list[int] = field(default_factory=list)

    def growth(self) -> tuple[int, int]:
        """The most memory in the first quarter of the time and in the last three."""
        quarter = max(1, len(self.values) // 4)
        return max(self.values[:quarter]), max(self.values[quarter:] or self.values)

    def finding(self, what: str, *, aimed: bool) -> Finding:
        """Whether it stayed flat: the last three quarters at most a tenth above the first."""
        first, rest = self.growth()
        return Finding(
            part="memory",
            what=what,
            baseline=f"first quarter {first / _MIB:.0f} MiB",
            windsock=f"after it {rest / _MIB:.0f} MiB",
            ratio=rest / first,
            target=f"growth < {FLAT:.0%}" if aimed else "",
            reached=rest < first * (1 + FLAT) if aimed else None,
            raw={"mib": [round(value / _MIB, 1) for value in self.values], "every_s": _EVERY},
        )


@contextlib.contextmanager
def sampled(processes: Callable[[], list[psutil.Process]]) -> Iterator[Samples]:
    """Sample the memory of processes, all together, while the block runs."""
    samples = Samples()
    watched = processes()
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            began = time.monotonic()
            total = 0
            for process in watched:
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            samples.values.append(total)
            done.wait(_EVERY - (time.monotonic() - began))

    thread = threading.Thread(target=sample, name="memory-samples", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()
