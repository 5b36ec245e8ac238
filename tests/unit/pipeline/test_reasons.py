"""Why a condition was not true: the false parts of it, with values."""

from __future__ import annotations

import pytest

from windsock.events import Event
from windsock.pipeline.reasons import reasons

EVENT = Event.make(
    {"total": 12, "tier": "gold", "tags": ["a"], "text": "a && b"}, source="shop", type="order.created"
)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("data.total > 100", ["data.total > 100 is false: data.total = 12"]),
        ("type == 'order.created' && data.total > 100", ["data.total > 100 is false: data.total = 12"]),
        (
            "data.total > 100 || data.tier == 'silver'",
            [
                "data.total > 100 is false: data.total = 12",
                "data.tier == 'silver' is false: data.tier = \"gold\"",
            ],
        ),
        (
            "(type == 'x' || (data.total > 5 && data.total < 10)) && data.tier == 'gold'",
            ["type == 'x' is false: type = \"order.created\"", "data.total < 10 is false: data.total = 12"],
        ),
        ("data.missing > 1", ['data.missing > 1 cannot be evaluated: Key not found in map : "missing"']),
        ("!(data.total > 5)", ["!(data.total > 5) is false"]),
        ("'b' in data.tags", ["'b' in data.tags is false: data.tags = [\"a\"]"]),
        ("data.text == 'x && y'", ["data.text == 'x && y' is false: data.text = \"a && b\""]),
        ("data.tags.exists(t, t == 'b' || t == 'c')", ["data.tags.exists(t, t == 'b' || t == 'c') is false"]),
        ("data.total > 5", []),
        ("((data.total > 5))", []),
        ("(data.total > 5) && (data.total > 50)", ["data.total > 50 is false: data.total = 12"]),
        ("json:loads", ["json:loads did not return true"]),
    ],
)
def test_the_false_parts_are_named(expression: str, wanted: list[str]) -> None:
    """Each smallest part that was false is shown with the values that made it so."""
    assert reasons(expression, EVENT) == wanted
