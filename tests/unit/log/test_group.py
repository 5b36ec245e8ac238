"""Group commit on a real log: grouping, isolation of failures, backpressure, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from windsock.events import Event, WindsockError, dedup_hash
from windsock.log import LogUnavailable
from windsock.log.group import GroupCommit, Overloaded
from windsock.log.records import Appended, EventQuery, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec


class CountingLog(SqliteLog):
    """A real log in memory that counts its appends, can be held inside one, and can be taken away."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.groups: list[int] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.away = False

    def append(self, writes: Sequence[Write], **_: object) -> list[Appended]:
        self.groups.append(len(writes))
        self.entered.set()
        assert self.go_on.wait(10)
        if self.away:
            raise LogUnavailable("the database is away")
        return super().append(writes)


@pytest.fixture
def log() -> Iterator[CountingLog]:
    log = CountingLog()
    log.register(WatcherSpec(name="orders", kind="memory"), source="memory")
    yield log
    log.close()


def write(id: str, *, watcher: str = "orders") -> Write:
    event = Event(id=id, source="s", type="t")
    return Write(watcher=watcher, events=[event], dedup=[dedup_hash(watcher, id)])


def stored(log: CountingLog) -> list[str]:
    return sorted(record.event.id for record in log.events(EventQuery(limit=10_000)))


async def hold_first(log: CountingLog, group: GroupCommit) -> asyncio.Task[Appended]:
    """Start an append that stays inside its commit until the log is told to go on."""
    log.go_on.clear()
    first = asyncio.create_task(group.append(write("first")))
    assert await asyncio.to_thread(log.entered.wait, 10)
    return first


async def settled() -> None:
    """Let every task that can run take its next step."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_writes_gather_while_a_commit_runs(log: CountingLog) -> None:
    """What arrives during a commit becomes the next one, and every caller gets its own event back."""
    group = GroupCommit(log)
    first = await hold_first(log, group)
    others = [asyncio.create_task(group.append(write(f"e{n}"))) for n in range(20)]
    await settled()
    log.go_on.set()
    answers = await asyncio.gather(first, *others)
    assert log.groups == [1, 20]
    assert [answer.new[0].id for answer in answers] == ["first", *(f"e{n}" for n in range(20))]
    assert len({answer.new[0].seq for answer in answers}) == 21


async def test_a_group_has_a_largest_size(log: CountingLog) -> None:
    """More waiting writes than a group may hold are committed in several groups, none forgotten."""
    group = GroupCommit(log, max_group=8)
    await asyncio.gather(*(group.append(write(f"e{n:02}")) for n in range(20)))
    assert log.groups == [8, 8, 4]
    assert stored(log) == [f"e{n:02}" for n in range(20)]


async def test_twins_in_one_group(log: CountingLog) -> None:
    """Two deliveries of the same event in one group are one new event and one duplicate of it."""
    group = GroupCommit(log)
    one, two = await asyncio.gather(group.append(write("twin")), group.append(write("twin")))
    assert log.groups == [2]
    assert (len(one.new), len(two.new)) == (1, 0)
    assert two.duplicates[0][1] == one.new[0].seq


async def test_a_bad_write_fails_alone(log: CountingLog) -> None:
    """A write that the log refuses gets its error; its neighbours in the group are stored, once."""
    group = GroupCommit(log)
    good, bad, also_good = await asyncio.gather(
        group.append(write("a")),
        group.append(write("b", watcher="unknown")),
        group.append(write("c")),
        return_exceptions=True,
    )
    assert isinstance(bad, WindsockError)
    assert isinstance(good, Appended)
    assert isinstance(also_good, Appended)
    assert stored(log) == ["a", "c"]


async def test_a_log_that_is_away_fails_the_group_at_once(log: CountingLog) -> None:
    """With no database there is one attempt for the group, not one for each; afterwards it goes on."""
    group = GroupCommit(log)
    log.away = True
    answers = await asyncio.gather(*(group.append(write(f"e{n}")) for n in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [LogUnavailable] * 5
    assert log.groups == [5]
    log.away = False
    assert (await group.append(write("later"))).new[0].id == "later"


async def test_the_queue_is_bounded(log: CountingLog) -> None:
    """When too many writes wait, the next one is refused at once and those that wait are stored."""
    group = GroupCommit(log, max_waiting=2)
    first = await hold_first(log, group)
    waiting = [asyncio.create_task(group.append(write(f"e{n}"))) for n in range(2)]
    await settled()
    with pytest.raises(Overloaded):
        await group.append(write("too many"))
    log.go_on.set()
    await asyncio.gather(first, *waiting)
    assert stored(log) == ["e0", "e1", "first"]


async def test_a_cancelled_caller_harms_nobody(log: CountingLog) -> None:
    """A caller that goes away during the commit leaves its neighbours' answers untouched."""
    group = GroupCommit(log)
    first = await hold_first(log, group)
    leaving, staying = (asyncio.create_task(group.append(write(id))) for id in ("leaving", "staying"))
    await settled()
    leaving.cancel()
    log.go_on.set()
    assert (await staying).new[0].id == "staying"
    assert (await first).new[0].id == "first"
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_closing_waits_for_what_was_taken(log: CountingLog) -> None:
    """``aclose`` commits every write that was taken, and refuses later ones."""
    group = GroupCommit(log)
    first = await hold_first(log, group)
    second = asyncio.create_task(group.append(write("second")))
    await settled()
    closing = asyncio.create_task(group.aclose())
    await settled()
    assert not closing.done()
    log.go_on.set()
    await closing
    assert first.done()
    assert second.done()
    assert stored(log) == ["first", "second"]
    with pytest.raises(Overloaded):
        await group.append(write("late"))


async def test_a_stopping_loop_leaves_nobody_waiting(log: CountingLog) -> None:
    """If the committing task itself is cancelled, the callers end too, and the next append works again."""
    group = GroupCommit(log)
    first = await hold_first(log, group)
    second = asyncio.create_task(group.append(write("second")))
    await settled()
    committing = next(task for task in asyncio.all_tasks() if task.get_name() == "windsock-group-commit")
    committing.cancel()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
    log.go_on.set()
    assert (await group.append(write("third"))).new[0].id == "third"
