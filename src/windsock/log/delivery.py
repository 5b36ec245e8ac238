"""Who is told and who has it: announcements, claims and their outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from windsock.events import Category, Event, clean_text
from windsock.log.failures import Failures, fail_claim, failures_of, forget_failures
from windsock.log.ranges import pack, unpack
from windsock.log.records import Announcement, State
from windsock.log.registry import Registry
from windsock.log.transaction import ALL, MAX_DELAY, LogError, Row, Transaction, delivered

REMIND_AFTER = 30.0
"""Seconds after which an announcement that led to no claim is made again; doubles each time."""

_PAGE = 500


class Delivery(Registry, Failures):
    """The part of the log that gives events to runs."""

    def due(self, watchers: Sequence[str], *, inline: int = 0, inline_bytes: int = 0) -> list[Announcement]:
        now = self._clock()
        announcements = []
        with self._transaction(write=False) as tx:
            due = {row["name"] for row in tx.rows("due_watchers", now=now)}
            for name in watchers:
                if name not in due:
                    continue
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
            events=[delivered(row) for row in events],
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
            tx.run("mark_announced", watcher=announcement.watcher, now=now)
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
            offers = [
                self._claimable(tx, place, place["closed_seq"], min(limit, _allowance(place, now)), now)
                for place in places
            ]
            picked = _pick(places, [rows for rows, _ in offers], limit)
            for place, (rows, blocked) in zip(places, offers, strict=True):
                tx.run("mark_explicit", subscription_id=place["id"])
                mine = [seq for seq, owner, _ in picked if owner == place["id"]]
                left = rows[len(mine)]["seq"] if len(mine) < len(rows) else float("inf")
                passed = [seq for seq in blocked if seq < left]
                self._take(tx, place, run_id, mine, passed, implicit=False, now=now)
                if place["rate_count"] and mine:
                    tx.run(
                        "use_rate",
                        subscription_id=place["id"],
                        window=place["rate_window"],
                        n=len(mine),
                        now=now,
                    )
        return [delivered(row) for _, _, row in sorted(picked, key=lambda one: one[0])]

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
                    tx.run("forget_dead_range", dag_id=place["dag_id"], run_id=run_id, **bounds)
                events += [delivered(row) for row in tx.rows("claimed_range", **bounds)]
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
        most = ALL if place["ordered"] else limit
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
            first_seq=seqs[0] if seqs else 0,
            last_seq=seqs[-1] if seqs else 0,
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

    def expire(self) -> int:
        now = self._clock()
        with self._transaction(write=False) as tx:
            aging = tx.rows("aging_places", now=now)
        expired = 0
        for row in aging:
            with self._transaction() as tx:
                place = self._subscribe(tx, row["watcher"], row["dag_id"])
                expired += self._expire(tx, place, row["before"], now)
        return expired

    def _expire(self, tx: Transaction, place: Row, before: float, now: float) -> int:
        """Set aside what has waited for this Dag since before that time."""
        ids = {"subscription_id": place["id"]}
        fresh = {"watcher_id": place["watcher_id"], "frontier": place["frontier"]}
        last = tx.rows("last_expired", closed_seq=place["closed_seq"], before=before, **fresh)[0]["seq"]
        if last is not None:
            tx.run("expire_fresh", up_to=last, **ids, **fresh)
            tx.run("move_frontier", frontier=last, **ids)
        reason = "it waited longer than the watcher's max_age"
        expired = tx.run(
            "expired_letters", dag_id=place["dag_id"], reason=reason, before=before, now=now, **ids
        )
        if expired:
            tx.run("expire_entries", before=before, **ids)
            tx.run("count_dead", watcher_id=place["watcher_id"], n=expired)
            tx.run("unblock", **ids)
        return expired

    def claim_announced(self, watcher: str, dag_id: str, run_id: str, up_to: int) -> int:
        now = self._clock()
        with self._transaction() as tx:
            place = self._subscribe(tx, watcher, dag_id)
            if place["explicit"] or tx.row("get_claim", subscription_id=place["id"], run_id=run_id):
                return 0
            up_to = min(up_to, place["closed_seq"])
            rows, blocked = self._claimable(tx, place, up_to, ALL, now)
            seqs = [row["seq"] for row in rows]
            self._take(tx, place, run_id, seqs, blocked, implicit=True, now=now)
            return len(seqs)

    def settle(self, dag_id: str, run_id: str, *, ok: bool, reason: str = "") -> int:
        now = self._clock()
        settled = 0
        with self._transaction() as tx:
            if ok:
                self._reopen(tx, dag_id, run_id)
            claims = tx.rows("run_claims", dag_id=dag_id, run_id=run_id)
            failures = [] if ok else failures_of(tx, dag_id, run_id, claims)
            why = clean_text(reason) or f"run {run_id} of Dag {dag_id} failed"
            for claim in claims:
                if ok:
                    settled += tx.run("finish_entries", claim_id=claim["id"])
                else:
                    settled += fail_claim(tx, claim, run_id, failures, why, now)
                tx.run("settle_claim", state="done" if ok else "failed", now=now, claim_id=claim["id"])
                tx.run("unblock", subscription_id=claim["subscription_id"])
            forget_failures(tx, dag_id, run_id, now)
        return settled

    def reopen(self, dag_id: str, run_id: str) -> int:
        with self._transaction() as tx:
            return self._reopen(tx, dag_id, run_id)

    def _reopen(self, tx: Transaction, dag_id: str, run_id: str) -> int:
        resumed = 0
        run = {"dag_id": dag_id, "run_id": run_id}
        for claim in tx.rows("ended_claims", **run):
            for first, last in unpack(claim["ranges"]):
                place = {"subscription_id": claim["subscription_id"], "claim_id": claim["id"]}
                resumed += tx.run("resume_range", first=first, last=last, **place, **run)
                tx.run("forget_buried_range", first=first, last=last, **run)
            tx.run("resume_claim", claim_id=claim["id"])
        return resumed

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
            if entry["state"] != State.CLAIMED:
                raise LogError(f"event {seq} of run {run_id!r} of Dag {dag_id!r} is {entry['state']} already")
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
                event_id=entry["event_id"],
            )

    def active_runs(self) -> list[tuple[str, str]]:
        with self._transaction(write=False) as tx:
            return [(row["dag_id"], row["run_id"]) for row in tx.rows("active_runs")]

    def failed_runs(self, *, since: float) -> list[tuple[str, str]]:
        with self._transaction(write=False) as tx:
            return [(row["dag_id"], row["run_id"]) for row in tx.rows("failed_runs", since=since)]


def _allowance(place: Row, now: float) -> int:
    """How many events the watcher's rate limit lets this Dag take now."""
    if not place["rate_count"]:
        return ALL
    over = place["rate_at"] is None or place["rate_at"] + place["rate_window"] <= now
    return int(place["rate_count"]) if over else max(0, int(place["rate_count"]) - int(place["rate_used"]))


def _pick(places: Sequence[Row], offers: Sequence[Sequence[Row]], limit: int) -> list[tuple[int, int, Row]]:
    """(seq, subscription, row) of what a run gets: higher priorities first, then the oldest."""
    offered = [
        (-int(place["priority"]), int(row["seq"]), int(place["id"]), row)
        for place, rows in zip(places, offers, strict=True)
        for row in rows
    ]
    offered.sort(key=lambda one: one[:2])
    return [(seq, owner, row) for _, seq, owner, row in offered[:limit]]
