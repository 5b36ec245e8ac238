"""`windsock subscription`: the Dags' places in the watchers' events."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from windsock.cli.reading import LogOption, moment, reading
from windsock.cli.terminal import AsJson, fail, plain_errors, print_json, print_table, wants_json
from windsock.log.records import Start

__all__ = ["subscription"]

subscription = typer.Typer(help="The Dags' places in the watchers' events.", no_args_is_help=True)


@subscription.command("list")
def list_places(
    dag: Annotated[str | None, typer.Option(help="Only those of this Dag.")] = None,
    watcher: Annotated[str | None, typer.Option(help="Only those of this watcher.")] = None,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """List the Dags and what waits for each.

    \b
    Examples:
      windsock subscription list
      windsock subscription list --dag fulfil --json
    """
    with plain_errors(), reading(log) as (opened, url):
        places = opened.subscriptions(watcher=watcher, dag_id=dag)
    if wants_json(as_json):
        print_json(places)
        return
    print_table(
        ("watcher", "Dag", "state", "# pending", "# claimed", "# dead"),
        [
            (
                place.watcher,
                place.dag_id,
                "gone" if not place.active else "paused" if place.paused else "active",
                place.pending,
                place.claimed,
                place.dead,
            )
            for place in places
        ],
        title=f"Subscriptions in {url}",
        empty=f"No subscriptions in {url}.",
    )


@subscription.command()
def move(
    dag: Annotated[str, typer.Argument(help="The Dag.")],
    watcher: Annotated[str, typer.Option(help="In the events of this watcher.")],
    to: Annotated[str, typer.Option(help="earliest, latest, '2h' ago, or an ISO time.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Move a Dag's place.

    Forward, waiting events up to there are passed over; what a run has stays
    with it. Back, the Dag gets events from before its beginning; events that
    it has had it gets only by `windsock replay`.

    \b
    Examples:
      windsock subscription move fulfil --watcher orders --to latest --dry-run
      windsock subscription move audit --watcher orders --to earliest
      windsock subscription move audit --watcher orders --to 2026-11-01T00:00:00Z
    """
    with plain_errors(), reading(log) as (opened, _):
        if all(place.dag_id != dag for place in opened.subscriptions(watcher=watcher, counts=False)):
            fail(f"Dag {dag!r} has no place in the events of watcher {watcher!r}")
        target: Start = to if to in ("earliest", "latest") else moment(to)
        moved = opened.move(watcher, dag, target, dry_run=dry_run)
    if wants_json(as_json):
        print_json({**msgspec.to_builtins(moved), "dry_run": dry_run})
        return
    done = "would be" if dry_run else "are"
    typer.echo(f"{dag} at {watcher}: {moved.skipped} waiting events {done} passed over, {moved.added} added")
    if moved.seen:
        typer.echo(f"{moved.seen} events after that place it has had: `windsock replay` delivers them again")
