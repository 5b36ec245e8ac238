"""`windsock diff`: what a changed definition would have changed."""

from __future__ import annotations

from typing import Annotated

import typer

from windsock.cli.reading import LogOption, moment, reading
from windsock.cli.terminal import AsJson, fail, plain_errors, print_json, wants_json

__all__ = ["diff"]


def diff(
    old: Annotated[str, typer.Argument(help="watchers.yaml, package.module:watcher, or 'registered'.")],
    new: Annotated[str, typer.Argument(help="The same, of the other side.")],
    watcher: Annotated[str | None, typer.Option(help="Only this watcher.")] = None,
    since: Annotated[str, typer.Option(help="Events received since: '7d' ago, or an ISO time.")] = "7d",
    until: Annotated[str | None, typer.Option(help="Events received before.", show_default=False)] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with exit code 1 if something changes.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A comment for a pull request.")] = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Run the log's past through an old and a new definition, and say what changes.

    'registered' means the definitions that the log knows: those that run now.
    Stored events are as the pipeline left them; what was filtered is known for
    the newest 10,000 events of each watcher. What that leaves open is said.

    \b
    Examples:
      windsock diff registered watchers.yaml
      windsock diff registered watchers.yaml --watcher orders --since 30d --exit-code
      windsock diff main/watchers.yaml watchers.yaml --markdown > comment.md
      windsock diff registered shop.assets:orders
    """
    from windsock.definitions import definitions
    from windsock.diff import diff as compare

    with plain_errors(), reading(log) as (opened, _):
        sides = [definitions(place, opened) for place in (old, new)]
        if watcher is not None:
            sides = [{name: spec for name, spec in side.items() if name == watcher} for side in sides]
            if not any(sides):
                fail(f"neither {old} nor {new} has a watcher {watcher!r}")
        elif "registered" in (old, new):
            # The log knows the watchers of all files; those that this file does not name are not removed.
            named = sides[1 if old == "registered" else 0]
            sides = [{name: spec for name, spec in side.items() if name in named} for side in sides]
        found = compare(
            opened,
            old=sides[0],
            new=sides[1],
            since=moment(since),
            until=None if until is None else moment(until),
        )
    if markdown:
        typer.echo(found.markdown(), nl=False)
    elif wants_json(as_json):
        print_json({"summary": found.summary(), "changed": found.changed, "diff": found})
    else:
        for line in found.lines():
            typer.echo(line)
    if exit_code and found.changed:
        raise typer.Exit(1)
