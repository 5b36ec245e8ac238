"""`windsock erase`: delete what is stored of one key, with a receipt."""

from __future__ import annotations

import getpass
from typing import Annotated

import msgspec
import typer

from windsock.cli.reading import LogOption, connections, reading
from windsock.cli.terminal import fail, iso, plain_errors, print_json
from windsock.log.archive import Receipt

__all__ = ["erase"]


def erase(
    key: Annotated[str | None, typer.Option(help="The key of the events.")] = None,
    watcher: Annotated[str | None, typer.Option(help="Only of this watcher; by default of all.")] = None,
    requested_by: Annotated[
        str | None, typer.Option("--by", help="Who asked for it; by default who you are here.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and do nothing.")
    ] = False,
    receipts: Annotated[bool, typer.Option("--receipts", help="Show the receipts so far.")] = False,
    log: LogOption = None,
) -> None:
    """Delete everything that is stored of one key, and print a receipt as JSON.

    Events go, whoever still needs them, with dead letters, verdicts, what waits
    for its turn, snapshots and rows of read models; archive files are written
    anew without them. The receipt has counts, a time and a hash of the key, and
    stays in the log. May be run again.

    \b
    Examples:
      windsock erase --key customer-17 --dry-run
      windsock erase --key customer-17 --by privacy@example.com > receipt.json
      windsock erase --receipts
    """
    from windsock.archive import ParquetArchive
    from windsock.erasure import erase as delete

    with plain_errors(), reading(log) as (opened, _):
        if receipts:
            print_json([_plain(receipt) for receipt in opened.receipts()])
            return
        if not key:
            fail("name the key of the events with --key, or see the receipts so far with --receipts")
        receipt = delete(
            opened,
            key=key,
            watcher=watcher,
            requested_by=requested_by or getpass.getuser(),
            archive=ParquetArchive(connections),
            dry_run=dry_run,
        )
    print_json({"dry_run": True, **_plain(receipt)} if dry_run else _plain(receipt))


def _plain(receipt: Receipt) -> dict[str, object]:
    times = {name: iso(getattr(receipt, name)) for name in ("begun_at", "finished_at")}
    return {**msgspec.to_builtins(receipt), **times}
