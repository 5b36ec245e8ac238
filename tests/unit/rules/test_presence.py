"""Absence and count."""

from __future__ import annotations

import pytest

from windsock.rules import absence, count
from windsock.spec import SpecError
from windsock.testing.rules import BEGIN, Play


def test_silence_from_the_beginning_is_told() -> None:
    """Without any event at all, silence counts from the moment that the rule begins."""
    play = Play(absence("beats", within="10min"))
    play.wait(600)
    assert play.results == []
    play.wait(601)
    [found] = play.results
    assert found.data["missing"] == ["beats"]
    assert found.time is not None
    assert found.time.timestamp() == BEGIN + 600


def test_each_silence_is_told_once() -> None:
    """A silence is told once, however long it is; after the next event another one may be."""
    play = Play(absence("beats", within=10))
    play.event("beats", at=5)
    play.wait(100)
    assert len(play.results) == 1
    play.event("beats", at=100)
    play.event("beats", at=109)
    play.wait(119)
    assert len(play.results) == 1
    play.wait(119.1)
    assert len(play.results) == 2
    assert play.results[0].id != play.results[1].id


def test_silence_per_key_begins_with_its_first_event() -> None:
    """Each key has its own silence, with the last that was heard of it, and is then forgotten."""
    play = Play(absence("beats", within=10, by="data.device"))
    play.event("beats", {"device": "a"}, at=0)
    play.event("beats", {"device": "b"}, at=5)
    play.event("beats", {"device": "b"}, at=12)
    play.wait(21)
    assert [event.key for event in play.results] == ["a"]
    assert play.results[0].data["legs"] == {"beats": {"device": "a"}}
    play.wait(30)
    assert [event.key for event in play.results] == ["a", "b"]
    assert play.stored == {}


def test_absence_after_a_start() -> None:
    """An order that is not paid in time is told with the order; one that is paid is not."""
    play = Play(absence("payments", within="1h", by="data.id", after="orders"))
    play.event("orders", {"id": 1}, at=0, id="paid")
    play.event("orders", {"id": 2}, at=0, id="unpaid")
    play.event("payments", {"id": 1}, at=3600)
    play.wait(4000)
    [found] = play.results
    assert (found.key, found.cause, found.data["missing"]) == ("2", "unpaid", ["payments"])
    assert found.data["legs"] == {"orders": {"id": 2}}


def test_a_payment_from_before_is_no_answer() -> None:
    """With lateness, what happened before the start does not count for it, whenever it arrives."""
    play = Play(absence("payments", within=100, by="data.id", after="orders", lateness=50))
    play.event("orders", {"id": 1}, at=40)
    play.event("payments", {"id": 1}, at=10, after=40)
    play.wait(200)
    assert len(play.results) == 1


def test_a_gap_between_events_that_arrive_together_is_a_silence() -> None:
    """The time of the events decides: a gap in it is told even if they arrive at once."""
    play = Play(absence("beats", within=10))
    play.event("beats", at=0, after=60)
    play.event("beats", at=50, after=10)
    assert [event.data["since"] for event in play.results][-1] == "2023-11-14T00:00:00Z"


def test_count_starts_anew_after_each_result() -> None:
    """N events within the time are one result; the next needs N new ones."""
    play = Play(count("errors", n=3, within=60, by="data.job"))
    for n in range(7):
        play.event("errors", {"job": "x"}, at=n, id=f"e{n}")
    assert [event.data["count"] for event in play.results] == [3, 3]
    assert [event.cause for event in play.results] == ["e0,e1,e2", "e3,e4,e5"]


def test_count_forgets_what_is_too_old() -> None:
    """Events further apart than the time do not count together."""
    play = Play(count("errors", n=2, within=60))
    play.event("errors", at=0, id="old")
    play.event("errors", at=61, id="new")
    assert play.results == []
    assert play.ended() == [("old", "expired")]
    play.event("errors", at=121, id="newer")
    assert [event.cause for event in play.results] == ["new,newer"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: absence("a", within=0), "within must be a time"),
        (lambda: absence(within=1, after="b"), "name the watcher whose events are expected"),
        (lambda: count("a", n=0, within=1), "n must be between 1"),
        (lambda: count("a", n=1, within=0), "within must be a time"),
    ],
)
def test_mistakes_are_refused(make: object, reason: str) -> None:
    """A rule that cannot work is refused when it is made."""
    with pytest.raises(SpecError, match=reason):
        make()  # type: ignore[operator]
