"""`windsock dlq`: dead letters, and the way back."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer

from windsock.cli.dead_letters import as_plain, dead_letters
from windsock.cli.reading import LogOption, moment, reading
from windsock.cli.terminal import AsJson, fail, plain_errors, print_json, wants_json
from windsock.log import Log
from windsock.log.base import DeadRecord

__all__ = ["dlq"]

dlq = typer.Typer(help="Dead letters, and the way back.", no_args_is_help=True)
dlq.command("list")(dead_letters)

Ids = Annotated[list[int] | None, typer.Argument(help="The letters' ids.", show_default=False)]
Watcher = Annotated[str | None, typer.Option(help="Only those of this watcher.")]
Dag = Annotated[str | None, typer.Option(help="Only those of this Dag.")]
CategoryOption = Annotated[
    str | None, typer.Option(help="invalid, transient, expired, poison or rejected.", show_default=False)
]
Text = Annotated[str | None, typer.Option(help="Only those with this text in reason or error.")]
Since = Annotated[str | None, typer.Option(help="Only those since: '2h' ago, or an ISO time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@dlq.command()
def show(
    letter: Annotated[int, typer.Argument(help="The letter's id.")],
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Show one letter whole: reason, error with its traceback, times, and the original bytes.

    \b
    Examples:
      windsock dlq show 12
      windsock dlq show 12 --json | jq .body
    """
    with plain_errors(), reading(log) as (opened, _):
        found = opened.dead_letters(ids=[letter], state=None)
    if not found:
        fail(f"there is no dead letter {letter}")
    fields = as_plain(found[0])
    if wants_json(as_json):
        print_json(fields)
        return
    for name, value in fields.items():
        if value is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            typer.echo(f"{name:<11} {text}")


@dlq.command()
def redrive(
    ids: Ids = None,
    watcher: Watcher = None,
    dag: Dag = None,
    category: CategoryOption = None,
    text: Text = None,
    since: Since = None,
    dry_run: DryRun = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Give letters another chance, after what was wrong is mended.

    A letter of a Dag's run returns to that Dag in its old place. One that
    never became an event goes through the watcher's present definition; if it
    fails again, it stays where it is and the reason is shown.

    \b
    Examples:
      windsock dlq redrive 12 13
      windsock dlq redrive --watcher orders --category invalid --dry-run
    """
    from windsock.recovery import redrive as give_back

    with plain_errors(), reading(log) as (opened, _):
        letters = _chosen(opened, ids, watcher, dag, category, text, since)
        if dry_run:
            _tell({"would_redrive": [letter.id for letter in letters]}, as_json)
            return
        result = give_back(opened, [letter.id for letter in letters])
    _tell(msgspec.to_builtins(result), as_json)
    if result.failed:
        raise typer.Exit(1)


@dlq.command()
def discard(
    ids: Ids = None,
    watcher: Watcher = None,
    dag: Dag = None,
    category: CategoryOption = None,
    text: Text = None,
    since: Since = None,
    dry_run: DryRun = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Close letters for good; they are still shown by `dlq show`.

    \b
    Examples:
      windsock dlq discard 12
      windsock dlq discard --watcher orders --text "unknown version" --dry-run
    """
    with plain_errors(), reading(log) as (opened, _):
        letters = [letter.id for letter in _chosen(opened, ids, watcher, dag, category, text, since)]
        if dry_run:
            _tell({"would_discard": letters}, as_json)
            return
        _tell({"discarded": opened.discard(letters)}, as_json)


@dlq.command()
def export(
    ids: Ids = None,
    watcher: Watcher = None,
    dag: Dag = None,
    category: CategoryOption = None,
    text: Text = None,
    since: Since = None,
    log: LogOption = None,
) -> None:
    """Write letters to standard output, one JSON object a line.

    \b
    Examples:
      windsock dlq export --watcher orders > letters.jsonl
    """
    with plain_errors(), reading(log) as (opened, _):
        for letter in _chosen(opened, ids, watcher, dag, category, text, since, everything=True):
            sys.stdout.write(msgspec.json.encode(as_plain(letter)).decode() + "\n")


def _chosen(
    log: Log,
    ids: list[int] | None,
    watcher: str | None,
    dag: str | None,
    category: str | None,
    text: str | None,
    since: str | None,
    *,
    everything: bool = False,
) -> list[DeadRecord]:
    """The open letters that the options name; without any of them, none by mistake."""
    if not everything and not ids and not any((watcher, dag, category, text, since)):
        fail("name letters by their ids, or choose some with --watcher, --dag, --category, --text or --since")
    return log.dead_letters(
        ids=ids or None,
        watcher=watcher,
        dag_id=dag,
        category=category,
        text=text,
        since=None if since is None else moment(since),
        limit=1_000_000,
    )


def _tell(result: dict[str, Any], as_json: bool | None) -> None:
    if wants_json(as_json):
        print_json(result)
        return
    for name, value in result.items():
        typer.echo(f"{name}: {value}")
