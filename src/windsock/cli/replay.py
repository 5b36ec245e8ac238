"""`windsock replay`: choose stored events, look what would happen, deliver them again."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from windsock.cli.reading import LogOption, connections, moment, reading
from windsock.cli.terminal import AsJson, clock, fail, plain_errors, print_json, print_table, wants_json
from windsock.log.records import Replay, Scan

__all__ = ["replay"]


def replay(
    name: Annotated[
        str | None, typer.Argument(help="The replay's name: the same name delivers nothing twice.")
    ] = None,
    watcher: Annotated[
        list[str] | None, typer.Option(help="Only events of this watcher (repeat it).")
    ] = None,
    asset: Annotated[str | None, typer.Option(help="Only events of this asset.")] = None,
    key: Annotated[str | None, typer.Option(help="Only events with this key.")] = None,
    event: Annotated[list[str] | None, typer.Option(help="Only the event with this id (repeat it).")] = None,
    where: Annotated[str | None, typer.Option(help="Only events that match this CEL expression.")] = None,
    since: Annotated[str | None, typer.Option(help="Received since: '2h' ago, or an ISO time.")] = None,
    until: Annotated[str | None, typer.Option(help="Received before: '2h' ago, or an ISO time.")] = None,
    dag: Annotated[str | None, typer.Option(help="Deliver to this Dag only; by default to all.")] = None,
    cap: Annotated[int, typer.Option(min=1, help="The most deliveries under way at once.")] = 1000,
    archived: Annotated[bool, typer.Option("--archived", help="Choose from the archive files, too.")] = False,
    go: Annotated[bool, typer.Option("--go", help="Do it; without this, only a preview is shown.")] = False,
    log: LogOption = None,
    as_json: AsJson = None,
) -> None:
    """Deliver stored events again, to all subscribed Dags or to one.

    Without --go nothing happens but a preview: how many events, which runs.
    Events keep their time and identity and carry the replay's name. Without
    anything to choose by, the replays so far are listed.

    \b
    Examples:
      windsock replay
      windsock replay fix-1017 --watcher orders --since 24h --where "data.total > 100"
      windsock replay fix-1017 --watcher orders --since 24h --where "data.total > 100" --go
      windsock replay again --event order-1017 --dag fulfil --go
      windsock replay last-year --watcher orders --until 2025-12-31 --archived --dag report --go
    """
    from windsock.archive import ParquetArchive
    from windsock.recovery import preview
    from windsock.recovery import replay as deliver

    with plain_errors(), reading(log) as (opened, url):
        chosen = [watcher, asset, key, event, where, since, until]
        if not any(chosen):
            if name is not None:
                fail("choose events with --watcher, --asset, --key, --event, --where, --since or --until")
            _list(opened.replays(), url, as_json)
            return
        query = Scan(
            watchers=watcher or None,
            asset=asset,
            key=key,
            ids=event or None,
            since=None if since is None else moment(since),
            until=None if until is None else moment(until),
        )
        archive = ParquetArchive(connections) if archived else None
        if not go:
            result: object = preview(opened, query, where, dag_id=dag, archive=archive)
        elif name is None:
            fail("a replay that is made real needs a name: the same name delivers nothing twice")
        else:
            result = deliver(opened, name, query, where, dag_id=dag, cap=cap, archive=archive)
    if wants_json(as_json):
        print_json(result)
        return
    for field, value in msgspec.to_builtins(result).items():
        typer.echo(f"{field}: {value}")
    if not go:
        typer.echo("This was a preview: add --go to deliver them.")


def _list(replays: list[Replay], url: str, as_json: bool | None) -> None:
    plain = [msgspec.to_builtins(one) for one in replays]
    if wants_json(as_json):
        print_json(plain)
        return
    print_table(
        ("replay", "Dag", "begun", "# planned", "# made", "# skipped", "# under way"),
        [
            (
                one["id"],
                one["dag_id"] or "all",
                clock(one["created_at"]),
                one["planned"],
                one["made"],
                one["skipped"],
                one["under_way"],
            )
            for one in plain
        ],
        title=f"Replays in {url}, newest first",
        empty=f"No replays in {url}.",
    )
