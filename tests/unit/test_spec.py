"""Watcher specs: checked, described when wrong, and the same after every journey."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windsock.spec import Batching, SpecError, WatcherSpec, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (5, 5.0),
        (0, 0.0),
        (1.5, 1.5),
        ("5s", 5.0),
        ("250ms", 0.25),
        ("10 min", 600.0),
        ("10m", 600.0),
        ("24h", 86400.0),
        ("7d", 604800.0),
        ("1w", 604800.0),
        ("1h30m", 5400.0),
        (" 1h 30m ", 5400.0),
        ("1.5h", 5400.0),
    ],
)
def test_durations_are_read(text: str | float, value: float) -> None:
    """Numbers are seconds; text has units, which add up."""
    assert seconds(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "-5s",
        "5 parsecs",
        "1h and 5m",
        "5sx",
        "1.h",
        -1,
        -0.5,
        True,
        None,
        float("nan"),
        float("inf"),
    ],
)
def test_what_is_no_duration_is_refused(text: Any) -> None:
    """A duration that is none is refused with examples of good ones."""
    with pytest.raises(SpecError, match="is not a duration: write seconds"):
        seconds(text)


@pytest.mark.parametrize("name", ["orders", "a", "A.b-c_9", "x" * 100])
def test_names_that_are_allowed(name: str) -> None:
    """A name is letters, digits and a little punctuation."""
    assert WatcherSpec(name=name, kind="files").name == name


@pytest.mark.parametrize("name", ["", ".x", "a b", "a/b", "é", "x" * 101, "a\n"])
def test_names_that_are_not(name: str) -> None:
    """A name that would not fit in a URL or a table is refused."""
    with pytest.raises(SpecError, match="use letters, digits"):
        WatcherSpec(name=name, kind="files")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"max_bytes": 0}, "max_bytes must be at least 1"),
        ({"high_water": 0, "low_water": 0}, "high_water must be at least 1"),
        ({"high_water": 5, "low_water": 6}, "low_water must not be above high_water"),
        ({"low_water": -1}, "low_water must be at least 0"),
        ({"dedupe": -1.0}, "dedupe must be at least 0"),
        ({"retry_delay": -1.0}, "retry_delay must be at least 0"),
        ({"batch": Batching(size=0)}, "at least one event and one byte"),
        ({"batch": Batching(bytes=0)}, "at least one event and one byte"),
        ({"batch": Batching(within=-1.0)}, "within and quiet must not be negative"),
        ({"batch": Batching(quiet=-1.0)}, "within and quiet must not be negative"),
    ],
)
def test_limits_are_checked(options: dict[str, Any], reason: str) -> None:
    """A limit that makes no sense is refused with the watcher's name."""
    with pytest.raises(SpecError, match=f"watcher 'w': .*{reason}"):
        WatcherSpec(name="w", kind="files", **options)
    plain = {
        k: {"size": v.size, "bytes": v.bytes, "within": v.within, "quiet": v.quiet} if k == "batch" else v
        for k, v in options.items()
    }
    with pytest.raises(SpecError, match=f"watcher 'w': .*{reason}"):
        WatcherSpec.from_dict({"name": "w", "kind": "files"} | plain)


def test_a_spec_comes_back_equal() -> None:
    """What is registered in the log and travels to the trigger is the same spec."""
    spec = WatcherSpec(
        name="w",
        kind="files",
        options={"path": "in", "deep": {"a": [1]}},
        where="type == 'x'",
        key="data.k",
        dedupe=60.0,
        dedupe_key="data.o",
        batch=Batching(size=5, within=2.0, flush="true"),
        max_attempts=5,
    )
    plain = json.loads(json.dumps(spec.as_dict()))
    assert WatcherSpec.from_dict(plain) == spec
    assert WatcherSpec.from_dict({"name": "w", "kind": "files"}) == WatcherSpec(name="w", kind="files")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"name": "w"}, "watcher 'w': .*kind"),
        ({"name": "w", "kind": "files", "wher": "x"}, "watcher 'w': .*wher"),
        ({"name": "w", "kind": "files", "batch": {"sise": 5}}, "watcher 'w': .*sise"),
        ({"name": "w", "kind": "files", "batch": {"size": "5"}}, "watcher 'w': .*int"),
        ({"kind": "files"}, "watcher None: .*name"),
        ([], "watcher None: "),
        (None, "watcher None: "),
    ],
)
def test_wrong_options_are_named(value: Any, reason: str) -> None:
    """A declaration with a missing, unknown or wrong option is refused by its name."""
    with pytest.raises(SpecError, match=reason):
        WatcherSpec.from_dict(value)


def test_a_batch_without_times_closes_at_once() -> None:
    """Only a window or a quiet period keeps a batch open."""
    assert Batching().immediate
    assert not Batching(within=1.0).immediate
    assert not Batching(quiet=1.0).immediate
