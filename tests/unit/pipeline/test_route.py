"""Routing: fan-out without a route, first match inside a group, a default, and what nobody takes."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import Event
from windsock.pipeline import Pipeline
from windsock.pipeline.route import share
from windsock.spec import WatcherSpec


def pipeline(name: str, **options: Any) -> Pipeline:
    """A watcher's pipeline."""
    return Pipeline.compile(WatcherSpec.from_dict({"name": name, "kind": "memory", **options}))


def routed(*pipelines: Pipeline) -> dict[str, list[int]]:
    """Which of the numbers 0 to 9 goes where."""
    events = [Event.make({"n": n}, source="s", type="even" if n % 2 == 0 else "odd") for n in range(10)]
    return {name: [event.data["n"] for event in got] for name, (got, _) in share(pipelines, events).items()}


def test_without_a_route_everybody_gets_everything() -> None:
    """Fan-out: each watcher filters for itself."""
    assert routed(pipeline("a", where="data.n < 3"), pipeline("b")) == {"a": [*range(10)], "b": [*range(10)]}


def test_the_first_match_wins() -> None:
    """Watchers of a group are asked by their order, and an event goes to one of them only."""
    got = routed(
        pipeline("large", where="data.n > 2", route={"order": 2}),
        pipeline("even", types=["even"], route={"order": 1}),
    )
    assert got == {"even": [0, 2, 4, 6, 8], "large": [3, 5, 7, 9]}


def test_otherwise_takes_the_rest() -> None:
    """The default route is asked last, whatever its order."""
    got = routed(
        pipeline("rest", route={"order": -5, "otherwise": True}),
        pipeline("small", where="data.n < 3", route={}),
    )
    assert got == {"small": [0, 1, 2], "rest": [3, 4, 5, 6, 7, 8, 9]}


def test_groups_do_not_see_each_other() -> None:
    """Each group shares the events anew."""
    got = routed(
        pipeline("a", where="data.n < 5", route={"group": "one"}),
        pipeline("b", where="data.n < 5", route={"group": "two"}),
    )
    assert got == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("unmatched", ["ignore", "dead_letter"])
def test_what_nobody_takes(unmatched: str) -> None:
    """It is ignored, or set aside with the names of those who did not want it."""
    one = pipeline("one", where="data.n == 1", route={"unmatched": unmatched})
    two = pipeline("two", where="data.n == 2", route={})
    events = [Event.make({"n": n}, source="s", type="t", id=str(n)) for n in range(3)]
    shared = share([one, two], events)
    letters = shared["one"][1]
    assert [letter.event_id for letter in letters] == (["0"] if unmatched == "dead_letter" else [])
    assert all("one, two" in letter.reason for letter in letters)
