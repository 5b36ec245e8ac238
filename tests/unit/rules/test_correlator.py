"""The correlator: bounded memory, broken machines, what is stored."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from windsock.log.records import Remembered
from windsock.rules import absence, all_of, feeders, rule_of, window
from windsock.rules import joins as joins_module
from windsock.rules.correlator import FULL, Correlator
from windsock.spec import SpecError, WatcherSpec
from windsock.testing.rules import BEGIN, Play


def test_the_key_with_the_nearest_deadline_is_evicted(caplog: pytest.LogCaptureFixture) -> None:
    """Of too many keys the one that would expire first goes; its events say so, and a line is logged."""
    play = Play(all_of("a", "b", within=100, by="data.k"), max_keys=2)
    for at, key in ((0, "x"), (5, "y"), (3, "z")):
        play.event("a", {"k": key}, at=at, after=10 - at, id=key)
    assert play.ended() == [("x", "evicted")]
    assert play.verdicts[0].reason == "more than 2 keys are live"
    assert set(play.stored) == {"y", "z"}
    assert len(play.correlator) == 2
    assert "windsock.rule.evicted watcher=play keys=1" in caplog.text


def test_keys_without_a_deadline_are_evicted_too() -> None:
    """Memory is bounded even where nothing has a deadline."""
    rule = rule_of({"complete": "p", "watermark": "data.t", "size": 60, "by": "data.k"})
    play = Play(rule, max_keys=1)
    for key in "xy":
        play.event("p", {"k": key, "t": BEGIN}, at=0)
    assert set(play.stored) == {"y"}


def test_an_event_that_breaks_a_machine_costs_itself_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine that raises over one event goes on without it, and what it had is still there."""
    arrive = joins_module._AllOf.arrive

    def fragile(self: Any, state: Any, arrival: Any, turn: Any) -> Any:
        kept = arrive(self, state, arrival, turn)
        if arrival.id == "poison":
            raise RuntimeError("no")
        return kept

    monkeypatch.setattr(joins_module._AllOf, "arrive", fragile)
    play = Play(all_of("a", "b", within=100))
    play.event("a", at=0, id="good")
    play.event("b", at=0, id="poison")
    assert play.results == []
    play.event("b", at=0, id="b1")
    assert [event.cause for event in play.results] == ["good,b1"]
    assert play.ended() == [("poison", "failed")]
    assert play.verdicts[0].reason == "RuntimeError: no"
    assert "windsock.rule.failed watcher=play" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


def test_an_alarm_that_breaks_costs_its_key_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that raises when the time is up loses that key; the next one rings."""
    ring = joins_module._AllOf.ring

    def fragile(self: Any, state: Any, at: float, turn: Any) -> Any:
        if turn.key == "x":
            raise RuntimeError("no")
        return ring(self, state, at, turn)

    monkeypatch.setattr(joins_module._AllOf, "ring", fragile)
    play = Play(all_of("a", "b", within=100, by="data.k"))
    for key in "xy":
        play.event("a", {"k": key}, at=0, id=key)
    play.wait(101)
    assert sorted(play.ended()) == [("x", "failed"), ("y", "expired")]
    assert play.stored == {}


def test_many_results_are_stored_in_parts() -> None:
    """When very much is due at once, it is told in parts that fit a transaction."""
    correlator = Correlator("w", window("a", size=60, by="data.k"), settle=0.0)
    play = Play(window("a", size=60, by="data.k"))
    for key in range(FULL + 5):
        play.event("a", {"k": key}, at=0)
    assert not play.correlator.advance(BEGIN + 61)
    assert len(play.correlator.collect().events) == FULL
    assert play.correlator.advance(BEGIN + 61)
    assert len(play.correlator.collect().events) == 5
    assert len(correlator) == 0


def test_state_that_cannot_be_read_is_forgotten() -> None:
    """What another rule stored is dropped instead of breaking this one."""
    correlator = Correlator("w", all_of("a", "b", within=1), settle=0.0)
    known: Remembered = (b"\xc1", None)
    correlator.load([("k", known)])
    assert correlator.collect().state == {"k": None}


def test_a_state_tells_what_it_waits_for() -> None:
    """Each stored key can say in words what it waits for."""
    play = Play(all_of("a", "b", within=100, by="data.k"))
    play.event("a", {"k": 1}, at=0)
    assert play.correlator.explain(play.stored["1"][0]) == "waits for b"


def test_alarms_do_not_pile_up() -> None:
    """An alarm that moves with each event leaves no trail in memory."""
    play = Play(absence("a", within=10_000_000))
    for n in range(5000):
        play.event("a", at=n)
    assert len(play.correlator._alarms) < 2 * FULL


def test_an_event_from_the_future_is_taken_for_now() -> None:
    """A sender whose clock is ahead cannot hold a rule up."""
    play = Play(all_of("a", "b", within=10, lateness=1))
    play.event("a", at=1000, after=-1000, id="a1")
    play.event("b", at=0, id="b1")
    play.wait(1.1)
    assert [event.cause for event in play.results] == ["a1,b1"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("all_of", "is neither"),
        ({"legs": ["a"]}, "a rule is one of all_of, any_of"),
        ({"all_of": ["a", "b"], "any_of": ["c"], "within": 1}, "a rule is one of"),
        ({"all_of": ["a", "b"], "within": "soon"}, "all_of: 'soon' is not a duration"),
    ],
)
def test_a_dict_that_is_no_rule_is_refused(value: object, reason: str) -> None:
    """A mistake in YAML is refused with what would do."""
    with pytest.raises(SpecError, match=reason):
        rule_of(value)


def test_a_rule_can_be_written_as_a_dict() -> None:
    """The dict of YAML and the function give the same rule."""
    written = rule_of({"all_of": ["a", {"watcher": "b", "where": "data.ok"}], "within": "1h", "by": "key"})
    made = rule_of(
        {"rule": "all_of", "legs": ["a", {"watcher": "b", "where": "data.ok"}], "within": 3600, "by": "key"}
    )
    assert written == made
    assert rule_of({"window": "a", "size": "1h"}) == window("a", size=3600)


def test_feeders_are_the_legs_beside_a_correlation() -> None:
    """Of the watchers of an asset those that a correlation names only feed it."""
    specs = [
        WatcherSpec(name="joined", kind="correlate", options={"rule": {"all_of": ["a", "b"], "within": 1}}),
        WatcherSpec(name="broken", kind="correlate", options={}),
        WatcherSpec(name="a", kind="webhook"),
        WatcherSpec(name="c", kind="webhook"),
    ]
    assert feeders(specs) == {"a", "b"}
