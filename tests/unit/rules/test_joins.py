"""Joins: all of, any of, one after the other."""

from __future__ import annotations

import pytest

from windsock.rules import all_of, any_of, leg, sequence
from windsock.rules.joins import MAX_WAITING
from windsock.spec import SpecError
from windsock.testing.rules import Play

PAID = all_of("orders", "payments", within="1h", by="data.id")


def test_all_of_tells_both_with_their_causes() -> None:
    """One event of each leg makes one event with their data, key, causes and correlation."""
    play = Play(PAID)
    order = play.event("orders", {"id": 7, "total": 3}, at=0, correlation="trace-1")
    play.event("payments", {"id": 8}, at=10)
    payment = play.event("payments", {"id": 7, "by": "card"}, at=20)
    [found] = play.results
    assert found.type == "windsock.correlated"
    assert (found.key, found.correlation, found.cause) == ("7", "trace-1", f"{order.id},{payment.id}")
    assert found.data["legs"] == {"orders": {"id": 7, "total": 3}, "payments": {"id": 7, "by": "card"}}
    assert found.data["causes"] == [
        {"watcher": "orders", "id": order.id, "seq": 1},
        {"watcher": "payments", "id": payment.id, "seq": 3},
    ]
    assert found.time == payment.time


def test_all_of_works_in_either_order() -> None:
    """Which leg comes first does not matter."""
    play = Play(PAID)
    play.event("payments", {"id": 7}, at=0)
    play.event("orders", {"id": 7}, at=3600)
    assert len(play.results) == 1
    assert play.stored == {}


def test_what_finds_no_partner_expires() -> None:
    """An event without a partner ends as expired, with what it waited for, and is forgotten."""
    play = Play(PAID)
    order = play.event("orders", {"id": 7}, at=0)
    play.event("payments", {"id": 7}, at=3601)
    play.wait(8000)
    assert play.results == []
    assert play.ended() == [(order.id, "expired"), ("2", "expired")]
    assert play.verdicts[0].reason == "no partner of payments within 3600 s"
    assert play.stored == {}


def test_events_pair_first_in_first_out() -> None:
    """Each event is in one result: two orders and two payments are two pairs."""
    play = Play(all_of("orders", "payments", within=100))
    for id, watcher in (("a1", "orders"), ("a2", "orders"), ("b1", "payments"), ("b2", "payments")):
        play.event(watcher, at=0, id=id)
    assert [event.cause for event in play.results] == ["a1,b1", "a2,b2"]


def test_a_leg_may_be_a_part_of_a_watchers_events() -> None:
    """Two legs of one watcher are told apart by their conditions and names."""
    rule = all_of(
        leg("checks", where="data.kind == 'virus'", name="virus"),
        leg("checks", where="data.kind == 'size'", name="size"),
        within=60,
        by="subject",
    )
    play = Play(rule)
    play.event("checks", {"kind": "virus"}, at=0, subject="f")
    play.event("checks", {"kind": "other"}, at=1, subject="f")
    play.event("checks", {"kind": "size"}, at=2, subject="f")
    [found] = play.results
    assert set(found.data["legs"]) == {"virus", "size"}


def test_an_event_without_a_key_is_a_verdict() -> None:
    """An expression that fails on one event ends that event, with the reason, and stops nobody."""
    play = Play(PAID)
    play.event("orders", {"no": 1}, at=0, id="bad")
    play.event("orders", {"id": 1}, at=0)
    play.event("payments", {"id": 1}, at=0)
    assert play.ended() == [("bad", "failed")]
    assert "by cannot be evaluated" in play.verdicts[0].reason
    assert len(play.results) == 1


def test_a_queue_is_bounded() -> None:
    """Of too many events of one leg and key the oldest goes, and is told so."""
    play = Play(all_of("a", "b", within="1d"))
    for n in range(MAX_WAITING + 1):
        play.event("a", at=0, id=f"{n:05}")
    assert play.ended() == [("00000", "evicted")]


def test_any_of_tells_each_event() -> None:
    """Without a time every event of any leg is a result."""
    play = Play(any_of("a", "b"))
    play.event("a", {"n": 1}, at=0)
    play.event("b", {"n": 2}, at=0)
    assert [event.data["legs"] for event in play.results] == [{"a": {"n": 1}}, {"b": {"n": 2}}]


def test_any_of_is_quiet_within_its_time() -> None:
    """With a time, what follows the first of a key counts with it; later ones are new."""
    play = Play(any_of("a", "b", within=60, by="data.k"))
    play.event("a", {"k": 1}, at=0, id="first")
    play.event("b", {"k": 1}, at=60, id="same")
    play.event("b", {"k": 2}, at=60, id="other key")
    play.event("b", {"k": 1}, at=61, id="later")
    assert [event.cause for event in play.results] == ["first", "other key", "later"]
    assert play.ended() == [("same", "coalesced")]


def test_sequence_wants_the_order() -> None:
    """Only one after the other counts; what comes too early is not part of it."""
    play = Play(sequence("a", "b", "c", within="1h", by="subject"))
    for id, watcher in (("b0", "b"), ("a1", "a"), ("c1", "c"), ("b1", "b"), ("c2", "c")):
        play.event(watcher, at=0, id=id, subject="x")
    [found] = play.results
    assert found.cause == "a1,b1,c2"
    assert play.ended() == [("b0", "unmatched"), ("c1", "unmatched")]


def test_sequence_has_to_end_in_time() -> None:
    """A sequence that takes too long expires with all that it had."""
    play = Play(sequence("a", "b", within=10))
    play.event("a", at=0, id="a1")
    play.event("b", at=11, id="b1")
    assert play.results == []
    assert play.ended() == [("a1", "expired"), ("b1", "unmatched")]


def test_sequences_overlap() -> None:
    """Two sequences under one key advance first in, first out."""
    play = Play(sequence("a", "b", within=100))
    for at, (id, watcher) in enumerate((("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"))):
        play.event(watcher, at=at, id=id)
    assert [event.cause for event in play.results] == ["a1,b1", "a2,b2"]


def test_late_events_are_put_in_order() -> None:
    """Within the lateness an event that arrives late still takes its place."""
    play = Play(sequence("a", "b", within=100, lateness=10))
    play.event("b", at=5, id="b1")
    play.event("a", at=4, after=5, id="a1")
    assert play.results == []
    play.wait(15.1)
    assert [event.cause for event in play.results] == ["a1,b1"]


def test_a_result_has_a_stable_id() -> None:
    """The same events give the same id, whenever they are read."""

    def once() -> str:
        play = Play(PAID)
        play.event("orders", {"id": 1}, at=0, id="o")
        play.event("payments", {"id": 1}, at=0, id="p")
        return play.results[0].id

    assert once() == once()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: all_of("a", within="1h"), "at least two legs"),
        (lambda: all_of("a", "b", within=0), "within must be a time"),
        (lambda: all_of("a", "a", within=1), "two legs are called 'a'"),
        (lambda: sequence("a", within=1), "at least two legs"),
        (lambda: any_of(), "at least one watcher"),
        (lambda: all_of("a", "b", within=1, lateness=-1), "lateness must not be negative"),
        (lambda: all_of("a", "b", within=1, unknown=2), "unknown field `unknown`"),
    ],
)
def test_mistakes_are_refused(make: object, reason: str) -> None:
    """A rule that cannot work is refused when it is made."""
    with pytest.raises(SpecError, match=reason):
        make()  # type: ignore[operator]
