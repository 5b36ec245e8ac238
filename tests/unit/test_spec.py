"""Watcher specs: checked, described when wrong, and the same after every journey."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.spec import Batching, Retention, Retry, SpecError, WatcherSpec, seconds


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


@pytest.mark.parametrize(
    ("category", "retry", "reason"),
    [
        ("expired", Retry(), "one of invalid, transient, poison, rejected; not 'expired'"),
        ("flaky", Retry(), "not 'flaky'"),
        ("transient", Retry(attempts=0), "at least one attempt"),
        ("transient", Retry(delay=-1.0), "not negative"),
        ("transient", Retry(cap=-1.0), "not negative"),
        ("transient", Retry(jitter=1.1), "between 0 and 1"),
    ],
)
def test_retries_are_checked(category: str, retry: Retry, reason: str) -> None:
    """A category that is never retried, or a policy that makes no sense, is refused."""
    with pytest.raises(SpecError, match=f"watcher 'w': retry .*{reason}"):
        WatcherSpec(name="w", kind="files", retry={category: retry})


def test_retries_are_written_as_text() -> None:
    """Durations inside a retry policy may be text, as everywhere."""
    plain = {"name": "w", "kind": "files", "retry": {"transient": {"delay": "5min", "cap": "2h"}}}
    assert WatcherSpec.from_dict(plain).retry == {"transient": Retry(delay=300.0, cap=7200.0)}


@given(st.integers(0, 100), st.text(), st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1))
def test_a_wait_is_bounded_and_always_the_same(
    retries: int, seed: str, delay: float, cap: float, jitter: float
) -> None:
    """It doubles up to the cap, less at most the jitter's share, and chance has no part in it."""
    retry = Retry(delay=delay, cap=cap, jitter=jitter)
    longest = min(cap, delay * 2.0 ** min(retries, 30))
    wait = retry.wait(retries, seed)
    assert longest * (1 - jitter) - 1e-6 <= wait <= longest
    assert wait == retry.wait(retries, seed)


def test_letters_do_not_all_come_back_at_once() -> None:
    """The jitter differs from letter to letter."""
    assert len({Retry().wait(0, str(letter)) for letter in range(100)}) == 100


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


@pytest.mark.parametrize(
    ("retention", "reason"),
    [
        ({"count": -1}, "retention count must be at least 0"),
        ({"bytes": -1}, "retention bytes must be at least 0"),
        ({"archive": "events"}, "archive 'events' must be an absolute path, or a URL"),
        ({"days": 3}, "days"),
    ],
)
def test_a_retention_that_cannot_be_is_refused(retention: dict[str, Any], reason: str) -> None:
    """Limits are not negative, and an archive is where every process finds it."""
    with pytest.raises(SpecError, match=f"watcher 'w': .*{reason}"):
        WatcherSpec.from_dict({"name": "w", "kind": "files", "retention": retention})


def test_a_retention_is_written_in_words() -> None:
    """Its age may be text, as in a Dag or in YAML."""
    limits = {"age": "7d", "count": 5, "archive": "s3://my_aws@bucket/events"}
    spec = WatcherSpec.from_dict({"name": "w", "kind": "files", "retention": limits})
    assert spec.retention == Retention(age=604800.0, count=5, archive="s3://my_aws@bucket/events")


def test_a_batch_without_times_closes_at_once() -> None:
    """Only a window or a quiet period keeps a batch open."""
    assert Batching().immediate
    assert not Batching(within=1.0).immediate
    assert not Batching(quiet=1.0).immediate
