"""`windsock dlq`: dead letters, and the way back."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import msgspec
import typer

from windsock.cli.reading import LogOption, moment, reading
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
    warn,
)
from windsock.log import Log
from windsock.log.records import DeadRecord

__all__ = ["dlq"]

dlq = typer.Typer(help="Dead letters, and the way back.", no_args_is_help=True)

Ids = Annotated[list[int] | None, typer.Argument(help="The letters' ids.", show_default=False)]
Watcher = Annotated[str | None, typer.Option(help="Only those of this watcher.")]
Dag = Annotated[str | None, typer.Option(help="Only those of this Dag.")]
CategoryOption = Annotated[
    str | None, typer.Option(help="invalid, transient, expired, poison or rejected.", show_default=False)
]
Text = Annotated[str | None, typer.Option(help="Only those with this text in reason or error.")]
Since = Annotated[str | None, typer.Option(help="Only those since: '2h' ago, or an ISO time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@dlq.command("list")
def list_letters(
    watcher: Watcher = None,
    dag: Dag = None,
    category: CategoryOption = None,
    text: Text = None,
    closed: Annotated[bool, typer.Option(help="Also those that were redriven or discarded.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 100,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """List the dead letters, newest first: events that could not go on, each with the reason.

    An event is set aside when it is invalid (it could not be read, a step
    refused it, or a Dag raised Invalid), transient (a Dag raised Transient too
    often), poison (every run that had it failed) or rejected (a Dag called
    dead_letter).

    \b
    Examples:
      windsock dlq list
      windsock dlq list --watcher payments --limit 10
      windsock dlq list --json | jq '.[] | {reason, body}'
    """
    with plain_errors(), reading(log) as (opened, url):
        letters = opened.dead_letters(
            watcher=watcher,
            dag_id=dag,
            category=category,
            text=text,
            state=None if closed else "dead",
            limit=limit,
        )
    if wants_json(as_json):
        print_json([_as_plain(letter) for letter in letters])
        return
    print_table(
        ("# id", "at", "watcher", "stage", "category", "reason", "Dag", "run", "# tries"),
        [
            (
                letter.id,
                clock(letter.at),
                letter.watcher,
                letter.stage,
                letter.category,
                _in_a_line(letter),
                letter.dag_id,
                short_run(letter.run_id),
                letter.attempts,
            )
            for letter in letters
        ],
        title=f"Dead letters in {url}, newest first",
        empty=f"No dead letters in {url}.",
    )


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
    fields = _as_plain(found[0])
    if wants_json(as_json):
        print_json(fields)
        return
    for name, value in fields.items():
        if value is not None:
            plain = value if isinstance(value, str) else _indented(value)
            typer.echo(f"{name:<11} {plain}")


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
    if result.failed or (ids and not result.delivered + result.appended + result.filtered):
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
            sys.stdout.write(msgspec.json.encode(_as_plain(letter)).decode() + "\n")


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
    """The open letters that the options name; without any of them, none by mistake.

    Ends the command if letters are named by their ids and none of them is open.
    """
    if not everything and not ids and not any((watcher, dag, category, text, since)):
        fail("name letters by their ids, or choose some with --watcher, --dag, --category, --text or --since")
    letters = log.dead_letters(
        ids=ids or None,
        watcher=watcher,
        dag_id=dag,
        category=category,
        text=text,
        since=None if since is None else moment(since),
        limit=1_000_000,
    )
    if missing := sorted(set(ids or ()) - {letter.id for letter in letters}):
        message = (
            f"no open dead letter {', '.join(map(str, missing))}: unknown, redriven or discarded before, or "
            "left out by another option; see `windsock dlq list --closed`"
        )
        if not letters:
            fail(message)
        warn(message)
    return letters


def _tell(result: dict[str, Any], as_json: bool | None) -> None:
    if wants_json(as_json):
        print_json(result)
        return
    for name, value in result.items():
        typer.echo(f"{name}: {value}")


def _indented(value: object) -> str:
    """JSON that lines up behind a field's name."""
    return msgspec.json.format(msgspec.json.encode(value)).decode().replace("\n", "\n" + " " * 12)


def _in_a_line(letter: DeadRecord) -> str:
    """The reason and the last line of the error, which says what happened; `dlq show` has all of it."""
    error = (letter.error or "").strip()
    return f"{letter.reason}: {error.splitlines()[-1]}" if error else letter.reason


def _as_plain(letter: DeadRecord) -> dict[str, object]:
    """The letter with its body as JSON, else as text, else in base64 under another name."""
    fields: dict[str, object] = msgspec.structs.asdict(letter)
    fields |= {name: iso(getattr(letter, name)) for name in ("first_at", "at", "settled_at")}
    try:
        fields["body"] = msgspec.json.decode(letter.body)
    except msgspec.DecodeError:
        try:
            fields["body"] = letter.body.decode()
        except UnicodeDecodeError:
            del fields["body"]
            fields["body_base64"] = base64.b64encode(letter.body).decode()
    return fields
