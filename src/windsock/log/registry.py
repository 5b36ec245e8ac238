"""Who is there, and who reads: watchers, subscriptions, leases, cursors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from windsock.log.records import Beat, Kept, Lease, Start, Subscription
from windsock.log.transaction import Row, SqlPart, Transaction, check_lease, known
from windsock.spec import WatcherSpec, rate, start_time


class Registry(SqlPart):
    """The part of the log that knows the watchers, the Dags and the readers."""

    def register(self, spec: WatcherSpec, *, source: str, asset: str | None = None) -> None:
        allowed, window = rate(spec.rate_limit) if spec.rate_limit else (None, None)
        with self._transaction() as tx:
            tx.run(
                "put_watcher",
                name=spec.name,
                asset=asset,
                source=source,
                spec=msgspec.json.encode(spec).decode(),
                batch_size=spec.batch.size,
                batch_bytes=spec.batch.bytes,
                batch_within=spec.batch.within,
                batch_quiet=spec.batch.quiet,
                batch_leading=int(spec.batch.leading),
                batch_target=spec.batch.target or 0.0,
                dedupe=spec.dedupe,
                dedupe_asset=int(spec.dedupe_scope == "asset"),
                ordered=int(spec.key is not None),
                ordering=msgspec.json.encode(spec.sequence).decode() if spec.sequence else None,
                throttle=spec.throttle,
                rate_count=allowed,
                rate_window=window,
                priority=spec.priority,
                max_age=spec.max_age,
                max_attempts=spec.max_attempts,
                retry_delay=spec.retry_delay,
                history=int(spec.history),
            )

    def watchers(self, *, source: str | None = None, asset: str | None = None) -> list[WatcherSpec]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("all_watchers")
        return [
            spec_of(row) for row in rows if source in (None, row["source"]) and asset in (None, row["asset"])
        ]

    def watcher(self, name: str) -> WatcherSpec | None:
        with self._transaction(write=False) as tx:
            row = tx.row("get_watcher", name=name)
        return spec_of(row) if row else None

    def subscribe(
        self, watcher: str, dag_id: str, *, paused: bool = False, start: Start | None = None
    ) -> None:
        with self._transaction() as tx:
            self._subscribe(tx, watcher, dag_id, start)
            row = known(tx.row("get_watcher", name=watcher), watcher)
            tx.run("activate_subscription", watcher_id=row["id"], dag_id=dag_id, paused=int(paused))

    def _subscribe(self, tx: Transaction, watcher: str, dag_id: str, start: Start | None = None) -> Row:
        """The Dag's place, made if it is new, held until the end of the transaction."""
        place = tx.row("get_subscription", watcher=watcher, dag_id=dag_id)
        if place is None:
            row = known(tx.row("lock_watcher", name=watcher), watcher)
            others = tx.rows("count_subscriptions", watcher_id=row["id"])[0]["n"]
            if start is None:
                start = spec_of(row).new_dags or ("latest" if others else "earliest")
            first = position(tx, row, start)
            tx.run("insert_subscription", watcher_id=row["id"], dag_id=dag_id, start_seq=first)
            place = tx.row("get_subscription", watcher=watcher, dag_id=dag_id)
        return known(place, watcher)

    def unsubscribe(self, watcher: str, dag_id: str) -> None:
        with self._transaction() as tx:
            tx.run("deactivate_subscription", watcher=watcher, dag_id=dag_id)

    def subscriptions(
        self, *, watcher: str | None = None, dag_id: str | None = None, counts: bool = True
    ) -> list[Subscription]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("all_subscriptions", counts=int(counts))
        return [
            Subscription(
                watcher=row["watcher"],
                asset=row["asset"],
                dag_id=row["dag_id"],
                active=bool(row["active"]),
                paused=bool(row["paused"]),
                explicit=bool(row["explicit"]),
                pending=row["pending"],
                claimed=row["claimed"],
                dead=row["dead"],
            )
            for row in rows
            if watcher in (None, row["watcher"]) and dag_id in (None, row["dag_id"])
        ]

    def unwanted(self) -> set[str]:
        with self._transaction(write=False) as tx:
            return {row["source"] for row in tx.rows("unwanted_sources")}

    def acquire(self, name: str, owner: str, ttl: float) -> Lease | None:
        now = self._clock()
        with self._transaction() as tx:
            if tx.run("insert_lease", name=name, owner=owner, expires_at=now + ttl):
                return Lease(name=name, owner=owner, epoch=1, expires_at=now + ttl)
            held = known(tx.row("get_lease", name=name), name)
            if held["expires_at"] > now and held["owner"] != owner:
                return None
            lease = Lease(name=name, owner=owner, epoch=held["epoch"] + 1, expires_at=now + ttl)
            tx.run("update_lease", **msgspec.structs.asdict(lease))
            return lease

    def renew(self, lease: Lease, ttl: float) -> Lease:
        with self._transaction() as tx:
            check_lease(tx, lease)
            renewed = msgspec.structs.replace(lease, expires_at=self._clock() + ttl)
            tx.run("update_lease", **msgspec.structs.asdict(renewed))
            return renewed

    def beat(self, beats: Sequence[Beat], ttl: float) -> list[Kept | None]:
        now = self._clock()
        with self._transaction() as tx:
            held = {row["name"]: (row["owner"], row["epoch"]) for row in tx.rows("all_leases")}
            owned = [b for b in beats if held.get(b.lease.name) == (b.lease.owner, b.lease.epoch)]
            renewed = {b.lease.name: msgspec.structs.replace(b.lease, expires_at=now + ttl) for b in owned}
            tx.many("update_lease", [msgspec.structs.asdict(lease) for lease in renewed.values()])
            tx.many(
                "put_heartbeat",
                [
                    {
                        "source": beat.lease.name,
                        "owner": beat.lease.owner,
                        "state": beat.state,
                        "lag": beat.lag,
                        "error": beat.error,
                        "now": now,
                    }
                    for beat in owned
                ],
            )
            everything = any(beat.total for beat in owned)
            specs: dict[str, list[WatcherSpec]] = {name: [] for name in renewed}
            for row in tx.rows("all_watchers"):
                if everything or row["source"] in specs:
                    specs.setdefault(row["source"], []).append(spec_of(row))
            backlog = {
                name: sum(int(tx.rows("backlog", watcher=spec.name)[0]["n"]) for spec in watchers)
                for name, watchers in specs.items()
            }
        total = sum(backlog.values()) if everything else None
        highest = {name: max((spec.priority for spec in found), default=0) for name, found in specs.items()}
        ranks = {priority: rank for rank, priority in enumerate(sorted(set(highest.values())))}
        return [
            Kept(
                lease=renewed[name],
                backlog=backlog[name],
                specs=tuple(specs[name]),
                total=total,
                rank=ranks[highest[name]] if everything else 0,
            )
            if (name := beat.lease.name) in renewed and renewed[name].epoch == beat.lease.epoch
            else None
            for beat in beats
        ]

    def release(self, lease: Lease) -> None:
        with self._transaction() as tx:
            held = tx.row("get_lease", name=lease.name)
            if held and held["epoch"] == lease.epoch:
                ended = msgspec.structs.replace(lease, owner="", expires_at=0.0)
                tx.run("update_lease", **msgspec.structs.asdict(ended))

    def cursor(self, source: str) -> dict[str, Any] | None:
        with self._transaction(write=False) as tx:
            row = tx.row("get_cursor", source=source)
        return msgspec.json.decode(row["cursor"]) if row and row["cursor"] else None


def position(tx: Transaction, watcher: Row, start: Start) -> int:
    """The seq after which a Dag that begins there has its place."""
    if start == "earliest":
        return 0
    if start == "latest":
        return int(watcher["last_seq"])
    moment = start if isinstance(start, float | int) else start_time(start)
    return int(tx.rows("last_before", watcher_id=watcher["id"], at=moment)[0]["seq"])


def spec_of(row: Row) -> WatcherSpec:
    """The definition in a row; the same object as long as it is the same."""
    return _decoded(row["spec"])


@lru_cache(maxsize=4096)
def _decoded(spec: str) -> WatcherSpec:
    return msgspec.json.decode(spec, type=WatcherSpec)
