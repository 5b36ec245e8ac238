"""`windsock retention` and `windsock archive`: what is kept, and where the rest is."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated

import msgspec
import typer

from windsock.cli.reading import LogOption, connections, reading
from windsock.cli.terminal import AsJson, ago, clock, iso, plain_errors, print_json, print_table, wants_json
from windsock.log import Log
from windsock.log.archive import ArchivedEvent, ArchiveFile
from windsock.log.records import Scan
from windsock.spec import Retention, seconds

__all__ = ["archive", "retention", "show_archived"]


def retention(log: LogOption = None, as_json: AsJson = None) -> None:
    """Show what each watcher keeps, how much it holds, and how much is archived.

    \b
    Examples:
      windsock retention
      windsock retention --json | jq '.[] | select(.bytes > 1000000000) | .watcher'
    """
    with plain_errors(), reading(log) as (opened, url):
        held = opened.retained()
    if wants_json(as_json):
        print_json([{**msgspec.to_builtins(one), "oldest_at": iso(one.oldest_at)} for one in held])
        return
    print_table(
        ("watcher", "keeps", "# events", "# bytes", "oldest", "archive", "# files", "# archived"),
        [
            (
                one.watcher,
                _limits(one.retention),
                one.count,
                one.bytes,
                "" if one.oldest_at is None else ago(one.oldest_at),
                one.retention.archive if one.retention else None,
                one.files,
                one.archived,
            )
            for one in held
        ],
        title=f"What watchers hold in {url}",
        empty=f"No watchers in {url}.",
    )


def archive(
    now: Annotated[
        bool, typer.Option("--now", help="Do at once what Airflow's triggerer does every hour.")
    ] = False,
    watcher: Annotated[str | None, typer.Option(help="List only the files of this watcher.")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            help="With --now: the age at which events go whose watcher names none. "
            "By default what Airflow's configuration says, and 30d with --log."
        ),
    ] = None,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """List the archive files, or forget and archive now what is past its retention.

    What a Dag has not settled stays. A watcher without an archive has its old
    events deleted.

    \b
    Examples:
      windsock archive
      windsock archive --watcher orders --json | jq '.[].path'
      windsock archive --now
    """
    from windsock.archive import ParquetArchive

    with plain_errors(), reading(log) as (opened, url):
        if now:
            before = time.time() - (seconds(older_than) if older_than else _default_age(log))
            known = {file.path for file in opened.archives()}
            purged = opened.purge(before=before, archive=ParquetArchive(connections))
            new = [file for file in opened.archives() if file.path not in known]
            result = {
                "left_the_log": purged,
                "archived": sum(file.count for file in new),
                "files": [file.path for file in new],
            }
            if wants_json(as_json):
                print_json(result)
            else:
                for field, value in result.items():
                    typer.echo(f"{field}: {value}")
            return
        files = opened.archives(watchers=None if watcher is None else [watcher])
    if wants_json(as_json):
        print_json([_plain(file) for file in files])
        return
    print_table(
        ("watcher", "# events", "# bytes", "first", "last", "# first seq", "# last seq", "path"),
        [
            (
                file.watcher,
                file.count,
                file.bytes,
                clock(file.first_at),
                clock(file.last_at),
                file.first_seq,
                file.last_seq,
                file.path,
            )
            for file in files
        ],
        title=f"Archive files of {url}, oldest first",
        empty=f"No archive files of {url}.",
    )


def show_archived(
    log: Log, url: str, query: Scan, text: str | None, limit: int, as_json: bool | None
) -> None:
    """Print archived events, newest first."""
    from windsock.archive import ParquetArchive, archived

    found = (
        (file, stored)
        for file, stored in archived(log, ParquetArchive(connections), query, newest_first=True)
        if text is None or text.lower() in stored.body.decode().lower()
    )
    records = list(islice(found, limit))
    if wants_json(as_json):
        print_json([_record(file, stored) for file, stored in records])
        return
    print_table(
        ("# seq", "received", "event", "type", "key", "watcher", "Dags"),
        [
            (
                stored.seq,
                clock(stored.received_at),
                stored.event.subject or stored.event.id,
                stored.event.type,
                stored.event.key,
                stored.watcher,
                ", ".join(f"{dag.dag_id}: {dag.state}" for dag in stored.dags),
            )
            for _, stored in records
        ],
        title=f"Archived events of {url}, newest first",
        empty=f"No such event in the archives of {url}.",
    )


def _record(file: ArchiveFile, stored: ArchivedEvent) -> dict[str, object]:
    return {
        "event": msgspec.to_builtins(stored.event),
        "watcher": stored.watcher,
        "received_at": iso(stored.received_at),
        "dags": msgspec.to_builtins(stored.dags),
        "file": file.path,
    }


def _plain(file: ArchiveFile) -> dict[str, object]:
    times = {name: iso(getattr(file, name)) for name in ("first_at", "last_at", "at")}
    return {**msgspec.to_builtins(file), **times}


def _limits(limits: Retention | None) -> str:
    """A watcher's limits in words that fit a table."""
    given = msgspec.structs.asdict(limits or Retention())
    named = [f"{name} {given[name]:g}" for name in ("age", "count", "bytes") if given[name] is not None]
    return ", ".join(named) or "the default age"


def _default_age(log: str | None) -> float:
    """What Airflow's configuration says, if that is where the log was found."""
    if log is not None:
        return seconds("30d")
    from windsock.airflow import settings

    return settings.retention()
