"""`windsock reconcile`: whether everything agrees, and putting right what does not."""

from __future__ import annotations

from typing import Annotated

import typer

from windsock.cli.reading import LogOption, reading
from windsock.cli.terminal import AsJson, plain_errors, print_json, wants_json
from windsock.events import WindsockError
from windsock.reconcile import RunStates
from windsock.spec import seconds

__all__ = ["reconcile"]


def reconcile(
    repair: Annotated[bool, typer.Option("--repair", help="Put right what can be put right.")] = False,
    grace: Annotated[str, typer.Option(help="How late something may be before it counts.")] = "5min",
    older: Annotated[str, typer.Option(help="How long an event may wait for a Dag.")] = "24h",
    airflow: Annotated[
        bool | None,
        typer.Option(
            "--airflow/--no-airflow",
            help="Compare with the runs in Airflow's database; by default if the log is the one that "
            "Airflow's configuration names.",
            show_default=False,
        ),
    ] = None,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Compare source positions, log, announcements, runs and settlements.

    Lists everything that does not agree, why it matters, and what --repair
    does about it. Exit code 0: everything agrees; 1: something does not.
    With --airflow, be sure that it is the Airflow that this log belongs to.

    \b
    Examples:
      windsock reconcile
      windsock reconcile --repair
      windsock reconcile --older 2h --json
    """
    from windsock.reconcile import reconcile as compare

    with plain_errors(), reading(log) as (opened, _):
        runs = _runs() if airflow or (airflow is None and log is None) else None
        report = compare(opened, runs=runs, repair=repair, grace=seconds(grace), older=seconds(older))
    if wants_json(as_json):
        print_json({"clean": report.clean, "report": report})
    else:
        for line in report.lines():
            typer.echo(line)
    if not report.clean:
        raise typer.Exit(1)


def _runs() -> RunStates:
    try:
        from windsock.airflow.runs import run_states
    except ImportError as error:
        raise WindsockError(
            f"Airflow cannot be imported ({error}): leave its runs out with --no-airflow"
        ) from error
    return run_states
