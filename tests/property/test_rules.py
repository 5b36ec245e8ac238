"""Rules under any order of arrival, and under a restart at any point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windsock.rules import absence, all_of, any_of, complete, count, sequence, window
from windsock.rules.base import Rule
from windsock.testing.rules import Play

LATENESS = 20.0
AGGREGATES = {"total": "sum:data.v", "p": "quantile:0.7:data.v", "least": "min:data.v", "mean": "avg:data.v"}
RULES: dict[str, Callable[[], Rule]] = {
    "all_of": lambda: all_of("a", "b", within=15, by="data.k", lateness=LATENESS),
    "any_of": lambda: any_of("a", "b", within=10, by="data.k", lateness=LATENESS),
    "sequence": lambda: sequence("a", "b", within=15, by="data.k", lateness=LATENESS),
    "absence": lambda: absence("a", within=12, by="data.k", lateness=LATENESS),
    "after": lambda: absence("b", within=12, by="data.k", after="a", lateness=LATENESS),
    "count": lambda: count("a", "b", n=3, within=15, by="data.k", lateness=LATENESS),
    "tumbling": lambda: window("a", size=15, by="data.k", aggregates=AGGREGATES, lateness=LATENESS),
    "sliding": lambda: window(
        "a", kind="sliding", size=15, every=5, by="data.k", aggregates=AGGREGATES, lateness=LATENESS
    ),
    "session": lambda: window(
        "a", kind="session", gap=7, by="data.k", aggregates=AGGREGATES, lateness=LATENESS
    ),
    "complete": lambda: complete("a", n=3, part="data.p", by="data.k", within=30, lateness=LATENESS),
}
RESTARTED = {
    **RULES,
    "amend": lambda: window("a", size=15, by="data.k", late="amend", late_for=30),
    "rerun": lambda: window("a", kind="session", gap=7, by="data.k", late="rerun", late_for=30),
    "incomplete": lambda: complete("a", n=5, part="data.p", by="data.k", within=20, late="rerun"),
}


class Happening(msgspec.Struct, frozen=True):
    """Something that happens, and how late it is known."""

    at: float
    delay: float
    watcher: str
    data: dict[str, Any]


def happenings(most: int = 25) -> Any:
    """Several things that happen."""
    number = st.integers(-50, 50) | st.floats(-1e3, 1e3, allow_nan=False)
    data = st.fixed_dictionaries({"k": st.sampled_from(["x", "y"]), "v": number, "p": st.integers(0, 4)})
    one = st.builds(
        Happening,
        at=st.integers(0, 80).map(float),
        delay=st.integers(0, int(LATENESS) - 1).map(float),
        watcher=st.sampled_from(["a", "b"]),
        data=data,
    )
    return st.lists(one, max_size=most)


def played(rule: Rule, events: list[Happening], *, late: bool, restart: bool = False) -> Play:
    """Play the events in the order in which they arrive, each late or at once."""
    play = Play(rule, restart=restart)
    delays = [one.delay if late else 0.0 for one in events]
    arriving = sorted(range(len(events)), key=lambda n: (events[n].at + delays[n], n))
    for n in arriving:
        one = events[n]
        play.event(one.watcher, one.data, at=one.at, after=delays[n], id=f"e{n:03}")
    play.wait(100_000)
    return play


def found(play: Play) -> Counter[bytes]:
    """The results without what depends on the place in the log."""

    def plain(event: Any) -> bytes:
        data = {name: value for name, value in event.data.items() if name != "causes"}
        return msgspec.json.encode([event.id, event.type, event.key, str(event.time), event.cause, data])

    return Counter(plain(event) for event in play.results)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(set(RULES) - {"complete"})), events=happenings())
def test_the_order_of_arrival_does_not_matter(name: str, events: list[Happening]) -> None:
    """Whatever arrives within the lateness gives the same results as if it had arrived in time."""
    assert found(played(RULES[name](), events, late=True)) == found(played(RULES[name](), events, late=False))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(RESTARTED)), events=happenings(), late=st.booleans())
def test_a_restart_at_any_point_changes_nothing(name: str, events: list[Happening], late: bool) -> None:
    """Stopped and taken up again after every event, a rule finds the same, and ends the same."""
    straight = played(RESTARTED[name](), events, late=late)
    restarted = played(RESTARTED[name](), events, late=late, restart=True)
    assert [event.encode() for event in restarted.results] == [event.encode() for event in straight.results]
    assert restarted.ended() == straight.ended()
    assert restarted.stored == straight.stored


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(["all_of", "sequence", "count"]), events=happenings(), late=st.booleans())
def test_every_event_is_in_one_result_or_ended(name: str, events: list[Happening], late: bool) -> None:
    """Joins and counts add up: each event is in exactly one result, or ended with a verdict."""
    play = played(RULES[name](), events, late=late)
    used = [cause["id"] for event in play.results for cause in event.data["causes"]]
    ended = [id for id, _ in play.ended()]
    assert sorted(used + ended) == [f"e{n:03}" for n in range(len(events))]
    assert play.stored == {}


@settings(max_examples=200, deadline=None)
@given(events=happenings(), kind=st.sampled_from(["tumbling", "session"]))
def test_windows_count_every_event_once(events: list[Happening], kind: str) -> None:
    """The counts of all windows together are the number of events."""
    play = played(RULES[kind](), events, late=True)
    assert sum(event.data["count"] for event in play.results) == sum(one.watcher == "a" for one in events)
    assert len({event.id for event in play.results}) == len(play.results)
