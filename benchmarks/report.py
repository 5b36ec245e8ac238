"""What a measurement says, as a table, as JSON and as Markdown."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

__all__ = ["Finding", "Report", "number", "percentile"]

RESULTS = Path(__file__).parent / "results"
_COLUMNS = ("what", "beside it", "Windsock", "ratio", "target", "reached")


@dataclass(frozen=True)
class Finding:
    """One row: what was measured, beside what, and whether it reached its target."""

    part: str
    what: str
    baseline: str
    """What stands beside Windsock: the raw loop or stock Airflow, with its value."""
    windsock: str
    ratio: float | None = None
    target: str = ""
    reached: bool | None = None
    """None where there is no target."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Every single value that the row was made from."""

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        ratio = (
            "" if self.ratio is None else f"{self.ratio:.0f}x" if self.ratio >= 10 else f"{self.ratio:.2f}x"
        )
        reached = "" if self.reached is None else "yes" if self.reached else "no"
        return (self.what, self.baseline, self.windsock, ratio, self.target, reached)


@dataclass
class Report:
    """All findings of one run, with the machine they were made on."""

    quick: bool
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    error: str | None = None
    """Why the run ended early, if it did."""
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    load: float = field(default_factory=lambda: psutil.getloadavg()[0])

    def machine(self) -> dict[str, Any]:
        """Facts that a reader needs to judge the numbers; nothing that names the machine."""
        return {
            "cores": psutil.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "load_before": round(self.load, 2),
            "system": platform.system(),
            "python": platform.python_version(),
            "airflow": importlib.metadata.version("apache-airflow-core"),
            "windsock": importlib.metadata.version("windsock"),
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "date": self.started.isoformat(timespec="seconds"),
            "quick": self.quick,
            "seconds": round(self.seconds, 1),
            "error": self.error,
            "machine": self.machine(),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def save(self) -> Path:
        """Write the JSON file of this run and the table of the latest one."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.started:%Y-%m-%dT%H%M%SZ}.json"
        path.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        (RESULTS / "latest.md").write_text(self.markdown(path.name))
        return path

    def markdown(self, source: str) -> str:
        """The table for people who read it in the repository."""
        machine = self.machine()
        lines = [
            "# The latest benchmark",
            "",
            (
                f"{self.started:%Y-%m-%d}, a run of {self.seconds:.0f} s on {machine['cores']} cores "
                f"(load {machine['load_before']} before it), Python {machine['python']}, Airflow "
                f"{machine['airflow']}. Every value is in `{source}`; what is measured and how, in "
                "[README](../README.md)."
            ),
            "",
            "| " + " | ".join(_COLUMNS) + " |",
            "|---|---|---|---:|---|---|",
            *("| " + " | ".join(finding.cells()) + " |" for finding in self.findings),
        ]
        return "\n".join(lines) + "\n"

    def show(self, console: Console) -> None:
        """The table for the terminal."""
        table = Table(title="Windsock beside stock Airflow and the raw insert loop")
        for column in _COLUMNS:
            table.add_column(column, justify="right" if column == "ratio" else "left")
        part = None
        for finding in self.findings:
            if part not in (None, finding.part):
                table.add_section()
            part = finding.part
            style = "red" if finding.reached is False else None
            table.add_row(*finding.cells(), style=style)
        console.print(table)


def number(value: float) -> str:
    """A rate or a time with as many digits as it is worth."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def progress(text: str) -> None:
    """Say on stderr what is being measured, so that stdout stays free for JSON."""
    print(f"  {text}", file=sys.stderr, flush=True)
