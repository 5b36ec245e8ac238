"""`windsock events`: list and search the event log."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from windsock.cli.reading import LogOption, moment, reading
from windsock.cli.retention import show_archived
from windsock.cli.terminal import (
    AsJson,
    clock,
    fail,
    iso,
    plain_errors,
    print_json,
    print_table,
    short_run,
    wants_json,
)
from windsock.log.records import EventQuery, EventRecord, Scan, State

__all__ = ["events"]

Text = str | None


def events(
    id: Annotated[Text, typer.Option(help="The event with this id.")] = None,
    key: Annotated[Text, typer.Option(help="Events with this ordering key.")] = None,
    type: Annotated[Text, typer.Option(help="Events of this type.")] = None,
    watcher: Annotated[Text, typer.Option(help="Events of this watcher.")] = None,
    asset: Annotated[Text, typer.Option(help="Events of this asset, by its URI.")] = None,
    dag: Annotated[Text, typer.Option(help="Events as this Dag has them.")] = None,
    state: Annotated[State | None, typer.Option(help="Events in this state.")] = None,
    since: Annotated[Text, typer.Option(help="Received since: '10min', '24h', or an ISO time.")] = None,
    text: Annotated[Text, typer.Option(help="Events that contain this text anywhere.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 100,
    archived: Annotated[
        bool, typer.Option("--archived", help="Look into the archive files instead of the log.")
    ] = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """List events, newest first: which Dag has them, in which run, and how that ended.

    There is one line per event and subscribed Dag. Every option that is given
    narrows the list.

    \b
    Examples:
      windsock events --since 10min
      windsock events --dag orders --state dead
      windsock events --text kite --json | jq '.[].event.data'
      windsock events --archived --watcher orders --key 1017
    """
    if archived:
        if dag is not None or state is not None:
            fail("--archived knows no --dag and --state: each event is shown with what all Dags made of it")
        with plain_errors():
            query = Scan(
                ids=None if id is None else [id],
                key=key,
                type=type,
                watchers=None if watcher is None else [watcher],
                asset=asset,
                since=None if since is None else moment(since),
            )
            with reading(log) as (opened, url):
                show_archived(opened, url, query, text, limit, as_json)
        return
    with plain_errors():
        wanted = EventQuery(
            id=id,
            key=key,
            type=type,
            watcher=watcher,
            asset=asset,
            dag_id=dag,
            state=state,
            since=None if since is None else moment(since),
            text=text,
            limit=limit,
        )
        with reading(log) as (opened, url):
            records = opened.events(wanted)
    if wants_json(as_json):
        print_json([_record(record) for record in records])
        return
    print_table(
        ("# seq", "received", "event", "type", "watcher", "Dag", "state", "# failed", "run"),
        [
            (
                record.event.seq,
                clock(record.received_at),
                record.event.subject or record.event.id,
                record.event.type,
                record.watcher,
                record.dag_id,
                record.state,
                record.attempts,
                short_run(record.run_id),
            )
            for record in records
        ],
        title=f"Events in {url}, newest first",
        empty=f"No such event in {url}.",
    )


def _record(record: EventRecord) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(record)
    return {**fields, "received_at": iso(record.received_at)}
