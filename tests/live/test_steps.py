"""Every step of the pipeline on a real Airflow: what is declared on the watcher decides what the runs get."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from live.field import Field, shut
from windsock.log.records import EventQuery

pytestmark = pytest.mark.live


def send(field: Field, watcher: str, *values: Any, **headers: str) -> None:
    """Send webhooks, once the watcher's Dag has its place."""
    field.stack.wait_for(lambda: watcher in watched(field), 120, f"a Dag on {watcher}")
    for value in values:
        answer = field.post(watcher, value, **headers)
        assert answer.is_success, answer.text


def watched(field: Field) -> set[str]:
    """The watchers that a Dag is scheduled on."""
    return {place.watcher for place in field.log.subscriptions() if place.active}


def numbers(*values: int) -> list[dict[str, Any]]:
    """Events that differ by a number."""
    return [{"n": n, "k": "k"} for n in values]


def number(of: Any) -> int:
    """The number of a record's event."""
    found: int = of.event.data["n"]
    return found


def arrive(field: Field, dag_id: str, expected: Sequence[Any]) -> None:
    """Wait until successful runs had so many values and all is settled; they are these, in any order."""
    field.stack.wait_for(lambda: len(field.had(dag_id)) >= len(expected), 120, f"the events of {dag_id}")
    field.stack.wait_for(field.settled(dag_id), 60, f"{dag_id} to have settled all")
    assert sorted(field.had(dag_id), key=str) == sorted(expected, key=str)


@contextmanager
def paused(field: Field, dag_id: str) -> Iterator[None]:
    """While the Dag is paused, and the log knows it."""
    field.stack.wait_for(field.subscribed(dag_id), 120, f"the subscription of {dag_id}")

    def known(paused: bool) -> bool:
        return all(place.paused is paused for place in field.log.subscriptions(dag_id=dag_id))

    field.stack.api.pause(dag_id)
    field.stack.wait_for(lambda: known(True), 30, "the pause")
    yield
    field.stack.api.unpause(dag_id)
    field.stack.wait_for(lambda: known(False), 30, "the end of the pause")


def letters(field: Field, watcher: str) -> list[tuple[str, str]]:
    """Stage and category of a watcher's dead letters."""
    return [(letter.stage, str(letter.category)) for letter in field.log.dead_letters(watcher=watcher)]


def explained(field: Field, event_id: str) -> str:
    """All that ``windsock explain`` has to say."""
    code, answer = field.windsock("explain", event_id)
    assert code == 0
    return json.dumps(answer)


def test_unwrap(field: Field) -> None:
    """A Dag gets what SNS carried; what is in no such envelope is set aside."""
    topic = "arn:aws:sns:eu-central-1:123456789012:orders"
    note = {"Type": "Notification", "MessageId": "m-1", "TopicArn": topic, "Message": json.dumps({"n": 1})}
    send(field, "step_unwrap", note, {"n": 2})
    field.stack.wait_for(lambda: field.had("step_unwrap"), 120, "the unwrapped event")
    [(n, source)] = field.had("step_unwrap")
    assert (n, topic in source) == (1, True)
    assert letters(field, "step_unwrap") == [("unwrap", "invalid")]


def test_filter_and_transform(field: Field) -> None:
    """Types, a chain of conditions and a function choose; the Dag gets computed fields; explain says why."""
    events = {"kept": ("order.paid", 250), "cheap": ("order.paid", 50), "other": ("invoice.sent", 250)}
    for n, (name, (kind, cents)) in enumerate(events.items()):
        event = {"specversion": "1.0", "id": f"shape-{name}", "source": "shop", "type": kind}
        event["data"] = {"n": n, "cents": cents, "test": False}
        send(field, "step_shape", event, **{"Content-Type": "application/cloudevents+json"})
    arrive(field, "step_shape", [["0", {"n": 0, "euro": 2.5}]])
    assert "data.cents > 100" in explained(field, "shape-cheap")
    assert "invoice.sent" in explained(field, "shape-other")
    [health] = [one for one in field.log.health() if one.watcher == "step_shape"]
    assert (health.logged, health.filtered) == (1, 2)


def test_validate(field: Field) -> None:
    """Text that is a number becomes one; text that is none is set aside."""
    send(field, "step_validate", {"n": "7"}, {"n": 8}, {"n": "many"})
    arrive(field, "step_validate", [7, 8])
    assert letters(field, "step_validate") == [("validate", "invalid")]


def test_versions(field: Field) -> None:
    """Events of three versions reach the Dag in the newest; one of an unknown version is set aside."""
    send(
        field,
        "step_versions",
        {"v": "1", "n": 1, "name": "Ada Lovelace"},
        {"v": "2", "n": 2, "first": "Grace", "last": "Hopper"},
        {"v": "3", "n": 3, "name": {"first": "Mary", "last": "Jackson"}},
        {"v": "9", "n": 4, "name": "?"},
    )
    arrive(field, "step_versions", [[1, "Lovelace"], [2, "Hopper"], [3, "Jackson"]])
    [letter] = field.log.dead_letters(watcher="step_versions")
    assert "version '9' is not known" in letter.reason


def test_dedupe_across_the_watchers_of_an_asset(field: Field) -> None:
    """What one watcher has brought is a duplicate at the other, and explain names the first."""
    send(field, "step_dedupe", *numbers(1, 2))
    send(field, "step_dedupe_too", *numbers(2, 3))
    arrive(field, "step_dedupe", [1, 2, 3])
    [verdict] = [one for one in field.log.verdicts(watcher="step_dedupe_too") if one.verdict == "duplicate"]
    [first] = [one for one in field.log.events(EventQuery(watcher="step_dedupe")) if number(one) == 2]
    assert (number(verdict), verdict.seq) == (2, first.event.seq)


def test_dedupe_by_content(field: Field) -> None:
    """The same content under another id is a duplicate."""
    send(field, "step_content", {"n": 1, "by": "a"}, {"n": 1, "by": "a"}, {"n": 1, "by": "b"})
    arrive(field, "step_content", [1, 1])


def test_a_gap_in_a_sequence_is_waited_for_then_left(field: Field) -> None:
    """Out of order arrives in order; a number that never comes holds the rest only so long."""
    send(field, "step_release", *numbers(1, 3, 2, 5))
    arrive(field, "step_release", [1, 2, 3, 5])
    assert [n for batch in field.batches("step_release") for n in batch] == [1, 2, 3, 5]


def test_a_gap_in_a_sequence_sets_aside(field: Field) -> None:
    """What waited behind a gap for too long goes to the dead letters as expired."""
    send(field, "step_set_aside", *numbers(1, 3))
    field.stack.wait_for(lambda: letters(field, "step_set_aside"), 120, "the letter")
    assert letters(field, "step_set_aside") == [("sequence", "expired")]
    arrive(field, "step_set_aside", [1])


def test_a_gap_in_a_sequence_holds(field: Field) -> None:
    """An event ahead of its turn waits, explain names the missing number, and its coming lets both go."""
    send(field, "step_hold", *numbers(1))
    send(field, "step_hold", *numbers(3), **{"Idempotency-Key": "held-3"})
    arrive(field, "step_hold", [1])
    assert "2" in explained(field, "held-3")
    assert [number(held) for held in field.log.held(watcher="step_hold")] == [3]
    send(field, "step_hold", *numbers(2))
    arrive(field, "step_hold", [1, 2, 3])


@pytest.mark.parametrize(
    ("watcher", "events", "batches"),
    [
        ("step_size", numbers(*range(8)), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("step_bytes", [{"n": n, "pad": "x" * 900} for n in range(2)], [[0, 1]]),
        ("step_within", numbers(*range(5)), [[0, 1, 2, 3, 4]]),
        ("step_quiet", numbers(*range(5)), [[0, 1, 2, 3, 4]]),
        ("step_leading", numbers(*range(5)), [[0], [1, 2, 3, 4]]),
        ("step_flush", [*numbers(*range(4)), {"n": 4, "end": True}], [[0, 1, 2, 3, 4]]),
    ],
)
def test_batches(field: Field, watcher: str, events: list[Any], batches: list[list[int]]) -> None:
    """A batch closes by size, bytes, time, quiet or an event that says so, and one run has all of it."""
    send(field, watcher, *events)
    arrive(field, watcher, [n for batch in batches for n in batch])
    assert field.batches(watcher) == batches


def test_adaptive_batches_keep_every_event(field: Field) -> None:
    """While a run is at work what comes gathers: all events arrive once, in fewer runs than events."""
    send(field, "step_target", *numbers(*range(60)))
    arrive(field, "step_target", range(60))
    assert 1 < len(field.batches("step_target")) < 30


def test_throttle(field: Field) -> None:
    """After one announcement the next waits; everything that came meanwhile goes along with it."""
    send(field, "step_throttle", *numbers(0))
    field.stack.wait_for(lambda: field.had("step_throttle"), 120, "the first event")
    send(field, "step_throttle", *numbers(1, 2, 3))
    arrive(field, "step_throttle", [0, 1, 2, 3])
    assert field.batches("step_throttle")[-1][-3:] == [1, 2, 3]


def test_rate_limit(field: Field) -> None:
    """Runs together take no more than two events in eight seconds; the rest waits and then comes."""
    send(field, "step_rate", *numbers(*range(5)))
    arrive(field, "step_rate", range(5))
    assert all(len(batch) <= 2 for batch in field.batches("step_rate"))


def test_routes_of_one_source(field: Field) -> None:
    """Each file goes to the first watcher that matches; one that matches none is set aside."""
    for watcher in ("step_small", "step_large"):
        field.stack.wait_for(field.subscribed(watcher), 120, f"the subscription of {watcher}")
    for name, size in (("small.txt", 5), ("large.txt", 500), ("middle.txt", 50)):
        (field.inbox / "routed" / name).write_text("x" * size)
    arrive(field, "step_small", ["small.txt"])
    arrive(field, "step_large", ["large.txt"])
    field.stack.wait_for(lambda: letters(field, "step_large"), 60, "the letter of what matches nothing")
    [letter] = field.log.dead_letters(watcher="step_large")
    assert (letter.stage, b"middle.txt" in letter.body) == ("route", True)


def test_branches_inside_a_dag(field: Field) -> None:
    """``windsock.route`` chooses the task that runs."""
    send(field, "step_branch", {"total": 5000}, {"total": 5})
    arrive(field, "step_branch", ["booked", "reviewed"])


def test_events_are_handed_to_dags_by_name(field: Field) -> None:
    """Each event starts the Dag of its country, or the default; one that can go nowhere is set aside."""
    countries = ("de", "", "de", "atlantis")
    send(field, "step_hand_over", *({"n": n, "country": country} for n, country in enumerate(countries)))
    field.stack.wait_for(lambda: len(field.had("step_country_de")) == 2, 120, "the runs of one country")
    field.stack.wait_for(lambda: field.had("step_world"), 60, "the run of the rest")
    assert (sorted(field.had("step_country_de")), field.had("step_world")) == ([0, 2], [1])
    [letter] = field.log.dead_letters(watcher="step_hand_over")
    assert letter.reason == "there is no Dag 'step_country_atlantis'"


def test_priority(field: Field) -> None:
    """Among the watchers of an asset the more important one's events go first, though they came last."""
    with paused(field, "step_last"):
        send(field, "step_last", *numbers(3, 4))
        send(field, "step_first", *numbers(1, 2))
    arrive(field, "step_last", [1, 2, 3, 4])
    assert field.batches("step_last") == [[1], [2], [3], [4]]


def test_too_old(field: Field) -> None:
    """What waited longer than its age limit becomes a dead letter and no run's."""
    with paused(field, "step_age"):
        send(field, "step_age", *numbers(1), **{"Idempotency-Key": "too-old"})
        field.stack.wait_for(lambda: letters(field, "step_age"), 60, "the letter")
    assert [category for _, category in letters(field, "step_age")] == ["expired"]
    send(field, "step_age", *numbers(2))
    arrive(field, "step_age", [2])
    assert "expired" in explained(field, "too-old")


def test_a_source_is_paused_and_goes_on(field: Field) -> None:
    """Above the high water the folder is left alone and health says so; when the Dag works, all arrives."""
    folder = field.inbox / "step_pressure"

    def drop(*names: int) -> list[str]:
        for n in names:
            (folder / f"{n:02}.txt").write_text("x")
        return [f"{n:02}.txt" for n in names]

    def state() -> str | None:
        return next(one.state for one in field.log.health() if one.watcher == "step_pressure")

    field.stack.wait_for(field.subscribed("step_pressure"), 120, "the subscription")
    with shut(field.folder / "gate"):
        dropped = drop(*range(6))
        field.stack.wait_for(lambda: state() == "paused", 60, "the source to be paused")
        assert field.log.backlog(["step_pressure"]) == 6
        dropped += drop(*range(6, 20))
    arrive(field, "step_pressure", dropped)
    field.stack.wait_for(lambda: state() == "running", 60, "the source to go on")


def test_replay(field: Field) -> None:
    """Chosen events come again, marked; a preview, or the same replay twice, brings nothing new."""
    send(field, "step_kept", *({"n": n, "k": f"k{n % 3}"} for n in range(6)))
    arrive(field, "step_kept", range(6))
    chosen = ("replay", "again", "--watcher", "step_kept", "--where", "data.n >= 4")
    code, preview = field.windsock(*chosen)
    assert (code, preview["events"]) == (0, 2)
    for _ in range(2):
        assert field.windsock(*chosen, "--go")[0] == 0
    arrive(field, "step_kept", [*range(6), 4, 5])
    [replay] = [one for one in field.windsock("replay")[1] if one["id"] == "again"]
    assert (replay["planned"], replay["made"]) == (2, 2)


def test_what_a_change_would_do(field: Field) -> None:
    """Diff says what a new filter changes in the events of the past; forecast counts the runs of a day."""
    changed = field.folder / "watchers.yaml"
    changed.write_text(
        "watchers:\n  step_kept: {kind: webhook, auth: none, key: data.k, where: data.n > 2}\n"
    )
    code, diff = field.windsock("diff", "registered", str(changed), "--watcher", "step_kept", "--exit-code")
    [found] = diff["diff"]["watchers"]
    assert (code, found["changes"]["newly filtered"]) == (1, 3)
    code, [forecast] = field.windsock("forecast", "--watcher", "step_kept")
    assert (code, forecast["events"]) == (0, 6)


def test_archived_events_are_found_replayed_and_erased(field: Field) -> None:
    """What is past its retention goes to Parquet, can be searched and replayed, and is erased by key."""
    field.stack.wait_for(field.settled("step_kept"), 60, "the events to be settled")
    code, left = field.windsock("archive", "--now")
    assert (code, left["archived"]) == (0, 4)
    found = field.windsock("events", "--archived", "--watcher", "step_kept")[1]
    assert sorted(one["event"]["data"]["n"] for one in found) == [0, 1, 2, 3]
    before = len(field.had("step_kept"))
    go = ("replay", "old", "--watcher", "step_kept", "--where", "data.n < 2", "--archived", "--go")
    assert field.windsock(*go)[0] == 0
    field.stack.wait_for(lambda: len(field.had("step_kept")) == before + 2, 120, "the archived events")
    field.stack.wait_for(field.settled("step_kept"), 60, "the archived events to be settled")
    code, receipt = field.windsock("erase", "--key", "k0", "--by", "a test")
    assert code == 0
    assert receipt["finished_at"]
    for place in ((), ("--archived",)):
        assert field.windsock("events", "--watcher", "step_kept", "--key", "k0", *place)[1] == []
