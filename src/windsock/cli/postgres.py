"""`windsock postgres`: the row trigger that the postgres_notify source reads from."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from windsock.cli.terminal import plain_errors
from windsock.connections import Connection, from_environment

__all__ = ["postgres"]

postgres = typer.Typer(help="Prepare PostgreSQL tables for the postgres_notify source.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(help="The table, as table or schema.table.")]
ConnId = Annotated[
    str, typer.Option("--conn-id", help="The Airflow Connection, or AIRFLOW_CONN_… in the environment.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the SQL, and run nothing.")]


@postgres.command("install-trigger")
def install_trigger(
    table: Table,
    conn_id: ConnId,
    outbox: Annotated[str, typer.Option(help="The table that changes are written to.")] = "windsock_outbox",
    channel: Annotated[str, typer.Option(help="The channel that the reader listens on.")] = "windsock_outbox",
    operation: Annotated[
        list[str] | None, typer.Option(help="insert, update, delete or truncate (repeat it); default all.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Make the outbox table and the triggers that write each change of a table into it.

    May be run again, to change the operations. Prints the SQL.

    \b
    Examples:
      windsock postgres install-trigger public.orders --conn-id shop --dry-run
      windsock postgres install-trigger orders --conn-id shop --operation insert --operation update
    """
    from windsock.sources._postgres_triggers import OPERATIONS, install

    with plain_errors():
        typer.echo(
            install(
                _connection(conn_id),
                table,
                outbox=outbox,
                channel=channel,
                operations=tuple(operation or OPERATIONS),
                dry_run=dry_run,
            )
        )


@postgres.command("remove-trigger")
def remove_trigger(table: Table, conn_id: ConnId, dry_run: DryRun = False) -> None:
    """Drop the triggers of a table; what is in the outbox stays. Prints the SQL.

    \b
    Examples:
      windsock postgres remove-trigger public.orders --conn-id shop
    """
    from windsock.sources._postgres_triggers import remove

    with plain_errors():
        typer.echo(remove(_connection(conn_id), table, dry_run=dry_run))


def _connection(conn_id: str) -> Connection:
    """The Connection out of the environment, else out of Airflow."""
    if os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}"):
        return asyncio.run(from_environment(conn_id))
    from windsock.airflow.connections import airflow_connection

    return asyncio.run(airflow_connection(conn_id))
