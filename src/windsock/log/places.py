"""Where a Dag begins in a watcher's events, and moving its place.

Everything behind a subscription's frontier has a row, so a place that moves forward leaves settled rows for
what it passes over, and one that moves back gets waiting rows for what it was never given.
"""

from __future__ import annotations

from windsock.log.records import Moved, Start
from windsock.log.registry import Registry, position
from windsock.log.transaction import LogError

__all__ = ["Places"]


class Places(Registry):
    """The part of the log that moves a Dag's place."""

    def move(self, watcher: str, dag_id: str, to: Start, *, dry_run: bool = False) -> Moved:
        with self._transaction(write=not dry_run) as tx:
            place = tx.row("get_subscription", watcher=watcher, dag_id=dag_id)
            row = tx.row("get_watcher", name=watcher)
            if place is None or row is None:
                raise LogError(f"Dag {dag_id!r} has no place in the events of watcher {watcher!r}")
            target = position(tx, row, to)
            at = {"id": place["id"], "target": target}
            stored = {"watcher_id": place["watcher_id"], **at}
            ahead = target >= place["frontier"]
            if ahead:
                fresh = {"frontier": place["frontier"], **stored}
                skipped, unseen = int(tx.rows("count_skippable", **fresh)[0]["n"]), 0
            else:
                before = {"start_seq": place["start_seq"], **stored}
                skipped, unseen = 0, int(tx.rows("count_unseen", **before)[0]["n"])
            moved = Moved(
                watcher=watcher,
                dag_id=dag_id,
                position=target,
                skipped=skipped,
                added=unseen,
                seen=0 if ahead else int(tx.rows("count_seen", **at)[0]["n"]),
            )
            if dry_run:
                return moved
            if ahead:
                tx.run("skip_fresh", **fresh)
                tx.run("skip_waiting", **at)
                tx.run("move_frontier", subscription_id=place["id"], frontier=target)
            else:
                tx.run("give_unseen", **before)
                tx.run("begin_earlier", **at)
            tx.run("wake_place", id=place["id"])
        return moved
