"""What the watchers in ``steps.py`` name by dotted path."""

from __future__ import annotations

from typing import Any

from windsock import Event


def not_a_test(event: Event) -> bool:
    """A filter in Python."""
    return not event.data.get("test")


def to_two(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had one name."""
    first, _, last = data["name"].partition(" ")
    return {"v": 2, "n": data["n"], "first": first, "last": last}


def to_three(data: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had two fields for it."""
    return {"v": 3, "n": data["n"], "name": {"first": data["first"], "last": data["last"]}}
