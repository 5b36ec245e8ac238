"""Windows, their aggregates, and what comes late."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from windsock.events import Event
from windsock.rules import window
from windsock.rules.aggregates import SAMPLE
from windsock.spec import SpecError
from windsock.testing.rules import Play

EVERYTHING = {
    "n": "count",
    "total": "sum:data.v",
    "least": "min:data.v",
    "most": "max:data.v",
    "mean": "avg:data.v",
    "median": "quantile:0.5:data.v",
}


def spans(events: list[Event]) -> list[tuple[str, str, int]]:
    """(start, end, count) of results, with the time of day only."""
    return [(e.data["start"][11:19], e.data["end"][11:19], e.data["count"]) for e in events]


def test_tumbling_windows_aggregate_by_key() -> None:
    """Each key and window has one result, when the window is over, with every aggregate."""
    play = Play(window("sales", size="1h", by="data.shop", aggregates=EVERYTHING))
    for at, shop, v in ((0, "a", 1), (3599, "a", 4), (3599, "b", 10), (3600, "a", 100)):
        play.event("sales", {"shop": shop, "v": v}, at=at)
    assert play.results == []
    play.wait(3600.1)
    assert [(e.key, e.data["values"]) for e in play.results] == [
        ("a", {"n": 2, "total": 5, "least": 1, "most": 4, "mean": 2.5, "median": 2.5}),
        ("b", {"n": 1, "total": 10, "least": 10, "most": 10, "mean": 10.0, "median": 10.0}),
    ]
    play.wait(7201)
    assert play.results[2].data["values"]["total"] == 100
    assert play.results[2].time is not None
    assert play.stored == {}


def test_sliding_windows_overlap() -> None:
    """An event is in every window that covers it, and an empty window is none."""
    play = Play(window("sales", kind="sliding", size="10min", every="5min"))
    play.event("sales", at=60)
    play.event("sales", at=400)
    play.wait(2000)
    assert spans(play.results) == [
        ("23:55:00", "00:05:00", 1),
        ("00:00:00", "00:10:00", 2),
        ("00:05:00", "00:15:00", 1),
    ]
    assert play.stored == {}


def test_sessions_end_with_a_pause() -> None:
    """A session goes on as long as no pause is longer than the gap; keys have their own."""
    play = Play(window("clicks", kind="session", gap=30, by="data.user"))
    for at, user in ((0, "a"), (10, "b"), (30, "a"), (61, "a")):
        play.event("clicks", {"user": user}, at=at)
    play.wait(100)
    assert [(e.key, *spans([e])[0]) for e in play.results] == [
        ("b", "00:00:10", "00:00:40", 1),
        ("a", "00:00:00", "00:01:00", 2),
        ("a", "00:01:01", "00:01:31", 1),
    ]
    assert play.stored == {}


def test_an_event_in_between_joins_two_sessions() -> None:
    """Within the lateness a late event can make one session of two."""
    play = Play(window("clicks", kind="session", gap=30, lateness=60))
    play.event("clicks", at=0)
    play.event("clicks", at=50)
    play.event("clicks", at=25, after=40)
    play.wait(200)
    assert spans(play.results) == [("00:00:00", "00:01:20", 3)]


def test_late_events_are_ignored_by_default() -> None:
    """What comes after the result is a verdict and changes nothing."""
    play = Play(window("sales", size=60))
    play.event("sales", at=10)
    play.event("sales", at=20, after=50, id="late")
    assert spans(play.results) == [("00:00:00", "00:01:00", 1)]
    assert play.ended() == [("late", "late")]


def test_within_the_lateness_nothing_is_late() -> None:
    """A window waits for the allowed lateness."""
    play = Play(window("sales", size=60, lateness=60))
    play.event("sales", at=10)
    play.event("sales", at=20, after=60)
    play.wait(120)
    assert play.results == []
    play.wait(121)
    assert spans(play.results) == [("00:00:00", "00:01:00", 2)]


def test_amend_tells_what_is_right_now_and_what_was_said() -> None:
    """A late event is told as an amendment of the first result, with both values."""
    play = Play(window("sales", size=60, aggregates={"total": "sum:data.v"}, late="amend"))
    play.event("sales", {"v": 1}, at=10)
    play.event("sales", {"v": 2}, at=20, after=100)
    first, amended = play.results
    assert amended.type == "windsock.correlated.amended"
    assert amended.data["amends"] == first.id
    assert (amended.data["before"], amended.data["values"]) == ({"total": 1}, {"total": 3})
    assert amended.data["revision"] == 2


def test_rerun_tells_the_whole_again() -> None:
    """With rerun a late event makes the same result once more, so that its Dag runs again."""
    play = Play(window("sales", kind="session", gap=60, late="rerun"))
    play.event("sales", at=10)
    play.event("sales", at=20, after=100)
    first, again = play.results
    assert (first.type, first.id) != (again.type, again.id)
    assert again.type == "windsock.correlated"
    assert (again.data["count"], again.data["revision"], again.data["amends"]) == (2, 2, first.id)


@pytest.mark.parametrize("kind", [{"size": 60}, {"kind": "session", "gap": 60}])
def test_a_window_takes_late_events_for_a_time_only(kind: dict[str, object]) -> None:
    """After late_for a window is forgotten, and what still comes is ignored."""
    play = Play(window("sales", late="rerun", late_for=600, **kind))  # type: ignore[arg-type]
    play.event("sales", at=10)
    play.wait(800)
    assert play.stored == {}
    play.event("sales", at=20, after=800, id="too late")
    assert len(play.results) == 1
    assert play.ended() == [("too late", "late")]


def test_a_late_event_of_a_new_key_is_a_first_result() -> None:
    """Where nothing was told there is nothing to amend: the late event makes the first result."""
    play = Play(window("sales", size=60, by="data.k", late="amend"))
    play.event("sales", {"k": 1}, at=10, after=100)
    [found] = play.results
    assert (found.type, found.data["revision"]) == ("windsock.correlated", 1)


def test_an_event_without_a_number_is_a_verdict() -> None:
    """A value that is no number ends the event; the window goes on without it."""
    play = Play(window("sales", size=60, aggregates={"total": "sum:data.v"}))
    play.event("sales", {"v": "ten"}, at=0, id="text")
    play.event("sales", {}, at=0, id="none")
    play.event("sales", {"v": 1}, at=0)
    play.wait(61)
    assert play.ended() == [("text", "failed"), ("none", "failed")]
    assert play.results[0].data["values"] == {"total": 1}


def test_sums_are_exact() -> None:
    """A sum is rounded once, whatever is in it."""
    play = Play(window("sales", size=60, aggregates={"total": "sum:data.v"}))
    values = [1e16, 1.0, -1e16, 0.1, 0.2, 0.3]
    for value in values:
        play.event("sales", {"v": value}, at=0)
    play.wait(61)
    assert play.results[0].data["values"]["total"] == math.fsum(values)


def test_quantiles_of_many_values_are_those_of_a_sample() -> None:
    """Up to the bound quantiles are exact, beyond it they are near, and the state stays small."""
    play = Play(window("sales", size=3600, aggregates={"p90": "quantile:0.9:data.v"}))
    values = random.Random(1).sample(range(100_000), 4 * SAMPLE)
    for value in values[: SAMPLE // 2]:
        play.event("sales", {"v": value}, at=0)
    play.wait(3601)
    exact = statistics.quantiles(values[: SAMPLE // 2], n=10, method="inclusive")[-1]
    assert play.results[0].data["values"]["p90"] == pytest.approx(exact)
    for value in values:
        play.event("sales", {"v": value}, at=3700)
    assert len(play.stored[""][0]) < 40 * SAMPLE
    play.wait(7201)
    assert play.results[1].data["values"]["p90"] == pytest.approx(90_000, rel=0.05)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "needs size"),
        ({"size": 1, "every": 1}, "tumbling window has no every"),
        ({"kind": "sliding", "size": 60}, "needs every"),
        ({"kind": "sliding", "size": 60, "every": 7}, "multiple of every"),
        ({"kind": "session"}, "needs gap"),
        ({"kind": "session", "gap": 1, "size": 1}, "neither size nor every"),
        ({"size": 1, "gap": 1}, "only a session has a gap"),
        ({"size": 1, "late": "maybe"}, "Invalid enum value 'maybe'"),
    ],
)
def test_mistakes_are_refused(options: dict[str, object], reason: str) -> None:
    """A window that cannot work is refused when it is made."""
    with pytest.raises(SpecError, match=reason):
        window("a", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["sum", "count:data.v", "mode:data.v", "quantile:2:data.v", "quantile:x:data.v"]
)
def test_aggregates_are_checked(text: str) -> None:
    """An aggregate that is none is refused with those that there are."""
    with pytest.raises(SpecError, match=r"aggregate 'x': .* write 'count'"):
        Play(window("a", size=1, aggregates={"x": text}))
