"""`windsock demo`: the command and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]

HOME = Path(".windsock/demo")


def demo(
    home: Annotated[
        Path, typer.Option(help="Where everything is kept; a second start goes on with what is there.")
    ] = HOME,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the web page; the next free one if it is busy.")
    ] = 8080,
    once: Annotated[
        bool, typer.Option("--once", help="Send the events, wait for their end, print a summary, stop.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: the summary as one JSON object on standard output.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="With --once: seconds to wait until all events have ended.")
    ] = 300.0,
) -> None:
    """Start a real Airflow with Windsock and watch events start runs.

    Nothing else is needed: Airflow and the event log keep their data in SQLite
    files below --home. Files are dropped into a folder, signed webhooks are
    sent, and the terminal shows which run took which event and how it ended.
    Then it is your turn, until Ctrl-C stops everything.

    \b
    Examples:
      windsock demo
      windsock demo --port 9000 --home /data/windsock-demo
      windsock demo --once --json

    \b
    The summary of --once --json:
      sent        events dropped as files or sent as webhooks
      logged      of these, how many are in the event log
      announced   of these, how many one of Airflow's asset events covers, or
                  were taken along by a run that an asset event started
      runs        runs of the demo's Dags that Airflow started meanwhile
      done        of the sent, how many a successful run had
      dead        of the sent, how many a Dag set aside
      lost        sent, but neither done nor dead when the time was up
      duplicated  sent once, but twice in the log or in two successful runs
      seconds     from the first event sent to the last one ended
    The exit code is 0 only if nothing is lost or duplicated.
    """
    if as_json and not once:
        raise typer.BadParameter("--json is the summary of --once: give both")
    from windsock.cli.demo.play import play

    raise typer.Exit(play(home, port=port, once=once, as_json=as_json, timeout=timeout))
