"""`windsock audit`: everything that happened to a subject, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from windsock.cli.reading import LogOption, reading
from windsock.cli.terminal import (
    AsJson,
    clock,
    iso,
    plain_errors,
    print_json,
    print_table,
    short_run,
    wants_json,
)

if TYPE_CHECKING:
    from windsock.sourcing import AuditEntry

__all__ = ["audit"]


def audit(
    subject: Annotated[str, typer.Argument(help="The events' subject.")],
    after: Annotated[int, typer.Option(help="Only events behind this position (seq): the next page.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="The most events to show.")] = 1000,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Show every event of a subject: who said what when, and what each Dag made of it.

    Events are found by their subject if their watcher is declared with
    history=True.

    \b
    Examples:
      windsock audit order-1017
      windsock audit order-1017 --json | jq '.[].dags'
    """
    from windsock.sourcing import audit as trail

    with plain_errors(), reading(log) as (opened, url):
        entries = trail(subject, log=opened, after=after, limit=limit)
    if wants_json(as_json):
        print_json([_plain(entry) for entry in msgspec.to_builtins(entries)])
        return
    print_table(
        ("# seq", "received", "event", "type", "from", "became", "Dag", "state", "run", "# attempts"),
        [row for entry in entries for row in _rows(entry)],
        title=f"{subject} in {url}, oldest first",
        empty=f"No event of {subject!r} in {url}.",
    )


def _rows(entry: AuditEntry) -> list[tuple[object, ...]]:
    """A row for each Dag that had the event, or one if none did."""
    moves = [f"{move.machine}: {move.after or 'refused'}" for move in entry.moves]
    said = (
        entry.seq,
        clock(entry.received_at),
        entry.event_id,
        entry.type,
        f"{entry.source} ({entry.watcher})",
        "; ".join(moves),
    )
    dags = [(dag.dag_id, dag.state, short_run(dag.run_id), dag.attempts) for dag in entry.dags]
    return [(*said, *dag) for dag in dags] or [(*said, "", "", "", "")]


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with its times as a reader writes them."""
    dags = [
        dag | {"claimed_at": iso(dag["claimed_at"]), "settled_at": iso(dag["settled_at"])}
        for dag in entry["dags"]
    ]
    moves = [
        {name: move[name] for name in ("machine", "before", "after", "reason")} | {"at": iso(move["at"])}
        for move in entry["moves"]
    ]
    return entry | {"received_at": iso(entry["received_at"]), "dags": dags, "moves": moves}
