"""`windsock explain`: why an event went where it went, and why a Dag ran or did not."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from windsock.cli.reading import LogOption, moment, reading
from windsock.cli.terminal import AsJson, fail, plain_errors, print_json, wants_json

__all__ = ["explain"]


def explain(
    event: Annotated[str | None, typer.Argument(help="The event's id.", show_default=False)] = None,
    watcher: Annotated[str | None, typer.Option(help="Only what became of it at this watcher.")] = None,
    dag: Annotated[
        str | None, typer.Option(help="Instead of an event: why this Dag ran, or did not.")
    ] = None,
    at: Annotated[str, typer.Option(help="With --dag: the moment, as '2h' ago or an ISO time.")] = "0s",
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Say why: each stage's verdict on an event, or what a Dag did around a time.

    For an event: the false part of a filter with its values, which event it is
    a duplicate of, which number it waits for, its batch, announcement, runs,
    dead letters, and what happens next.

    \b
    Examples:
      windsock explain order-1017
      windsock explain order-1017 --watcher orders --json
      windsock explain --dag fulfil --at 2h
      windsock explain --dag fulfil --at 2026-11-15T08:30:00Z
    """
    from windsock.explain import DagExplanation, EventExplanation, explain_dag, explain_event

    if (event is None) == (dag is None):
        fail("name an event, or a Dag with --dag")
    found: DagExplanation | EventExplanation
    with plain_errors(), reading(log) as (opened, _):
        if dag is not None:
            found = explain_dag(opened, dag, at=time.time() if at == "0s" else moment(at))
        else:
            found = explain_event(opened, event or "", watcher=watcher)
    if wants_json(as_json):
        print_json(found)
        return
    for line in found.lines():
        typer.echo(line)
