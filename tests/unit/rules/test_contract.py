"""Expectations: late, low, high, shape, recovered, and what is learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unit.rules.desk import Desk
from windsock.events import Event
from windsock.rules.contract import RELEARN, unheard
from windsock.rules.learning import FEWEST_WINDOWS, learned
from windsock.spec import Expectation, SpecError, WatcherSpec

HOUR = 3600.0


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A log whose clock begins at midnight."""
    desk = Desk()
    yield desk
    desk.log.close()


def expect(desk: Desk, of: Any = (), **expectation: Any) -> None:
    """Watch the expectation of `orders`."""
    desk.watch("orders", expect=expectation)
    desk.open(desk.watch("breaches", "expect", options={"watcher": "breaches", "of": of}))
    desk.read()


def told(events: list[Event]) -> list[tuple[str, str, Any]]:
    """(what, which breach, what was seen) of the events."""
    return [
        (event.type.removeprefix("windsock.expectation."), event.data["breach"], event.data["seen"])
        for event in events
    ]


def test_late_is_told_once_and_recovers(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing for longer than expected is one event and one warning; the next arrival ends it."""
    expect(desk, every="10min", grace="1min")
    desk.clock.advance(300)
    desk.put("orders", None)
    assert desk.wait(660) == []
    [late] = desk.wait(2)
    assert late.data["expected"] == 600
    assert late.key == late.data["watcher"] == "orders"
    assert told([late]) == [("late", "late", "2023-11-14T00:05:00Z")]
    assert desk.wait(7200) == []
    desk.put("orders", None)
    assert told(desk.read()) == [("recovered", "late", "2023-11-14T02:16:02Z")]
    warnings = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in warnings] == [
        "windsock.expectation.late",
        "windsock.expectation.recovered",
    ]
    assert len(desk.stored()) == 2


def test_a_second_breach_is_told_again(desk: Desk) -> None:
    """After it recovered the same expectation can be broken anew."""
    expect(desk, every="10min")
    first = desk.wait(700)
    desk.put("orders", None)
    second = [*desk.read(), *desk.wait(700)]
    assert told([*first, *second])[0][0] == "late"
    assert [event.type.rpartition(".")[2] for event in second] == ["recovered", "late"]
    assert first[0].id != second[1].id


def test_too_few_in_a_window(desk: Desk) -> None:
    """A window with too few is told at its end, empty ones too, once; a good window ends it."""
    expect(desk, at_least=2, per="1h")
    desk.put("orders", None)
    assert told(desk.wait(HOUR + 2)) == [("low", "low", 1)]
    assert desk.wait(HOUR) == []
    desk.put("orders", None, None)
    assert told(desk.wait(HOUR)) == [("recovered", "low", 2)]


def test_a_window_that_began_before_is_not_judged(desk: Desk) -> None:
    """The window in which the expectation is first seen is not whole, and not told."""
    desk.clock.advance(1800)
    expect(desk, at_least=2, per="1h")
    assert desk.wait(1802) == []
    assert told(desk.wait(HOUR)) == [("low", "low", 0)]


def test_too_many_in_a_window(desk: Desk) -> None:
    """One too many is told at once; the next window that is within bounds ends it."""
    expect(desk, at_most=2, per="1h")
    desk.put("orders", None, None)
    assert desk.read() == []
    desk.put("orders", None, None)
    assert told(desk.read()) == [("high", "high", 3)]
    assert desk.wait(HOUR + 2) == []
    assert told(desk.wait(HOUR)) == [("recovered", "high", 0)]


def test_the_shape_of_data(desk: Desk) -> None:
    """The first event that lacks a field is told, with what is missing; the first good one ends it."""
    expect(desk, fields=["id", "customer.name"])
    desk.put(
        "orders",
        {"id": 1, "customer": {"name": "x"}},
        {"id": 2},
        {"id": 3},
        {"id": 4, "customer": {"name": 1}},
    )
    breach, over = desk.read()
    assert told([breach, over]) == [
        ("shape", "shape", {"missing": ["customer.name"]}),
        ("recovered", "shape", {"missing": []}),
    ]
    assert breach.cause is not None


def test_expectations_survive_a_restart(desk: Desk) -> None:
    """A breach that was told is not told again by the next process."""
    expect(desk, every="10min")
    assert len(desk.wait(700)) == 1
    desk.open(desk.spec)
    assert desk.wait(700) == []
    desk.put("orders", None)
    assert len(desk.read()) == 1


def test_one_watcher_may_watch_all_or_some(desk: Desk) -> None:
    """Without `of` every expectation counts, with it the named ones; a new one is taken up."""
    desk.watch("payments", expect={"every": 60})
    expect(desk, of=["orders"], every=60)
    assert [event.key for event in desk.wait(70)] == ["orders"]
    desk.spec = desk.watch("breaches", "expect", options={"watcher": "breaches"})
    desk.read()
    assert [event.key for event in desk.wait(70)] == ["payments"]
    desk.watch("returns", expect={"every": 60})
    desk.read()
    desk.watch("orders")
    desk.put("orders", None)
    assert [event.key for event in desk.wait(70)] == ["returns"]


def test_cadence_is_learned_from_history(desk: Desk) -> None:
    """A watcher that came every minute is late after the learned time, and relearns by itself."""
    desk.watch("orders", expect={"learn": "1h", "per": "1d"})
    for _ in range(60):
        desk.put("orders", None)
        desk.clock.advance(60)
    desk.open(desk.watch("breaches", "expect", options={"watcher": "breaches"}))
    desk.read()
    [late] = desk.wait(200)
    assert late.data["expected"] == 180
    assert desk.wait(RELEARN + 1) == []


def test_the_formula() -> None:
    """Cadence is 3 medians or 1.5 of the 99 % quantile, volume half the 5 % to twice the 95 % quantile."""
    expected = Expectation(learn=1000.0, per=100.0)
    arrivals = [float(at) for at in range(0, 1000, 10)]
    found = learned(expected, arrivals, since=0.0, now=1000.0)
    assert (found.every, found.at_least, found.at_most) == (30.0, 5, 20)
    bumpy = [at for at in arrivals if at % 100 < 50]
    found = learned(expected, bumpy, since=0.0, now=1000.0)
    assert (found.every, found.at_least, found.at_most) == (90.0, 2, 10)


def test_what_is_given_is_not_learned() -> None:
    """Numbers of the declaration stay; too little history expects nothing."""
    given = Expectation(learn=1000.0, per=100.0, every=7.0, at_least=1)
    arrivals = [float(at) for at in range(0, 1000, 10)]
    found = learned(given, arrivals, since=0.0, now=1000.0)
    assert (found.every, found.at_least, found.at_most) == (7.0, 1, None)
    little = Expectation(learn=1000.0, per=1000.0 / (FEWEST_WINDOWS - 1))
    nothing = learned(little, [1.0, 2.0], since=0.0, now=1000.0)
    assert (nothing.every, nothing.at_least, nothing.at_most) == (None, None, None)


def test_bursts_count_as_one_arrival() -> None:
    """Events that came together say nothing about the cadence."""
    arrivals = [float(at) for at in range(0, 1000, 10) for _ in range(50)]
    assert learned(Expectation(learn=1000.0), arrivals, since=0.0, now=1000.0).every == 30.0


@pytest.mark.parametrize(
    ("expectation", "reason"),
    [
        ({"every": 0}, "must be times"),
        ({"per": 0}, "must be times"),
        ({"at_least": 3, "at_most": 2}, "at_least must not be above at_most"),
        ({"fields": ["a..b"]}, r"expect\.fields: path 'a\.\.b'"),
    ],
)
def test_mistakes_are_refused(expectation: dict[str, Any], reason: str) -> None:
    """An expectation that cannot be held is refused when it is declared."""
    with pytest.raises(SpecError, match=reason):
        WatcherSpec.from_dict({"name": "orders", "kind": "memory", "expect": expectation})


def test_expectations_that_nobody_watches_are_known() -> None:
    """A declared expectation without a watcher for it can be told to the user."""
    orders = WatcherSpec(name="orders", kind="memory", expect=Expectation(every=1.0))
    returns = WatcherSpec(name="returns", kind="memory", expect=Expectation(every=1.0))
    some = WatcherSpec(name="w", kind="expect", options={"watcher": "w", "of": "orders"})
    everything = WatcherSpec(name="w", kind="expect", options={"watcher": "w"})
    assert unheard([orders, returns]) == {"orders", "returns"}
    assert unheard([orders, returns, some]) == {"returns"}
    assert unheard([orders, returns, everything]) == set()
