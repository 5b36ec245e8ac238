"""Deletion on request: nothing of the key is left, the rest is, and a receipt says so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from windsock.archive import ParquetArchive, archived
from windsock.erasure import erase
from windsock.events import Category, DeadLetter, Event, Verdict, WindsockError
from windsock.log.records import Scan, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import Retention, WatcherSpec
from windsock.testing.clock import VirtualClock

ARCHIVE = ParquetArchive()
SECRET = "customer-17"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    """Events of three customers, archived, in the log, dead and filtered."""
    clock = VirtualClock()
    log = SqliteLog(tmp_path / "windsock.db", clock=clock)
    away = Retention(age=100.0, archive=str(tmp_path / "archive"))
    log.register(WatcherSpec(name="orders", kind="memory", key="data.customer", retention=away), source="m")
    log.subscribe("orders", "fulfil")
    for day in range(2):
        events = [order(f"{day}-{n}", f"customer-{n}") for n in (16, 17, 18)]
        log.append([Write(watcher="orders", events=events)])
        clock.advance(86400)
    log.claim(["orders"], "fulfil", "r", limit=100)
    log.settle("fulfil", "r", ok=True)
    log.purge(before=0.0, archive=ARCHIVE)
    unkeyed = Event(id="early", source="s", type="t", data={"customer": SECRET})
    broken = {"stage": "parse", "category": Category.INVALID, "reason": "not JSON"}
    dead = [
        DeadLetter(stage="validate", category=Category.INVALID, reason="no", body=unkeyed.encode()),
        DeadLetter(**broken, body=f"<{SECRET}>".encode()),
        DeadLetter(**broken, body=b"<customer-99>"),
    ]
    filtered = Verdict(stage="filter", verdict="filtered", event=unkeyed)
    fresh = [order("new-17", SECRET), order("new-18", "customer-18")]
    log.append([Write(watcher="orders", events=fresh, dead=dead, verdicts=[filtered])])
    yield log
    log.close()


def order(name: str, customer: str) -> Event:
    """An order of a customer."""
    return Event(id=name, source="s", type="t", key=customer, subject=customer, data={"customer": customer})


def keys(log: SqliteLog) -> list[str | None]:
    """The keys in the archive and in the log."""
    away = [stored.event.key for _, stored in archived(log, ARCHIVE, Scan())]
    return away + [stored.event.key for stored in log.scan(Scan())]


def test_a_dry_run_counts_and_changes_nothing(log: SqliteLog) -> None:
    """What would go is told, and all of it is still there."""
    before = keys(log)
    receipt = erase(log, key=SECRET, archive=ARCHIVE, dry_run=True)
    assert receipt.deleted == {"events": 1, "letters": 1, "verdicts": 1}
    assert sorted(receipt.files.values()) == [1, 1]
    assert keys(log) == before
    assert log.receipts() == []


def test_nothing_of_the_key_is_left(log: SqliteLog, tmp_path: Path) -> None:
    """Events, files, letters and verdicts of the key are gone; the receipt counts them and hides the key."""
    receipt = erase(log, key=SECRET, requested_by="me", archive=ARCHIVE)
    assert receipt.deleted == {"events": 1, "letters": 1, "verdicts": 1}
    assert sorted(receipt.files.values()) == [1, 1]
    assert keys(log) == ["customer-16", "customer-18"] * 2 + ["customer-18"]
    assert receipt.finished_at is not None
    assert receipt.key_hash == hashlib.sha256(f"{receipt.id}:{SECRET}".encode()).hexdigest()
    assert SECRET not in repr(receipt)
    assert log.receipts() == [receipt]
    for file in tmp_path.rglob("*.parquet"):
        stored = ARCHIVE.unpack(file.read_bytes(), "orders")
        assert SECRET not in [one.event.key for one in stored]
    assert [one.id for one in log.claim(["orders"], "fulfil", "next")] == ["new-18"]


def test_what_cannot_be_read_is_named(log: SqliteLog) -> None:
    """A letter that is no event but has the text is left for a person to look at."""
    receipt = erase(log, key=SECRET, archive=ARCHIVE)
    [number] = receipt.unread
    [letter] = log.dead_letters(ids=[number])
    assert SECRET.encode() in letter.body


def test_twice_is_once(log: SqliteLog) -> None:
    """Asked again, there is nothing left to delete, and both receipts are kept."""
    erase(log, key=SECRET, archive=ARCHIVE)
    again = erase(log, key=SECRET, archive=ARCHIVE)
    assert (again.deleted, again.files) == ({}, {})
    assert len(log.receipts()) == 2


def test_an_erasure_that_was_cut_off_is_finished_by_the_next(log: SqliteLog) -> None:
    """Its receipt has no end and what it did; the next one deletes the rest."""

    class Away(ParquetArchive):
        def get(self, path: str) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        erase(log, key=SECRET, archive=Away())
    [cut] = log.receipts()
    assert (cut.finished_at, cut.deleted["events"], cut.files) == (None, 1, {})
    rest = erase(log, key=SECRET, archive=ARCHIVE)
    assert (rest.deleted, sorted(rest.files.values())) == ({}, [1, 1])
    assert SECRET not in keys(log)


def test_a_stranger_is_refused(log: SqliteLog) -> None:
    """A watcher that is not there is a mistake, not an empty receipt."""
    with pytest.raises(WindsockError, match="'order' is not registered"):
        erase(log, key=SECRET, watcher="order")
