"""Paths into JSON documents, and which values match."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.json_path import MISSING, JsonPath, PathError, matches

DOCUMENT = {
    "status": "ready",
    "jobs": [{"state": "done"}, {"state": "running"}],
    "data": {"status": 7, "null": None},
    "labels": {"app.kubernetes.io/state": "up", "it's": 1, "two words": 2},
    "$": "dollar",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status", "ready"),
        ("$.status", "ready"),
        ("jobs[0].state", "done"),
        ("$.jobs[-1].state", "running"),
        ("data.status", 7),
        ("data.null", None),
        ('labels."app.kubernetes.io/state"', "up"),
        ("labels['app.kubernetes.io/state']", "up"),
        ('labels["it\'s"]', 1),
        ("labels.'two words'", 2),
        ('"data".status', 7),
        ("['status']", "ready"),
        ('"$"', "dollar"),
        ("$", DOCUMENT),
        ("absent", MISSING),
        ("status.deeper", MISSING),
        ("absent.deeper[0]", MISSING),
        ("jobs[2].state", MISSING),
        ("jobs[-3]", MISSING),
        ("jobs.state", MISSING),
        ("data[0]", MISSING),
        ("status[0]", MISSING),
    ],
)
def test_a_path_finds_its_value(path: str, value: Any) -> None:
    """Keys, indexes and quoted keys lead to the value; where there is none, it is missing, never an error."""
    assert JsonPath(path).find(DOCUMENT) == value


def test_an_index_at_the_top() -> None:
    """An answer may be a list."""
    assert JsonPath("[1].a").find([{}, {"a": 1}]) == 1
    assert JsonPath("$[1].a").find([{}, {"a": 1}]) == 1


@pytest.mark.parametrize(
    "path", ["", " ", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", "a]", 'a."b', "$a", "a b"]
)
def test_a_bad_path_is_refused(path: str) -> None:
    """The error shows the path and an example of a good one."""
    with pytest.raises(PathError, match=r"path .*(jobs\[0\]\.state|'status')"):
        JsonPath(path)


@pytest.mark.parametrize(
    ("expected", "actual", "match"),
    [
        ("ready", "ready", True),
        ("ready", "Ready", False),
        ("3", 3, True),
        ("3", "3", True),
        ("3", 3.0, True),
        (3, 3.0, True),
        (3, "3", False),
        ("true", True, True),
        ("True", True, False),
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        ("1", True, False),
        (0, False, False),
        ("null", None, True),
        (None, None, True),
        (None, MISSING, False),
        ("null", MISSING, False),
        ("nothing", MISSING, False),
        ("[1]", [1], False),
        ([1, "a"], [1.0, "a"], True),
        ([1], [True], False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("ready", 3, False),
    ],
)
def test_values_match_as_json(expected: Any, actual: Any, match: bool) -> None:
    """Equal JSON values match, and a text also matches the number, boolean or null that it spells."""
    assert matches(expected, actual) is match
