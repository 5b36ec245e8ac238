"""`windsock dead-letters`: what was set aside, and why."""

from __future__ import annotations

import base64
from typing import Annotated

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
from windsock.log.base import DeadRecord

__all__ = ["as_plain", "dead_letters"]


def dead_letters(
    watcher: Annotated[str | None, typer.Option(help="Only those of this watcher.")] = None,
    dag: Annotated[str | None, typer.Option(help="Only those of this Dag.")] = None,
    category: Annotated[
        str | None, typer.Option(help="invalid, transient, expired, poison or rejected.", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(help="Only those with this text in reason or error.")] = None,
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
      windsock dead-letters
      windsock dead-letters --watcher payments --limit 10
      windsock dead-letters --json | jq '.[] | {reason, body}'
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
        print_json([as_plain(letter) for letter in letters])
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


def _in_a_line(letter: DeadRecord) -> str:
    """The reason and the last line of the error, which says what happened; `dlq show` has all of it."""
    error = (letter.error or "").strip()
    return f"{letter.reason}: {error.splitlines()[-1]}" if error else letter.reason


def as_plain(letter: DeadRecord) -> dict[str, object]:
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
