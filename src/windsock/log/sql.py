"""The log on a SQL database: everything but the connection and the bulk statements.

The statements are in ``queries.sql``; :class:`SqliteLog` and :class:`PostgresLog` say how a transaction is
opened and how many rows are written at once. The database is authoritative: no state is kept here.
"""

from __future__ import annotations

import abc
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import Any

import msgspec

from windsock.events import Category, Event, LeaseLost, WindsockError, clean_text
from windsock.log.base import (
    Announcement,
    Appended,
    DeadRecord,
    EventQuery,
    EventRecord,
    Lease,
    State,
    Subscription,
    WatcherHealth,
    Write,
)
from windsock.log.ranges import pack, unpack
from windsock.spec import WatcherSpec

__all__ = ["LogError", "LogUnavailable", "SqlLog", "Transaction", "load_queries", "migrations"]

REMIND_AFTER = 30.0
"""Seconds after which an announcement that led to no claim is made again; doubles each time."""

MAX_DELAY = 3600.0
"""The longest wait between two reminders or two deliveries of an event."""

_ALL = 1_000_000_000
_PAGE = 500

Row = Mapping[str, Any]


class LogError(WindsockError):
    """The log was asked for something that it does not have."""


class LogUnavailable(WindsockError):
    """The log's database cannot be reached; nothing was changed, or it is unknown whether it was."""


def load_queries(**tokens: str) -> dict[str, str]:
    """The statements of ``queries.sql`` by name, with the dialect's tokens filled in."""
    text = resources.files(__package__).joinpath("queries.sql").read_text("utf-8")
    queries = {}
    for block in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        sql = "\n".join(line for line in rest.splitlines() if not line.startswith("--")).strip()
        for token, value in tokens.items():
            sql = sql.replace("{" + token + "}", value)
        queries[name.strip()] = sql
    return queries


def migrations(dialect: str) -> list[tuple[int, str]]:
    """(version, SQL) of every migration of a dialect, in order."""
    folder = resources.files(__package__).joinpath("migrations", dialect)
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(item.name.split("_")[0]), item.read_text("utf-8")) for item in files]


class Transaction(abc.ABC):
    """An open transaction: named statements, and the bulk writes of a dialect."""

    @abc.abstractmethod
    def rows(self, name: str, /, **params: Any) -> list[Row]:
        """Run a named statement and return its rows."""

    @abc.abstractmethod
    def run(self, name: str, /, **params: Any) -> int:
        """Run a named statement and return how many rows it changed."""

    @abc.abstractmethod
    def many(self, name: str, params: Sequence[Mapping[str, Any]]) -> None:
        """Run a named statement once for each set of parameters."""

    @abc.abstractmethod
    def take_seqs(self, count: int) -> Sequence[int]:
        """``count`` new positions in the log, ascending."""

    @abc.abstractmethod
    def remember(
        self, hashes: Sequence[bytes], seqs: Sequence[int], expires_at: float | None, now: float
    ) -> dict[bytes, int]:
        """Store the dedup keys that are new; return those that were known, with the seq that has them."""

    @abc.abstractmethod
    def insert_events(
        self,
        watcher_id: int,
        events: Sequence[Event],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        now: float,
    ) -> None:
        """Store events at their positions."""

    def row(self, name: str, /, **params: Any) -> Row | None:
        """The first row of a named statement."""
        rows = self.rows(name, **params)
        return rows[0] if rows else None


class SqlLog(abc.ABC):
    """Implements :class:`windsock.log.base.Log` over :class:`Transaction`."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    @abc.abstractmethod
    def _transaction(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """Open a transaction that commits at the end of the block and rolls back on an error."""

    @abc.abstractmethod
    def _select(self, where: str) -> str:
        """The ``list_events`` statement with its conditions."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    # who is there

    def register(self, spec: WatcherSpec, *, source: str, asset: str | None = None) -> None:
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
                dedupe=spec.dedupe,
                ordered=int(spec.key is not None),
                max_attempts=spec.max_attempts,
                retry_delay=spec.retry_delay,
            )

    def watchers(self, *, source: str | None = None, asset: str | None = None) -> list[WatcherSpec]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("all_watchers")
        return [
            _spec(row) for row in rows if source in (None, row["source"]) and asset in (None, row["asset"])
        ]

    def watcher(self, name: str) -> WatcherSpec | None:
        with self._transaction(write=False) as tx:
            row = tx.row("get_watcher", name=name)
        return _spec(row) if row else None

    def subscribe(self, watcher: str, dag_id: str, *, paused: bool = False) -> None:
        with self._transaction() as tx:
            self._subscribe(tx, watcher, dag_id)
            row = _known(tx.row("get_watcher", name=watcher), watcher)
            tx.run("activate_subscription", watcher_id=row["id"], dag_id=dag_id, paused=int(paused))

    def _subscribe(self, tx: Transaction, watcher: str, dag_id: str) -> Row:
        """The Dag's place, made if it is new, held until the end of the transaction."""
        place = tx.row("get_subscription", watcher=watcher, dag_id=dag_id)
        if place is None:
            row = _known(tx.row("lock_watcher", name=watcher), watcher)
            others = tx.rows("count_subscriptions", watcher_id=row["id"])[0]["n"]
            start = row["last_seq"] if others else 0
            tx.run("insert_subscription", watcher_id=row["id"], dag_id=dag_id, paused=0, start_seq=start)
            place = tx.row("get_subscription", watcher=watcher, dag_id=dag_id)
        return _known(place, watcher)

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

    def wanted(self, source: str) -> bool:
        with self._transaction(write=False) as tx:
            row = tx.rows("source_wanted", source=source)[0]
        return bool(row["active"]) or not row["ever"]

    # who reads

    def acquire(self, name: str, owner: str, ttl: float) -> Lease | None:
        now = self._clock()
        with self._transaction() as tx:
            if tx.run("insert_lease", name=name, owner=owner, expires_at=now + ttl):
                return Lease(name=name, owner=owner, epoch=1, expires_at=now + ttl)
            held = _known(tx.row("get_lease", name=name), name)
            if held["expires_at"] > now and held["owner"] != owner:
                return None
            lease = Lease(name=name, owner=owner, epoch=held["epoch"] + 1, expires_at=now + ttl)
            tx.run("update_lease", **msgspec.structs.asdict(lease))
            return lease

    def renew(self, lease: Lease, ttl: float) -> Lease:
        with self._transaction() as tx:
            _check_lease(tx, lease)
            renewed = msgspec.structs.replace(lease, expires_at=self._clock() + ttl)
            tx.run("update_lease", **msgspec.structs.asdict(renewed))
            return renewed

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

    # what arrives

    def append(
        self,
        writes: Sequence[Write],
        *,
        source: str | None = None,
        cursor: dict[str, Any] | None = None,
        lease: Lease | None = None,
    ) -> list[Appended]:
        now = self._clock()
        results: dict[int, Appended] = {}
        with self._transaction() as tx:
            if lease is not None:
                _check_lease(tx, lease)
            # Watchers are locked in one order everywhere, so that two appends cannot wait for each other.
            for index, write in sorted(enumerate(writes), key=lambda item: (item[1].watcher, item[0])):
                results[index] = self._append_one(tx, write, now)
            if source is not None and cursor is not None:
                tx.run("put_cursor", source=source, cursor=msgspec.json.encode(cursor).decode())
        return [results[index] for index in range(len(writes))]

    def _append_one(self, tx: Transaction, write: Write, now: float) -> Appended:
        watcher = _known(tx.row("lock_watcher", name=write.watcher), write.watcher)
        events = list(write.events)
        bodies = list(write.bodies) or [event.encode() for event in events]
        seqs = tx.take_seqs(len(events)) if events else ()
        duplicates: list[tuple[Event, int]] = []
        if write.dedup:
            expires_at = None if watcher["dedupe"] is None else now + watcher["dedupe"]
            # Backwards, so that of two events with one key inside the write the earlier one stays.
            first = dict(zip(reversed(write.dedup), reversed(seqs), strict=True))
            known = tx.remember(list(first), list(first.values()), expires_at, now)
            if known or len(first) < len(events):
                first |= known
                fresh = [first[digest] == seq for digest, seq in zip(write.dedup, seqs, strict=True)]
                duplicates = [
                    (event, first[digest])
                    for event, digest, new in zip(events, write.dedup, fresh, strict=True)
                    if not new
                ]
                bodies = [body for body, new in zip(bodies, fresh, strict=True) if new]
                events = [event for event, new in zip(events, fresh, strict=True) if new]
                seqs = [seq for seq, new in zip(seqs, fresh, strict=True) if new]
        if events:
            tx.insert_events(watcher["id"], events, bodies, seqs, now)
        self._batch(tx, watcher, write, bodies, seqs, len(duplicates), now)
        tx.many(
            "insert_dead_letter",
            [
                {
                    "watcher_id": watcher["id"], "seq": None, "dag_id": None, "run_id": None,
                    "stage": letter.stage, "category": letter.category.value, "reason": letter.reason,
                    "error": letter.error, "attempts": 0, "now": now, "body": letter.body,
                }
                for letter in write.dead
            ],
        )  # fmt: skip
        return Appended(
            new=[msgspec.structs.replace(e, seq=s) for e, s in zip(events, seqs, strict=True)],
            duplicates=duplicates,
        )

    def _batch(
        self,
        tx: Transaction,
        watcher: Row,
        write: Write,
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        duplicates: int,
        now: float,
    ) -> None:
        """Put new events into the watcher's open batch, closing it as often as a limit is reached."""
        first, count, size = watcher["open_first"], watcher["open_count"], watcher["open_bytes"]
        closed_seq, opened_at = watcher["closed_seq"], watcher["opened_at"]
        closed: list[dict[str, Any]] = []

        def shut(last: int, reason: str) -> None:
            nonlocal first, count, size, closed_seq, opened_at
            closed.append(
                {
                    "watcher_id": watcher["id"], "first_seq": first, "last_seq": last, "count": count,
                    "bytes": size, "reason": reason, "now": now,
                }
            )  # fmt: skip
            first, count, size, closed_seq, opened_at = None, 0, 0, last, None

        for seq, body in zip(seqs, bodies, strict=True):
            if first is None:
                first, opened_at = seq, now
            count += 1
            size += len(body)
            if count >= watcher["batch_size"]:
                shut(seq, "size")
            elif size >= watcher["batch_bytes"]:
                shut(seq, "bytes")
        if count and (write.flush or not (watcher["batch_within"] or watcher["batch_quiet"])):
            shut(seqs[-1] if seqs else watcher["last_seq"], "flush" if write.flush else "append")
        tx.many("insert_batch", closed)
        tx.run(
            "update_watcher",
            id=watcher["id"],
            last_seq=seqs[-1] if seqs else watcher["last_seq"],
            closed_seq=closed_seq,
            open_first=first,
            open_count=count,
            open_bytes=size,
            opened_at=opened_at,
            last_event_at=now if seqs else watcher["last_event_at"],
            logged=len(seqs),
            duplicates=duplicates,
            filtered=write.filtered,
            dead=len(write.dead),
        )

    def close_batches(self) -> int:
        now = self._clock()
        with self._transaction(write=False) as tx:
            if not tx.rows("ripe_batches", now=now):
                return 0
        with self._transaction() as tx:
            ripe = tx.rows("ripe_batches", now=now)
            for row in ripe:
                waited = row["batch_within"] and row["opened_at"] + row["batch_within"] <= now
                tx.run(
                    "insert_batch",
                    watcher_id=row["id"],
                    first_seq=row["open_first"],
                    last_seq=row["last_seq"],
                    count=row["open_count"],
                    bytes=row["open_bytes"],
                    reason="within" if waited else "quiet",
                    now=now,
                )
                tx.run("close_open_batch", id=row["id"])
            return len(ripe)

    # who is told

    def due(self, watchers: Sequence[str], *, inline: int = 0, inline_bytes: int = 0) -> list[Announcement]:
        now = self._clock()
        announcements = []
        with self._transaction(write=False) as tx:
            for name in watchers:
                told = []
                for place in tx.rows("due_subscriptions", watcher=name, now=now):
                    rows, _ = self._claimable(tx, place, place["closed_seq"], inline + 1, now)
                    if rows:
                        told.append((place, rows))
                if told:
                    announcements.append(self._announcement(tx, name, told, now, inline, inline_bytes))
        return announcements

    def _announcement(
        self,
        tx: Transaction,
        watcher: str,
        told: Sequence[tuple[Row, Sequence[Row]]],
        now: float,
        inline: int,
        inline_bytes: int,
    ) -> Announcement:
        """What is told to these places, each with the oldest rows that it could claim."""
        offered = {row["seq"]: row for _, rows in told for row in rows}
        events = [offered[seq] for seq in sorted(offered)]
        first, count = events[0]["seq"], len(events)
        if any(len(rows) > inline for _, rows in told):
            count = max(
                tx.rows(
                    "count_claimable",
                    id=place["id"],
                    watcher_id=place["watcher_id"],
                    frontier=place["frontier"],
                    closed_seq=place["closed_seq"],
                    ordered=place["ordered"],
                    now=now,
                )[0]["n"]
                for place, _ in told
            )
        if count > inline or sum(len(row["body"]) for row in events) > inline_bytes:
            events = []
        places = [place for place, _ in told]
        stand = ",".join(f"{place['id']}.{place['claims']}.{place['wakes']}" for place in places)
        up_to = max(place["closed_seq"] for place in places)
        return Announcement(
            id=f"{watcher}:{up_to}:{hashlib.blake2b(stand.encode(), digest_size=8).hexdigest()}",
            watcher=watcher,
            first=first,
            up_to=up_to,
            count=count,
            reminder=any(place["wakes"] for place in places),
            events=[Event.decode(row["body"], seq=row["seq"], attempt=row["attempts"]) for row in events],
            claims={place["dag_id"]: place["claims"] for place in places},
        )

    def announced(self, announcement: Announcement) -> None:
        now = self._clock()
        with self._transaction() as tx:
            tx.run(
                "insert_announcement",
                id=announcement.id,
                watcher=announcement.watcher,
                first_seq=announcement.first,
                up_to=announcement.up_to,
                count=announcement.count,
                now=now,
            )
            tx.run("mark_batches_announced", watcher=announcement.watcher, up_to=announcement.up_to, now=now)
            for dag_id, claims in sorted(announcement.claims.items()):
                tx.run(
                    "wake_subscription",
                    watcher=announcement.watcher,
                    dag_id=dag_id,
                    claims=claims,
                    now=now,
                    delay=REMIND_AFTER,
                    max_delay=MAX_DELAY,
                )

    # who has it

    def claim(
        self, watchers: Sequence[str], dag_id: str, run_id: str, *, limit: int | None = None
    ) -> list[Event]:
        now = self._clock()
        with self._transaction() as tx:
            places = [self._subscribe(tx, name, dag_id) for name in sorted(set(watchers))]
            held = self._held(tx, places, run_id)
            if held is not None:
                return held
            if limit is None:
                limit = max((place["batch_size"] for place in places), default=0)
            offers = [self._claimable(tx, place, place["closed_seq"], limit, now) for place in places]
            picked = sorted((row for rows, _ in offers for row in rows), key=lambda row: int(row["seq"]))[
                :limit
            ]
            end = picked[-1]["seq"] if picked else 0
            for place, (rows, blocked) in zip(places, offers, strict=True):
                tx.run("mark_explicit", subscription_id=place["id"])
                mine = [row["seq"] for row in rows if row["seq"] <= end]
                left = rows[len(mine)]["seq"] if len(mine) < len(rows) else float("inf")
                passed = [seq for seq in blocked if seq < left]
                self._take(tx, place, run_id, mine, passed, implicit=False, now=now)
        return [Event.decode(row["body"], seq=row["seq"], attempt=row["attempts"]) for row in picked]

    def _held(self, tx: Transaction, places: Sequence[Row], run_id: str) -> list[Event] | None:
        """What the run has already; a claim that it did not make itself, or that is empty, is taken back."""
        events: list[Event] = []
        found = False
        for place in places:
            claim = tx.row("get_claim", subscription_id=place["id"], run_id=run_id)
            if claim is None:
                continue
            ranges = unpack(claim["ranges"])
            if not ranges or (claim["implicit"] and claim["state"] == "active"):
                tx.run("release_entries", claim_id=claim["id"])
                tx.run("detach_entries", claim_id=claim["id"])
                tx.run("delete_claim", claim_id=claim["id"])
                continue
            found = True
            for first, last in ranges:
                bounds = {"subscription_id": place["id"], "first": first, "last": last}
                if claim["state"] != "active":
                    tx.run("retake_range", claim_id=claim["id"], **bounds)
                    tx.run("forget_dead_range", dag_id=place["dag_id"], run_id=run_id, first=first, last=last)
                events += [
                    Event.decode(row["body"], seq=row["seq"], attempt=row["attempts"])
                    for row in tx.rows("claimed_range", **bounds)
                ]
            tx.run("reopen_claim", claim_id=claim["id"])
            tx.run("mark_explicit", subscription_id=place["id"])
        return sorted(events, key=lambda event: event.seq or 0) if found else None

    def _claimable(
        self, tx: Transaction, place: Row, up_to: int, limit: int, now: float
    ) -> tuple[list[Row], list[int]]:
        """Up to ``limit`` rows that a run may have, oldest first, and the seqs passed over for their key."""
        busy: set[str] = set()
        if place["ordered"]:
            busy = {row["key"] for row in tx.rows("busy_keys", subscription_id=place["id"], now=now)}
        rows: list[Row] = []
        blocked: list[int] = []
        for row in self._waiting_then_fresh(tx, place, up_to, limit, now):
            if len(rows) >= limit:
                break
            if row["key"] in busy:
                blocked.append(row["seq"])
            else:
                rows.append(row)
        return rows, blocked

    def _waiting_then_fresh(
        self, tx: Transaction, place: Row, up_to: int, limit: int, now: float
    ) -> Iterator[Row]:
        """Candidates in the order of the log: what came back is always older than what is fresh."""
        # With order by key all of them are looked at: a fresh event must not overtake one further down.
        most = _ALL if place["ordered"] else limit
        yield from tx.rows("waiting_entries", subscription_id=place["id"], up_to=up_to, limit=most, now=now)
        after = place["frontier"]
        page = max(limit, _PAGE) if place["ordered"] else limit
        while rows := tx.rows(
            "fresh_events", watcher_id=place["watcher_id"], after=after, up_to=up_to, limit=page
        ):
            yield from rows
            after = rows[-1]["seq"]

    def _take(
        self,
        tx: Transaction,
        place: Row,
        run_id: str,
        seqs: Sequence[int],
        blocked: Sequence[int],
        *,
        implicit: bool,
        now: float,
    ) -> None:
        """Give the picked events to the run and move the subscription's frontier past them.

        Every fresh event up to the last one is either picked or blocked: the frontier leaves no gap.
        """
        claim_id = tx.rows(
            "insert_claim",
            subscription_id=place["id"],
            run_id=run_id,
            implicit=int(implicit),
            ranges=pack(seqs),
            now=now,
        )[0]["id"]
        frontier = place["frontier"]
        returned = [seq for seq in seqs if seq <= frontier]
        last = max([*seqs, *blocked], default=frontier)
        tx.many(
            "take_entry",
            [{"subscription_id": place["id"], "claim_id": claim_id, "seq": seq} for seq in returned],
        )
        if last > frontier:
            tx.run(
                "insert_entries",
                subscription_id=place["id"],
                claim_id=claim_id,
                watcher_id=place["watcher_id"],
                after=frontier,
                up_to=last,
            )
        tx.many("block_entry", [{"subscription_id": place["id"], "seq": seq} for seq in blocked])
        tx.run("advance_subscription", subscription_id=place["id"], frontier=max(frontier, last))

    def claim_announced(self, watcher: str, dag_id: str, run_id: str, up_to: int) -> int:
        now = self._clock()
        with self._transaction() as tx:
            place = self._subscribe(tx, watcher, dag_id)
            if place["explicit"] or tx.row("get_claim", subscription_id=place["id"], run_id=run_id):
                return 0
            up_to = min(up_to, place["closed_seq"])
            rows, blocked = self._claimable(tx, place, up_to, _ALL, now)
            seqs = [row["seq"] for row in rows]
            self._take(tx, place, run_id, seqs, blocked, implicit=True, now=now)
            return len(seqs)

    def settle(self, dag_id: str, run_id: str, *, ok: bool, reason: str = "") -> int:
        now = self._clock()
        settled = 0
        with self._transaction() as tx:
            for claim in tx.rows("run_claims", dag_id=dag_id, run_id=run_id):
                ids = {"claim_id": claim["id"]}
                if ok:
                    settled += tx.run("finish_entries", **ids)
                else:
                    settled += tx.run(
                        "return_entries",
                        now=now,
                        retry_delay=claim["retry_delay"],
                        max_delay=MAX_DELAY,
                        max_attempts=claim["max_attempts"],
                        **ids,
                    )
                    tx.run(
                        "bury_letters",
                        dag_id=dag_id,
                        run_id=run_id,
                        reason=clean_text(reason) or f"run {run_id} of Dag {dag_id} failed",
                        now=now,
                        **ids,
                    )
                    buried = tx.run("bury_entries", **ids)
                    if buried:
                        tx.run("count_dead", watcher_id=claim["watcher_id"], n=buried)
                    settled += buried
                tx.run("settle_claim", state="done" if ok else "failed", now=now, **ids)
                tx.run("unblock", subscription_id=claim["subscription_id"])
        return settled

    def release_run(self, dag_id: str, run_id: str) -> int:
        released = 0
        with self._transaction() as tx:
            for claim in tx.rows("run_claims", dag_id=dag_id, run_id=run_id):
                released += tx.run("release_entries", claim_id=claim["id"])
                tx.run("settle_claim", claim_id=claim["id"], state="released", now=self._clock())
                tx.run("unblock", subscription_id=claim["subscription_id"])
        return released

    def dead_letter(self, dag_id: str, run_id: str, seq: int, reason: str) -> None:
        with self._transaction() as tx:
            entry = tx.row("get_entry", dag_id=dag_id, run_id=run_id, seq=seq)
            if entry is None:
                raise LogError(f"event {seq} is not claimed by run {run_id!r} of Dag {dag_id!r}")
            if entry["state"] == State.DEAD:
                return
            tx.run("bury_entry", subscription_id=entry["subscription_id"], seq=seq)
            tx.run("count_dead", watcher_id=entry["watcher_id"], n=1)
            tx.run(
                "insert_dead_letter",
                watcher_id=entry["watcher_id"],
                seq=seq,
                dag_id=dag_id,
                run_id=run_id,
                stage="dag",
                category=Category.REJECTED.value,
                reason=clean_text(reason),
                error=None,
                attempts=entry["attempts"] + 1,
                now=self._clock(),
                body=entry["body"],
            )

    def active_runs(self) -> list[tuple[str, str]]:
        with self._transaction(write=False) as tx:
            return [(row["dag_id"], row["run_id"]) for row in tx.rows("active_runs")]

    # what is known

    def events(self, query: EventQuery) -> list[EventRecord]:
        conditions = {
            "id": "id = :id",
            "key": "key = :key",
            "type": "type = :type",
            "watcher": "watcher = :watcher",
            "asset": "asset = :asset",
            "dag_id": "dag_id = :dag_id",
            "state": "state = :state",
            "since": "received_at >= :since",
            "until": "received_at < :until",
            "before": "seq < :before",
            "text": "lower({text}) LIKE lower(:text) ESCAPE '!'",
        }
        given = {name: value for name, value in msgspec.structs.asdict(query).items() if value is not None}
        where = " AND ".join(sql for name, sql in conditions.items() if name in given) or "1 = 1"
        if query.text is not None:
            escaped = re.sub(r"([!%_])", r"!\1", query.text)
            given["text"] = f"%{escaped}%"
        with self._transaction(write=False) as tx:
            rows = tx.rows(self._select(where), **given)
            if len(rows) == query.limit > 0:
                # The page ends with all records of its last event, so that the next one can begin before it.
                last = rows[-1]["seq"]
                rows = [row for row in rows if row["seq"] != last]
                given |= {"last": last, "limit": _ALL}
                rows += tx.rows(self._select(f"{where} AND seq = :last"), **given)
        return [
            EventRecord(
                event=Event.decode(row["body"], seq=row["seq"], attempt=row["attempts"]),
                watcher=row["watcher"],
                asset=row["asset"],
                received_at=row["received_at"],
                batch=row["batch"],
                dag_id=row["dag_id"],
                state=State(row["state"]),
                run_id=row["run_id"],
                attempts=row["attempts"],
            )
            for row in rows
        ]

    def dead_letters(self, *, watcher: str | None = None, limit: int = 100) -> list[DeadRecord]:
        with self._transaction(write=False) as tx:
            rows = tx.rows("dead_letters", watcher=watcher or "", limit=limit)
        return [DeadRecord(**{name: row[name] for name in DeadRecord.__struct_fields__}) for row in rows]

    def backlog(self, watchers: Sequence[str]) -> int:
        with self._transaction(write=False) as tx:
            return sum(int(tx.rows("backlog", watcher=name)[0]["n"]) for name in watchers)

    def heartbeat(
        self, source: str, owner: str, state: str, *, lag: int | None = None, error: str | None = None
    ) -> None:
        with self._transaction() as tx:
            tx.run(
                "put_heartbeat",
                source=source,
                owner=owner,
                state=state,
                lag=lag,
                error=error,
                now=self._clock(),
            )

    def health(self) -> list[WatcherHealth]:
        with self._transaction(write=False) as tx:
            rows = [
                {**row, "backlog": tx.rows("backlog", watcher=row["watcher"])[0]["n"]}
                for row in tx.rows("health")
            ]
        return [WatcherHealth(**row) for row in rows]

    def purge(self, *, before: float) -> int:
        now = self._clock()
        purged = 0
        with self._transaction(write=False) as tx:
            ids = [row["id"] for row in tx.rows("all_watchers")]
        for watcher_id in ids:
            while True:
                with self._transaction() as tx:
                    rows = tx.rows("purgeable", watcher_id=watcher_id, before=before)
                    tx.many("purge_event", [{"seq": row["seq"]} for row in rows])
                    tx.many("purge_entry", [{"seq": row["seq"], "watcher_id": watcher_id} for row in rows])
                purged += len(rows)
                if not rows:
                    break
        with self._transaction() as tx:
            tx.run("purge_claims", before=before)
            tx.run("purge_batches", before=before)
            tx.run("purge_announcements", before=before)
            tx.run("purge_dedup", now=now)
        return purged


def _spec(row: Row) -> WatcherSpec:
    return msgspec.json.decode(row["spec"], type=WatcherSpec)


def _known(row: Row | None, name: str) -> Row:
    if row is None:
        raise LogError(
            f"watcher {name!r} is not registered in the log: is a Dag scheduled on its asset, and parsed?"
        )
    return row


def _check_lease(tx: Transaction, lease: Lease) -> None:
    held = tx.row("get_lease", name=lease.name)
    if held is None or held["epoch"] != lease.epoch or held["owner"] != lease.owner:
        raise LeaseLost(f"lease {lease.name!r} of {lease.owner!r} (epoch {lease.epoch}) was taken over")
