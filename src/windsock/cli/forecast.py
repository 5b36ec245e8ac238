"""`windsock forecast`: how much work a definition will be."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from windsock.cli.reading import LogOption, reading
from windsock.cli.terminal import AsJson, fail, plain_errors, print_json, wants_json

__all__ = ["forecast"]


def forecast(
    place: Annotated[
        str, typer.Argument(help="watchers.yaml, package.module:watcher, or 'registered'.")
    ] = "registered",
    watcher: Annotated[str | None, typer.Option(help="Only this watcher.")] = None,
    days: Annotated[float, typer.Option(min=0.01, help="How many past days to go by.")] = 7.0,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Say how many events, batches and runs a day a definition will make.

    The past of the watcher with the same name is run through the definition.
    By default the definitions that the log knows are taken.

    \b
    Examples:
      windsock forecast
      windsock forecast watchers.yaml --days 28
      windsock forecast --watcher orders --json | jq .[0].by_hour
    """
    from windsock.definitions import definitions
    from windsock.forecast import forecast as look_ahead

    with plain_errors(), reading(log) as (opened, _):
        found = definitions(place, opened)
        chosen = [spec for name, spec in sorted(found.items()) if watcher in (None, name)]
        if watcher is not None and not chosen:
            fail(f"{place} has no watcher {watcher!r}")
        now = time.time()
        results = [look_ahead(opened, spec, since=now - days * 86400, until=now) for spec in chosen]
    if wants_json(as_json):
        print_json(results)
        return
    shared = (
        [note for note in results[0].notes if all(note in one.notes for one in results)] if results else []
    )
    for result in results:
        for line in result.lines(without=shared):
            typer.echo(line)
    for note in shared:
        typer.echo(f"note: {note}")
