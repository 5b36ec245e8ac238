"""The correlator as a source: positions, state and results in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from unit.rules.desk import Desk
from windsock.erasure import erase
from windsock.events import Event
from windsock.log.records import EventQuery, Write
from windsock.log.sqlite import SqliteLog
from windsock.rules import all_of
from windsock.rules.waiting import waiting_for
from windsock.runner import Runner, RunnerSettings
from windsock.sources import make_source, source_key
from windsock.spec import SpecError, WatcherSpec

PAID = {"all_of": ["orders", "payments"], "within": "1h", "by": "data.id"}


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A log with two legs and a correlation that reads."""
    desk = Desk()
    desk.watch("orders")
    desk.watch("payments")
    desk.open(desk.watch("paid", "correlate", options={"watcher": "paid", "rule": PAID}))
    desk.read()
    yield desk
    desk.log.close()


def test_results_are_events_of_the_watcher(desk: Desk) -> None:
    """What the rule finds stands in the log, and the source has nothing left to do."""
    desk.put("orders", {"id": 1}, {"id": 2})
    desk.put("payments", {"id": 2})
    [found] = desk.read()
    assert found.data["legs"] == {"orders": {"id": 2}, "payments": {"id": 2}}
    assert [event.id for event in desk.stored()] == [found.id]
    assert asyncio.run(desk.source.lag()) == 0  # type: ignore[union-attr]
    assert [key for key, _ in desk.log.remembered(source_key("correlate", {"watcher": "paid"}))] == ["1"]


def test_a_new_correlation_begins_with_the_next_event() -> None:
    """What was stored before does not count unless it is asked for; a new leg counts from its start."""
    for read_from, expected in (("latest", 0), ("earliest", 1)):
        desk = Desk()
        desk.watch("orders")
        desk.put("orders", {"id": 1})
        options = {"watcher": "paid", "rule": PAID, "read_from": read_from}
        desk.open(desk.watch("paid", "correlate", options=options))
        desk.watch("payments")
        desk.put("payments", {"id": 1})
        assert len(desk.read()) == expected
        desk.log.close()


def test_what_is_uncommitted_is_read_again(desk: Desk) -> None:
    """A source that dies between reading and the commit finds the same again, once."""
    desk.put("orders", {"id": 1})
    desk.put("payments", {"id": 1})
    assert desk.source is not None
    lost = desk.source.step(desk.clock.now)
    assert lost is not None
    desk.open(desk.spec)
    [found] = desk.read()
    assert [event.id for event in lost.events] == [found.id]
    assert len(desk.stored()) == 1


def test_a_correlator_that_was_down_raises_no_false_alarm() -> None:
    """Time is the log's: heartbeats that came while nobody read are no silence; a real one is told."""
    desk = Desk()
    desk.watch("beats")
    rule = {"absence": "beats", "within": "10min"}
    spec = desk.watch("silent", "correlate", options={"watcher": "silent", "rule": rule})
    desk.open(spec)
    desk.read()
    for _ in range(10):
        desk.clock.advance(300)
        desk.put("beats", None)
    desk.open(spec)
    assert desk.read() == []
    desk.clock.advance(3600)
    desk.put("beats", None)
    desk.open(spec)
    assert len(desk.read()) == 1
    desk.log.close()


def test_a_changed_time_keeps_what_waits(desk: Desk) -> None:
    """The rule may get another time while it runs; what waits then waits so long."""
    desk.put("orders", {"id": 1})
    desk.read()
    desk.spec = desk.watch("paid", "correlate", options={"watcher": "paid", "rule": {**PAID, "within": "3h"}})
    desk.read()
    desk.clock.advance(7200)
    desk.put("payments", {"id": 1})
    assert len(desk.read()) == 1


@pytest.mark.parametrize("restart", [True, False])
def test_another_key_begins_anew(desk: Desk, restart: bool, caplog: pytest.LogCaptureFixture) -> None:
    """State that belongs to another key is dropped, with a word in the log."""
    desk.put("orders", {"id": 1, "no": 1})
    desk.read()
    spec = desk.watch("paid", "correlate", options={"watcher": "paid", "rule": {**PAID, "by": "data.no"}})
    if restart:
        desk.open(spec)
    desk.read()
    desk.put("payments", {"no": 1})
    assert desk.read() == []
    assert "windsock.rule.changed watcher=paid" in caplog.text
    desk.put("orders", {"no": 1})
    assert len(desk.read()) == 1


def test_a_rule_that_is_refused_leaves_the_old_one_running(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """A definition that is wrong is logged; what ran goes on."""
    desk.watch("paid", "correlate", options={"watcher": "paid", "rule": {"all_of": ["orders"], "within": 1}})
    desk.put("orders", {"id": 1})
    desk.put("payments", {"id": 1})
    assert len(desk.read()) == 1
    assert "windsock.rule.refused watcher=paid: all_of: name at least two legs" in caplog.text


def test_verdicts_are_remembered(desk: Desk) -> None:
    """What finds no partner is a verdict of the correlating watcher, for whoever asks."""
    desk.put("orders", {"id": 1})
    desk.read()
    desk.wait(3602)
    [record] = desk.log.verdicts(watcher="paid")
    assert (record.stage, record.verdict, record.reason) == (
        "correlate",
        "expired",
        "no partner of payments within 3600 s",
    )


def test_an_event_knows_what_it_waits_for(desk: Desk) -> None:
    """For any event of a leg the log can tell which leg its key waits for, until it has its result."""
    desk.put("orders", {"id": 1}, {"no": 1})
    desk.watch("broken", "correlate", options={"watcher": "broken", "rule": {"all_of": ["orders"]}})
    desk.read()
    keyless, order = [record.event for record in desk.log.events(EventQuery(watcher="orders"))]
    assert waiting_for(desk.log, "orders", order) == {"paid": "waits for payments"}
    assert waiting_for(desk.log, "orders", keyless) == {}
    assert waiting_for(desk.log, "unrelated", order) == {}
    desk.put("payments", {"id": 1})
    desk.read()
    assert waiting_for(desk.log, "orders", order) == {}


def test_identity_is_the_watchers_name() -> None:
    """Changing the rule keeps the position; another watcher has its own."""
    plain = source_key("correlate", {"watcher": "paid", "rule": PAID})
    assert source_key("correlate", {"watcher": "paid", "rule": {}, "max_keys": 3}) == plain
    assert source_key("correlate", {"watcher": "other", "rule": PAID}) != plain


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({**PAID, "by": "data.id =="}, "rule.by, line 1"),
        ({"all_of": ["paid", "orders"], "within": 1}, "cannot be a leg of itself"),
        ({"count": [{"watcher": "a", "where": "1"}], "n": 1, "within": 1}, "must be true or false"),
        ({"complete": "a", "n": 2, "part": "dat.x"}, "undeclared reference"),
    ],
)
def test_mistakes_are_refused_when_the_watcher_is_made(rule: dict[str, object], reason: str) -> None:
    """An expression with a mistake is refused with its place."""
    with pytest.raises(SpecError, match=reason):
        make_source("correlate", {"watcher": "paid", "rule": rule})


@contextlib.asynccontextmanager
async def running(log: SqliteLog, spec: WatcherSpec) -> AsyncIterator[Runner]:
    """Run a runner on the watcher's source."""
    key = source_key(spec.kind, spec.options)
    log.register(spec, source=key)
    quick = RunnerSettings(lease=5.0, heartbeat=0.02, backoff=0.01, max_backoff=0.05)
    runner = Runner(source=key, kind=spec.kind, options=spec.options, log=log, owner="a", settings=quick)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)


async def test_the_runner_runs_it() -> None:
    """Under the ordinary runner legs are read as they come, and the watcher's own pipeline applies."""
    log = SqliteLog(":memory:")
    for name in ("orders", "payments"):
        log.register(WatcherSpec(name=name, kind="memory"), source=name)
    rule = all_of("orders", "payments", within="1h", by="data.id")
    spec = WatcherSpec(
        name="paid",
        kind="correlate",
        options={"watcher": "paid", "rule": msgspec.to_builtins(rule)},
        where="data.legs.orders.total > 10",
    )
    async with running(log, spec):
        async with asyncio.timeout(10):
            while log.cursor(source_key(spec.kind, spec.options)) is None:
                await asyncio.sleep(0.01)
            for id, total in ((1, 5), (2, 50)):
                for watcher in ("orders", "payments"):
                    event = Event.make({"id": id, "total": total}, source="s", type="t")
                    log.append([Write(watcher=watcher, events=[event])])
            while not log.events(EventQuery(watcher="paid")):
                await asyncio.sleep(0.01)
    [record] = log.events(EventQuery(watcher="paid"))
    assert record.event.key == "2"
    [health] = [one for one in log.health() if one.watcher == "paid"]
    assert (health.logged, health.filtered, health.state) == (1, 1, "stopped")
    log.close()


async def test_what_was_erased_is_not_written_back() -> None:
    """A running correlation forgets an erased key too: it stores nothing of it, and nothing comes of it."""
    log = SqliteLog(":memory:")
    for name in ("orders", "payments"):
        log.register(WatcherSpec(name=name, kind="memory", key="data.id"), source=name)
    spec = WatcherSpec(name="paid", kind="correlate", options={"watcher": "paid", "rule": PAID})
    source = source_key(spec.kind, spec.options)

    def put(watcher: str, id: str) -> None:
        event = Event.make({"id": id}, source="test", type="test", id=f"{watcher}-{id}", key=id)
        log.append([Write(watcher=watcher, events=[event])])

    async def remembered(key: str, text: bytes) -> bytes:
        while (known := log.recall(source, key)) is None or text not in known[0]:
            await asyncio.sleep(0.01)
        return known[0]

    async with running(log, spec), asyncio.timeout(10):
        while log.cursor(source) is None:
            await asyncio.sleep(0.01)
        put("orders", "ada")
        put("orders", "bob")
        await remembered("ada", b"orders-ada")
        await remembered("bob", b"orders-bob")
        assert erase(log, key="ada").deleted == {"events": 1, "rule_states": 1}
        put("payments", "ada")
        assert b"orders-ada" not in await remembered("ada", b"payments-ada")
        put("payments", "bob")
        while not (results := log.events(EventQuery(watcher="paid"))):
            await asyncio.sleep(0.01)
    assert [record.event.key for record in results] == ["bob"]
    log.close()
