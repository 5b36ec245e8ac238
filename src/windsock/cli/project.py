"""`windsock project`: read models, looked at and brought up to date."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from windsock.cli.reading import LogOption, reading
from windsock.cli.terminal import AsJson, ago, fail, plain_errors, print_json, print_table, wants_json
from windsock.events import WindsockError
from windsock.log import Log
from windsock.log.subjects import View
from windsock.values import describe

if TYPE_CHECKING:
    from windsock.sourcing import Projection

__all__ = ["project"]


def project(
    name: Annotated[
        str | None,
        typer.Argument(help="The read model's name, or where it is declared: package.module:variable."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only the row with this key.")] = None,
    prefix: Annotated[str, typer.Option(help="Only rows whose key begins with this.")] = "",
    after: Annotated[str, typer.Option(help="Only rows behind this key: the next page.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="The most rows to show.")] = 100,
    update: Annotated[bool, typer.Option("--update", help="Bring the rows up to date first.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the rows anew from the first event in the log.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --update or --rebuild: only say how much there is to do.")
    ] = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Show the rows of a read model, or bring it up to date.

    To show rows its name is enough. To update or rebuild it, name where it is
    declared; the module is looked for on PYTHONPATH and in this directory.
    Without a name, every read model is listed.

    \b
    Examples:
      windsock project
      windsock project customers --prefix a
      windsock project shop.models:customers --update --dry-run
      windsock project shop.models:customers --rebuild
    """
    with plain_errors(), reading(log) as (opened, url):
        if name is None:
            _list([view for view in opened.views() if view.live], url, as_json)
            return
        declared = _declared(name).using(opened) if ":" in name else None
        stored = declared.name if declared else name
        if update or rebuild:
            if declared is None:
                fail("to update a read model, name where it is declared: package.module:variable")
            if dry_run:
                _tell(opened, declared, rebuild, as_json)
                return
            done = declared.rebuild() if rebuild else declared.update()
            typer.echo(f"{done.events} events counted, up to {done.position}", err=True)
        elif not opened.views(stored):
            fail(f"there is no read model {stored!r} in {url}")
        keys = None if key is None else [key]
        found = opened.view_rows(stored, keys=keys, prefix=prefix, after=after, limit=limit)
    if key is not None and not found:
        fail(f"read model {stored!r} has no row {key!r}", code=1)
    rows = {one: msgspec.json.decode(value) for one, value in found}
    if wants_json(as_json):
        print_json(rows)
        return
    print_table(
        ("key", "row"),
        [(one, msgspec.json.encode(row).decode()) for one, row in rows.items()],
        title=f"{stored} in {url}",
        empty=f"No such rows in {stored}.",
    )


def _declared(target: str) -> Projection:
    from windsock.sourcing import Projection

    module, _, variable = target.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), variable)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise WindsockError(f"cannot import {target}: {describe(error)}") from error
    if not isinstance(found, Projection):
        fail(f"{target} is not a Projection")
    return found


def _tell(log: Log, declared: Projection, rebuild: bool, as_json: bool | None) -> None:
    live = [view for view in log.views(declared.name) if view.live]
    anew = rebuild or not live or live[0].version != declared.version
    start = 0 if anew else live[0].position
    positions = {
        spec.name: start
        for spec in log.watchers()
        if declared.watchers is None or spec.name in declared.watchers
    }
    plan = {"name": declared.name, "rebuild": anew, "after": start, "events": log.behind(positions)}
    if wants_json(as_json):
        print_json(plan)
    else:
        how = "be rebuilt from" if anew else "count"
        typer.echo(f"{declared.name} would {how} {plan['events']} events behind {start}")


def _list(views: list[View], url: str, as_json: bool | None) -> None:
    if wants_json(as_json):
        print_json(views)
        return
    print_table(
        ("read model", "# position", "# events", "updated"),
        [(view.name, view.position, view.events, ago(view.updated_at)) for view in views],
        title=f"Read models in {url}",
        empty=f"No read models in {url}.",
    )
