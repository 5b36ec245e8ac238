"""The pipeline: filter, key, size, dedupe and flush, and that one bad event costs only itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.events import Category, Event, dedup_hash
from windsock.pipeline import Outcome, Pipeline
from windsock.spec import Batching, Ordering, SpecError, WatcherSpec


def spec(**options: Any) -> WatcherSpec:
    return WatcherSpec(name="w", kind="memory", **options)


def run(events: list[Event], **options: Any) -> Outcome:
    return Pipeline.compile(spec(**options)).run(events)


def event(n: int, data: Any = None, **attributes: Any) -> Event:
    return Event.make(
        {"n": n} if data is None else data, **({"source": "/s", "type": "t", "id": n} | attributes)
    )


def ids(events: list[Event]) -> list[str]:
    return [event.id for event in events]


def test_without_options_everything_passes() -> None:
    """A bare watcher keeps every event in order, with its body and the hash of its source and id."""
    events = [event(n) for n in range(3)]
    outcome = run(events)
    assert outcome == Outcome(
        kept=events,
        bodies=[event.encode() for event in events],
        dedup=[dedup_hash("w", f"/s\0{n}") for n in range(3)],
    )


def test_no_events_are_no_trouble() -> None:
    """An empty list goes through every step."""
    options = {
        "where": "data.n > 1",
        "key": "data.n",
        "dedupe_key": "data.n",
        "batch": Batching(flush="true"),
    }
    assert run([], **options) == Outcome(kept=[])


def test_the_filter_keeps_what_matches() -> None:
    """Events that do not match are counted, with a reason only where the condition failed."""
    outcome = run([event(1), event(5), event(0, {"m": 1}), event(7)], where="data.n > 2")
    assert ids(outcome.kept) == ["5", "7"]
    assert [verdict.reason for verdict in outcome.verdicts] == ["", 'Key not found in map : "n"']
    assert outcome.dead == []


def test_the_key_is_set_from_the_expression() -> None:
    """The kept event, its body and nothing else carry the key."""
    given = event(5)
    outcome = run([given], key="data.n")
    assert outcome.kept[0].key == "5"
    assert Event.decode(outcome.bodies[0]) == outcome.kept[0]
    assert given.key is None


@pytest.mark.parametrize("data", [{"m": 1}, {"n": None}, {"n": ""}, {"n": {}}, {"n": "x" * 2049}])
def test_an_event_without_a_key_is_set_aside(data: Any) -> None:
    """An event whose key cannot be had becomes a dead letter that can be read back; its neighbours go on."""
    outcome = run([event(1), event(2, data), event(3)], key="data.n")
    assert ids(outcome.kept) == ["1", "3"]
    [letter] = outcome.dead
    assert (letter.stage, letter.category) == ("key", Category.INVALID)
    assert "'data.n'" in letter.reason
    assert letter.error
    assert Event.decode(letter.body).data == data


def test_events_that_are_too_large_are_set_aside() -> None:
    """The cap is on the encoded event; the dead letter keeps all of it."""
    small, large = event(1), event(2, {"x": "y" * 500})
    outcome = run([small, large, small], max_bytes=len(small.encode()))
    assert outcome.kept == [small, small]
    assert outcome.bodies == [small.encode()] * 2
    assert len(outcome.dedup) == 2
    [letter] = outcome.dead
    assert letter.stage == "size"
    assert f"{len(large.encode())} bytes, more than max_bytes" in letter.reason
    assert Event.decode(letter.body) == large


@pytest.mark.parametrize("data", [object(), {"a": "\ud800"}, [[{1j: 1}]]])
def test_events_that_cannot_be_encoded_are_set_aside(data: Any) -> None:
    """An event built past Event.make costs only itself, and its dead letter says which it was."""
    outcome = run([event(1), Event(id="bad", source="/s\udc80", type="t", data=data), event(3)])
    assert ids(outcome.kept) == ["1", "3"]
    assert len(outcome.bodies) == len(outcome.dedup) == 2
    [letter] = outcome.dead
    assert letter.reason == "the event cannot be encoded as JSON"
    assert b"t bad from /s" in letter.body


def test_the_dedup_key_can_be_an_expression() -> None:
    """Equal values have equal hashes, whatever their ids; an event without one is set aside."""
    events = [event(1, {"o": 7}), event(2, {"o": 7.0}), event(3, {}), event(4, {"o": 8})]
    outcome = run(events, dedupe_key="data.o")
    assert ids(outcome.kept) == ["1", "2", "4"]
    assert outcome.bodies == [event.encode() for event in outcome.kept]
    assert outcome.dedup == [dedup_hash("w", key) for key in ("7", "7", "8")]
    [letter] = outcome.dead
    assert letter.stage == "dedupe"
    assert "'data.o'" in letter.reason


def test_dedup_hashes_live_in_their_scope() -> None:
    """The scope that is given takes the place of the watcher's name."""
    outcome = Pipeline.compile(spec(), scope="asset").run([event(1)])
    assert outcome.dedup == [dedup_hash("asset", "/s\0001")]


def test_no_hashes_without_dedupe() -> None:
    """A watcher that does not dedupe labels nothing."""
    outcome = run([event(1)], dedupe=0, dedupe_key="data.n")
    assert (len(outcome.kept), outcome.dedup) == (1, [])


def test_each_kept_event_has_its_number() -> None:
    """Numbers stay with their events when others are too large, or have no dedup key or no number."""
    events = [
        event(1, {"n": 7, "k": 1}),
        event(2, {"n": "8", "k": "x" * 2000}),
        event(3, {"n": 9}),
        event(4, {"n": "no", "k": 1}),
        event(5, {"n": 10.0, "k": 2}),
    ]
    options = {"key": "id", "sequence": Ordering(by="data.n"), "dedupe_key": "data.k", "max_bytes": 1000}
    outcome = run(events, **options)
    assert (ids(outcome.kept), outcome.numbers) == (["1", "5"], [7, 10])
    assert [letter.stage for letter in outcome.dead] == ["sequence", "size", "dedupe"]
    assert run(events[:1], **options).numbers == [7]


def test_a_number_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expression is not evaluated again for the events that are kept."""
    pipeline = Pipeline.compile(spec(key="id", sequence=Ordering(by="data.n")))
    assert pipeline._numbers is not None
    seen: list[str] = []

    def value(one: Event) -> Any:
        seen.append(one.id)
        return one.data["n"]

    monkeypatch.setattr(pipeline._numbers, "_value", value)
    assert pipeline.run([event(1), event(2)]).numbers == [1, 2]
    assert seen == ["1", "2"]


@pytest.mark.parametrize(("numbers", "flush"), [([1, 9, 2], True), ([1, 2], False), ([], False)])
def test_a_kept_event_can_close_the_batch(numbers: list[int], flush: bool) -> None:
    """Any kept event that matches closes; one on which the condition fails, or that is filtered, does not."""
    events = [event(n) for n in numbers] + [event(0, {"m": 9}), event(10)]
    outcome = run(events, where="data.?n.orValue(0) != 10", batch=Batching(flush="data.n > 8"))
    assert outcome.flush is flush


def test_steps_go_in_order() -> None:
    """The filter comes before the key, so that what nobody wants is no dead letter; dedupe sees the key."""
    events = [event(1, {"want": False}), event(2, {"want": True, "k": "a"})]
    outcome = run(events, where="data.want", key="data.k", dedupe_key="key")
    assert (len(outcome.verdicts), outcome.dead, ids(outcome.kept)) == (1, [], ["2"])
    assert outcome.dedup == [dedup_hash("w", "a")]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"where": "1 +"}, "where"),
        ({"key": "nope"}, "key"),
        ({"dedupe_key": "nope"}, "dedupe_key"),
        ({"batch": Batching(flush="nope")}, "batch.flush"),
        ({"batch": Batching(flush="'a'")}, "batch.flush"),
    ],
)
def test_mistakes_are_refused_when_compiled(options: dict[str, Any], named: str) -> None:
    """A wrong expression is a SpecError that names the watcher and the option."""
    with pytest.raises(SpecError, match=f"watcher 'w': {named}"):
        Pipeline.compile(spec(**options))


def test_a_pipeline_can_run_in_several_threads() -> None:
    """Two threads get the same outcome as one."""
    pipeline = Pipeline.compile(spec(where="data.n % 2 == 0", key="data.n"))
    events = [event(n) for n in range(500)]
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(pipeline.run(events))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [pipeline.run(events)] * 4


payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nko"), inner, max_size=3),
    max_leaves=8,
)
PIPELINE = Pipeline.compile(
    spec(
        where="data.n != 3", key="data.k", dedupe_key="data.o", max_bytes=200, batch=Batching(flush="data.n")
    )
)


@settings(deadline=None)
@given(st.lists(payloads | st.binary(max_size=4) | st.builds(object), max_size=8))
def test_every_event_is_kept_filtered_or_dead(data: list[Any]) -> None:
    """No event is lost or doubled on its way, and what is kept is aligned, in order and within the cap."""
    events = [Event(id=str(n), source="/s", type="t", data=value) for n, value in enumerate(data)]
    outcome = PIPELINE.run(events)
    assert len(outcome.kept) + len(outcome.verdicts) + len(outcome.dead) == len(events)
    assert ids(outcome.kept) == sorted(ids(outcome.kept), key=int)
    assert outcome.bodies == [event.encode() for event in outcome.kept]
    assert len(outcome.dedup) == len(outcome.kept)
    assert all(len(body) <= 200 for body in outcome.bodies)
    assert all(event.key for event in outcome.kept)
