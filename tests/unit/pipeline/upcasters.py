"""Functions and a model that the tests of transformations and versions name by their path."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from pydantic import BaseModel

from windsock.events import Event


class Order(BaseModel):
    """What an order looks like."""

    id: int
    at: datetime
    note: str = "none"


def to_two(data: dict[str, Any]) -> dict[str, Any]:
    """Version 2 splits the name."""
    first, _, last = data["name"].partition(" ")
    return {"v": 2, "first": first, "last": last}


def to_three(data: dict[str, Any]) -> dict[str, Any]:
    """Version 3 renames it."""
    return {"v": 3, "given": data["first"], "family": data["last"]}


def doubled(event: Event) -> list[Event]:
    """One event becomes two."""
    return [event, msgspec.structs.replace(event, id=f"{event.id}-2")]


def dropped(event: Event) -> None:
    """No event wants to go on."""


def wrapped(event: Event) -> dict[str, Any]:
    """New data."""
    return {"was": event.data}


def number(event: Event) -> int:
    """Not what a transformation may return."""
    return 1


def raises(event: Event) -> Event:
    """Breaks on every event."""
    raise KeyError("gone")
