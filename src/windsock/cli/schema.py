"""`windsock schema`: whether a changed schema still fits."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from windsock.cli.terminal import AsJson, plain_errors, print_json, print_table, wants_json

__all__ = ["schema"]

schema = typer.Typer(help="Schemas of events, and what a change of them breaks.", no_args_is_help=True)


class Direction(StrEnum):
    """Who must be able to read whose events."""

    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"


@schema.callback()
def _schema() -> None:
    """Keep `check` a command of its own."""


@schema.command()
def check(
    old: Annotated[str, typer.Argument(help="The schema so far: a file, a URL or package.module:Model.")],
    new: Annotated[str, typer.Argument(help="The schema to come.")],
    mode: Annotated[
        Direction,
        typer.Option(help="backward: new readers, old events. forward: old readers, new events. full: both."),
    ] = Direction.BACKWARD,
    declared: Annotated[
        bool,
        typer.Option("--declared", help="Events have only the members that their schema declares."),
    ] = False,
    as_json: AsJson = None,
) -> None:
    """Say what breaks when a schema is replaced by another.

    No finding means that every document that fits the one fits the other.
    The exit code is 1 if something breaks.

    \b
    Examples:
      windsock schema check order-v1.json order-v2.json
      windsock schema check shop.models:OrderV1 shop.models:OrderV2 --mode full
      windsock schema check old.json new.json --declared --json | jq '.breaks[].path'
    """
    from windsock.pipeline.compatibility import compare_schemas
    from windsock.pipeline.schemas import load_schema

    with plain_errors():
        breaks = compare_schemas(
            load_schema(old, Path.cwd()), load_schema(new, Path.cwd()), mode=mode.value, declared=declared
        )
    if wants_json(as_json):
        found = [msgspec.to_builtins(one) for one in breaks]
        print_json({"mode": mode.value, "compatible": not breaks, "breaks": found})
    else:
        print_table(
            ("direction", "path", "what breaks"),
            [(one.direction, one.path, f"it {one.problem}") for one in breaks],
            title=f"{old} → {new}",
            empty=f"Nothing breaks ({mode.value}).",
        )
    if breaks:
        raise typer.Exit(1)
