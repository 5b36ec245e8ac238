"""`make bench`: stock Airflow and Windsock side by side, with the raw insert loop as the limit.

See README.md for what is measured and how. Everything that is started here is stopped here, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from appending import measure_append
from correlation import measure_correlation
from field import open_field
from latency import measure_latency
from looking import measure_explain, measure_replay, open_long_log
from reading import measure_idle, measure_sources
from report import Finding, Report
from rich.console import Console
from shaping import measure_pipeline
from throughput import measure_memory, measure_throughput

from windsock.testing.postgres import PostgresServer

PARTS = (
    *("append", "pipeline", "replay", "explain", "correlation", "sources", "idle"),
    *("latency", "throughput", "memory"),
)
_WITHOUT_AIRFLOW = {"append", "pipeline", "replay", "explain", "correlation", "sources", "idle"}


def main() -> int:
    """Measure, show, save; 0 if every target was reached."""
    arguments = argparse.ArgumentParser(description="Windsock beside stock Airflow and the raw insert loop.")
    arguments.add_argument("--quick", action="store_true", help="fewer events: a fraction of the time")
    arguments.add_argument("--only", choices=PARTS, help="measure one part")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of the table")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = Report(quick=chosen.quick)
    began = time.monotonic()
    parts = {chosen.only} if chosen.only else set(PARTS)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="windsock-bench-") as folder,
            contextlib.closing(_measure(Path(folder), parts, quick=chosen.quick)) as findings,
        ):
            for finding in findings:
                report.findings.append(finding)
    except KeyboardInterrupt:
        report.error = "it was interrupted"
    except Exception as error:
        report.error = f"{type(error).__name__}: {error}".splitlines()[0]
        raise
    finally:
        report.seconds = time.monotonic() - began
        complete = not chosen.quick and chosen.only is None and report.error is None
        _publish(report, save=complete, as_json=chosen.json)
    if report.error:
        return 130
    return 0 if all(finding.reached is not False for finding in report.findings) else 1


def _measure(folder: Path, parts: set[str], *, quick: bool) -> Iterator[Finding]:
    with PostgresServer() as postgres:
        if "append" in parts:
            yield from measure_append(folder, postgres, quick=quick)
        if "pipeline" in parts:
            yield from measure_pipeline(folder, quick=quick)
        if parts & {"replay", "explain"}:
            with open_long_log(folder, quick=quick) as made:
                if "replay" in parts:
                    yield from measure_replay(made, quick=quick)
                if "explain" in parts:
                    yield from measure_explain(made)
        if "correlation" in parts:
            yield from measure_correlation(folder, quick=quick)
        if "sources" in parts:
            yield from measure_sources(folder, quick=quick)
        if "idle" in parts:
            yield from measure_idle(folder, quick=quick)
        if parts <= _WITHOUT_AIRFLOW:
            return
        with open_field(folder / "live", postgres) as field:
            if "latency" in parts:
                yield from measure_latency(field, quick=quick)
            if "throughput" in parts:
                yield from measure_throughput(field, quick=quick)
            elif "memory" in parts:
                yield from measure_memory(field, quick=quick)


def _publish(report: Report, *, save: bool, as_json: bool) -> None:
    path = report.save() if save else None
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=150)
        report.show(console)
        if path is not None:
            console.print(
                f"Every value: benchmarks/results/{path.name}; the table: benchmarks/results/latest.md"
            )
        if report.error:
            console.print(f"The run ended early: {report.error}", style="red")


if __name__ == "__main__":
    sys.exit(main())
