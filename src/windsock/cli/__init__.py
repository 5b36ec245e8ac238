"""`windsock …`: try it, and look into the event log.

Airflow takes seconds to import, so only the command that needs it imports it: `windsock --help` is instant.
"""

from __future__ import annotations

from typing import Annotated

import typer

from windsock.cli.audit import audit
from windsock.cli.demo.command import demo
from windsock.cli.diff import diff
from windsock.cli.dlq import dlq
from windsock.cli.erase import erase
from windsock.cli.events import events
from windsock.cli.explain import explain
from windsock.cli.forecast import forecast
from windsock.cli.init import init
from windsock.cli.postgres import postgres
from windsock.cli.project import project
from windsock.cli.reconcile import reconcile
from windsock.cli.replay import replay
from windsock.cli.retention import archive, retention
from windsock.cli.schema import schema
from windsock.cli.status import status
from windsock.cli.subscription import subscription

__all__ = ["app"]

app = typer.Typer(
    name="windsock",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from windsock import __version__

        typer.echo(f"windsock {__version__}")
        raise typer.Exit


@app.callback()
def windsock(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Event-driven scheduling for Apache Airflow 3.

    The commands that look into the event log find it by --log, by the variable
    WINDSOCK_LOG, or in Airflow's own configuration. They print a table on a
    terminal and JSON into a pipe.
    """


app.command()(init)
app.command()(demo)
app.command()(status)
app.command()(events)
app.command()(explain)
app.add_typer(dlq, name="dlq")
app.command()(replay)
app.command()(reconcile)
app.command()(diff)
app.command()(forecast)
app.add_typer(schema, name="schema")
app.add_typer(subscription, name="subscription")
app.command()(retention)
app.command()(archive)
app.command()(erase)
app.add_typer(postgres, name="postgres")
app.command()(audit)
app.command()(project)
