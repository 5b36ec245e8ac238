"""`windsock explain`: why an event went where it went, and why a Dag ran or did not."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Annotated

import typer

from windsock.cli.reading import LogOption, moment, reading
from windsock.cli.terminal import AsJson, fail, plain_errors, print_json, wants_json

__all__ = ["explain"]

_STEP = re.compile(r" {2}.{19} {2}.{10} (?P<verdict>[^:]+)")
_GOOD = frozenset({"received", "stored", "closed", "announced", "claimed", "done"})
_BAD = frozenset({"dead", "failed", "invalid", "backoff"})


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
    _show(found.lines())


def _show(lines: Iterable[str]) -> None:
    """Each stage dim, its verdict in a colour: green goes on, red has ended, yellow waits or was left out."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for line in lines:
        text = Text(line)
        if step := _STEP.match(line):
            verdict = step["verdict"]
            colour = "green" if verdict in _GOOD else "red" if verdict in _BAD else "yellow"
            text.stylize("dim", 0, step.start("verdict"))
            text.stylize(colour, *step.span("verdict"))
        else:
            text.stylize("bold")
        console.print(text)
