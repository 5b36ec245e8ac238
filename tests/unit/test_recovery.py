"""The way back: redrive through the present definition, choose, preview and replay."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from windsock.events import Event
from windsock.log.records import DeadRecord, Scan, Write
from windsock.log.sqlite import SqliteLog
from windsock.messages import unreadable
from windsock.pipeline import Pipeline
from windsock.recovery import Redriven, preview, redrive, replay, retry_letters
from windsock.runner import writes_for
from windsock.spec import Batching, Retry, WatcherSpec

STRICT = WatcherSpec(name="orders", kind="memory", schema={"required": ["id"]}, batch=Batching(size=2))


@pytest.fixture
def log() -> Iterator[SqliteLog]:
    """A log with one watcher and one Dag."""
    log = SqliteLog(":memory:")
    log.register(STRICT, source="memory:orders", asset="stock")
    log.subscribe("orders", "fulfil")
    yield log
    log.close()


def send(log: SqliteLog, *events: Event) -> None:
    """Events through the watcher's pipeline, as it is registered."""
    spec = log.watcher("orders")
    assert spec is not None
    log.append([writes_for(Pipeline.compile(spec), events)])


def order(name: str, **data: object) -> Event:
    """An event with this data."""
    return Event.make(data, source="shop", type="order", id=name)


def taken(log: SqliteLog, run_id: str) -> list[str]:
    """What a successful run claims."""
    events = log.claim(["orders"], "fulfil", run_id, limit=100)
    log.settle("fulfil", run_id, ok=True)
    return [event.id for event in events]


def test_a_letter_that_still_fails_stays(log: SqliteLog) -> None:
    """Without a fix the letter is where it was, and the reason is told."""
    send(log, order("a", no="id"))
    [letter] = log.dead_letters()
    result = redrive(log, [letter.id])
    assert (result.appended, list(result.failed)) == (0, [letter.id])
    assert '"id" is a required property' in result.failed[letter.id]
    assert [open_.id for open_ in log.dead_letters()] == [letter.id]


def test_after_a_fix_it_keeps_its_identity(log: SqliteLog) -> None:
    """With the schema mended the event arrives under its own id, once."""
    send(log, order("a", no="id"))
    ids = [letter.id for letter in log.dead_letters()]
    log.register(WatcherSpec(name="orders", kind="memory"), source="memory:orders")
    assert redrive(log, ids).appended == 1
    assert redrive(log, ids).appended == 0
    assert log.dead_letters() == []
    assert taken(log, "one") == ["a"]


def test_a_letter_that_is_not_wanted_any_more_is_closed(log: SqliteLog) -> None:
    """The present filter counts."""
    send(log, order("a", no="id"))
    log.register(WatcherSpec(name="orders", kind="memory", where="has(data.id)"), source="memory:orders")
    assert redrive(log, [letter.id for letter in log.dead_letters()]).filtered == 1
    assert log.dead_letters() == []


def test_raw_input_is_read_again(log: SqliteLog) -> None:
    """What died in its source is read as the source would read it now; what is no JSON still fails."""
    letters = [unreadable(body, ValueError("cut")) for body in (b'{"id": 1}', b"{")]
    log.append([Write(watcher="orders", events=[], dead=letters)])
    result = redrive(log, [letter.id for letter in log.dead_letters()])
    assert (result.appended, len(result.failed)) == (1, 1)


def test_letters_of_runs_return_to_their_dag(log: SqliteLog) -> None:
    """A poison event is delivered again to the Dag that buried it."""
    log.register(WatcherSpec(name="orders", kind="memory", max_attempts=1), source="memory:orders")
    send(log, order("a", id=1))
    log.claim(["orders"], "fulfil", "one")
    log.settle("fulfil", "one", ok=False)
    ids = [letter.id for letter in log.dead_letters()]
    assert redrive(log, ids) == Redriven(delivered=1)
    assert taken(log, "two") == ["a"]
    assert redrive(log, [*ids, 999]) == Redriven(missing=[*ids, 999])


def test_more_letters_than_a_statement_can_name(log: SqliteLog) -> None:
    """Letters are looked up a page at a time, so any number of them can be redriven at once."""
    send(log, *(order(str(number), no="id") for number in range(2500)))
    log.register(WatcherSpec(name="orders", kind="memory", where="has(data.id)"), source="memory:orders")
    ids = [letter.id for letter in log.dead_letters(limit=10_000)]
    assert (redrive(log, ids).filtered, log.dead_letters()) == (2500, [])


def mend(letter: DeadRecord) -> Event | bytes | None:
    """Give an event its id; leave what says so; break on the rest."""
    if letter.event_id is None:
        return letter.body.replace(b"'", b'"')
    event = Event.decode(letter.body)
    if event.id == "leave":
        return None
    if event.id == "rename":
        return msgspec.structs.replace(event, id="other", data={"id": 1})
    return msgspec.structs.replace(event, data={"id": event.data["no"]})


def test_letters_are_mended(log: SqliteLog) -> None:
    """What a function repairs arrives under its own id, be it an event or bytes; the rest stays, told why."""
    send(log, order("a", no=7), order("leave", no=8), order("rename", no=9), order("break"))
    log.append([Write(watcher="orders", events=[], dead=[unreadable(b"{'id': 5}", ValueError("cut"))])])
    result = redrive(log, [letter.id for letter in log.dead_letters()], repair=mend)
    assert result.appended == 2
    assert sorted(result.failed.values()) == [
        "repair changed the id from 'rename' to 'other': keep it",
        "repair failed: KeyError: 'no'",
        "repair left it as it is",
    ]
    chosen = [event.data for event in log.claim(["orders"], "fulfil", "one")]
    assert sorted(data["id"] for data in chosen) == [5, 7]


def test_due_letters_are_retried_and_failures_counted(log: SqliteLog) -> None:
    """Without a fix the attempts are used up, one at a time; with one the event arrives."""
    retry = {"invalid": Retry(attempts=2, delay=0.0)}
    strict = msgspec.structs.replace(STRICT, retry=retry)
    log.register(strict, source="memory:orders")
    send(log, order("a", no="id"), order("b", no="id"))
    assert sorted(retry_letters(log).failed) == sorted(letter.id for letter in log.dead_letters())
    assert {letter.retries for letter in log.dead_letters()} == {1}
    log.register(msgspec.structs.replace(strict, schema=None), source="memory:orders")
    assert retry_letters(log).appended == 2
    assert retry_letters(log) == Redriven()


def test_preview_and_replay(log: SqliteLog) -> None:
    """A preview counts events and runs and changes nothing; the replay delivers exactly those, once."""
    send(log, *(order(str(n), id=n, total=n * 10) for n in range(6)))
    taken(log, "one")
    query = Scan(watchers=["orders"])
    seen = preview(log, query, "data.total >= 30")
    assert (seen.events, seen.watchers, seen.runs) == (3, {"orders": 3}, {"fulfil": 2})
    assert taken(log, "two") == []
    made = replay(log, "again", query, "data.total >= 30")
    assert (made.planned, made.made) == (3, 3)
    assert taken(log, "three") == ["3", "4", "5"]
    replay(log, "again", query, "data.total >= 30")
    assert taken(log, "four") == []


def test_a_preview_for_a_dag_that_is_not_subscribed(log: SqliteLog) -> None:
    """Nobody would run."""
    send(log, order("a", id=1))
    assert preview(log, Scan(), dag_id="stranger").runs == {}
