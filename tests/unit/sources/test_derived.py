"""A source on top of another: deliveries translated, cut to size, acked once, at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from windsock.events import Event
from windsock.messages import unreadable
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery
from windsock.sources.derived import Derived

acked: list[str] = []


class InnerConfig(msgspec.Struct, frozen=True):
    """What the inner source reads."""

    numbers: list[int]


class Inner:
    """Delivers one event for each number, all at once."""

    kind: ClassVar[str] = "inner"
    config: ClassVar[type[InnerConfig]] = InnerConfig

    def __init__(self, config: InnerConfig) -> None:
        self.options = config

    async def connect(self, cursor: Cursor | None) -> None:
        self.cursor = cursor

    async def read(self) -> AsyncIterator[Delivery]:
        async def ack() -> None:
            acked.append("inner")

        events = [Event.make(n, source="s", type="t", id=n) for n in self.options.numbers]
        yield Delivery(events, cursor={"at": 1}, ack=ack)

    async def lag(self) -> int | None:
        return 7

    async def close(self) -> None:
        acked.append("closed")


class Multiplied(Derived):
    """Each number becomes so many events; a negative one is unreadable."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def inner(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}:Inner", {"numbers": self._numbers}

    def translate(self, event: Event) -> tuple[Sequence[Event], Sequence[Any]]:
        if event.data < 0:
            return [], [unreadable(b"x", ValueError("negative"))]
        return [msgspec.structs.replace(event, id=f"{event.id}.{n}") for n in range(event.data)], []


async def deliveries(numbers: list[int]) -> list[Delivery]:
    """What the derived source delivers, each acked."""
    acked.clear()
    source = Multiplied(numbers)
    await source.connect(None)
    found = []
    async for delivery in source.read():
        found.append(delivery)
        await delivery.ack()
    assert await source.lag() == 7
    await source.close()
    return found


async def test_events_are_translated_in_order() -> None:
    """One event may become several, and what cannot be read becomes a dead letter beside them."""
    [delivery] = await deliveries([2, -1, 1])
    assert [event.id for event in delivery.events] == ["2.0", "2.1", "1.0"]
    assert [letter.reason for letter in delivery.dead] == ["negative"]
    assert delivery.cursor == {"at": 1}
    assert acked == ["inner", "closed"]


@pytest.mark.parametrize("count", [MAX_DELIVERY, MAX_DELIVERY + 1, 2 * MAX_DELIVERY + 5])
async def test_a_large_delivery_is_cut(count: int) -> None:
    """Parts have the allowed size; only the last one carries the cursor and the inner ack."""
    parts = await deliveries([count])
    assert sum(len(part.events) for part in parts) == count
    assert max(len(part.events) for part in parts) <= MAX_DELIVERY
    assert [part.cursor for part in parts] == [None] * (len(parts) - 1) + [{"at": 1}]
    assert acked == ["inner", "closed"]


async def test_nothing_left_still_moves_on() -> None:
    """A delivery of which nothing is left carries the cursor and the ack all the same."""
    [delivery] = await deliveries([0])
    assert (list(delivery.events), delivery.cursor) == ([], {"at": 1})


async def test_close_before_connect() -> None:
    """Nothing to close is nothing to do."""
    source = Multiplied([])
    await source.close()
    assert await source.lag() is None
