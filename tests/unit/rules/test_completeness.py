"""Completeness: parts, manifests, watermarks."""

from __future__ import annotations

import pytest

from windsock.rules import complete
from windsock.spec import SpecError
from windsock.testing.rules import BEGIN, Play

LISTED = complete(
    "files", manifest="manifests", members="data.files", part="data.name", by="data.day", within="1d"
)


def test_n_of_n_parts() -> None:
    """The last part makes the result; the same part twice counts once."""
    play = Play(complete("parts", n=3, part="data.hour", by="data.day"))
    for hour in (0, 1, 1):
        play.event("parts", {"day": "mon", "hour": hour}, at=hour)
    assert play.results == []
    play.event("parts", {"day": "mon", "hour": 2}, at=9)
    [found] = play.results
    assert (found.key, found.data["parts"], found.data["expected"]) == ("mon", ["0", "1", "2"], 3)
    assert len(found.data["causes"]) == 3


def test_how_many_there_are_may_be_said_by_the_events() -> None:
    """n can be an expression that each event answers."""
    play = Play(complete("parts", n="data.of", part="data.part", by="data.file"))
    play.event("parts", {"file": "f", "part": 1, "of": 2}, at=0)
    play.event("parts", {"file": "f", "part": 2, "of": 2}, at=0)
    play.event("parts", {"file": "g", "part": 1, "of": "two"}, at=0, id="bad")
    assert len(play.results) == 1
    assert play.ended() == [("bad", "failed")]


@pytest.mark.parametrize("order", ["mab", "amb", "abm"])
def test_a_manifest_may_come_first_or_last(order: str) -> None:
    """What a manifest lists is complete when all of it is there, in whatever order it comes."""
    play = Play(LISTED)
    for step in order:
        if step == "m":
            play.event("manifests", {"day": 1, "files": ["a", "b"]}, at=0)
        else:
            play.event("files", {"day": 1, "name": step}, at=0)
    [found] = play.results
    assert (found.data["parts"], found.data["missing"], found.data["unlisted"]) == (["a", "b"], [], [])


def test_what_stays_incomplete_is_told() -> None:
    """After its time the rule tells what is missing; if it is completed then, that is told too."""
    play = Play(LISTED)
    play.event("manifests", {"day": 1, "files": ["a", "b"]}, at=0)
    play.event("files", {"day": 1, "name": "a"}, at=0)
    play.event("files", {"day": 1, "name": "z"}, at=0)
    play.wait(86401)
    [found] = play.results
    assert found.type == "windsock.correlated.incomplete"
    assert (found.data["missing"], found.data["unlisted"]) == (["b"], ["z"])
    play.event("files", {"day": 1, "name": "b"}, at=86500)
    assert play.results[1].type == "windsock.correlated"


@pytest.mark.parametrize(
    ("late", "types"),
    [
        ("ignore", ["windsock.correlated"]),
        ("amend", ["windsock.correlated", "windsock.correlated.amended"]),
        ("rerun", ["windsock.correlated", "windsock.correlated"]),
    ],
)
def test_what_comes_after_the_result(late: str, types: list[str]) -> None:
    """A part that comes again after the result is ignored, an amendment, or the whole once more."""
    play = Play(complete("parts", n=2, part="data.p", late=late, late_for=100))  # type: ignore[arg-type]
    for part in (1, 2, 2):
        play.event("parts", {"p": part}, at=0)
    assert [event.type for event in play.results] == types
    assert len({event.id for event in play.results}) == len(types)
    play.wait(200)
    assert play.stored == {}


def test_a_watermark_that_has_passed() -> None:
    """When all partitions say that an hour is over, that hour is told, once."""
    rule = complete("progress", watermark="data.up_to", size="1h", part="data.p", n=2)
    play = Play(rule)
    play.event("progress", {"p": 0, "up_to": BEGIN + 3700}, at=0)
    assert play.results == []
    play.event("progress", {"p": 1, "up_to": "2023-11-14T01:00:00Z"}, at=1)
    play.event("progress", {"p": 1, "up_to": BEGIN + 3600}, at=2, id="again")
    play.event("progress", {"p": 1, "up_to": BEGIN + 9000}, at=3)
    play.event("progress", {"p": 0, "up_to": BEGIN + 7300}, at=4)
    assert [(e.data["start"][11:16], e.data["end"][11:16]) for e in play.results] == [
        ("00:00", "01:00"),
        ("01:00", "02:00"),
    ]
    assert play.ended() == [("again", "late")]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "say when it is complete"),
        ({"n": 0}, "n must be between"),
        ({"manifest": "m"}, "manifest needs members"),
        ({"manifest": "m", "members": "data", "n": 2}, "either n or a manifest"),
        ({"watermark": "data.t"}, "watermark needs size"),
        ({"watermark": "data.t", "size": 1, "n": "data.n"}, "n is a number"),
        ({"watermark": "data.t", "size": 1, "manifest": "m"}, "either a watermark or a manifest"),
        ({"n": 2, "within": 0}, "within must be a time"),
    ],
)
def test_mistakes_are_refused(options: dict[str, object], reason: str) -> None:
    """A rule that cannot work is refused when it is made."""
    with pytest.raises(SpecError, match=reason):
        complete("a", **options)  # type: ignore[arg-type]
