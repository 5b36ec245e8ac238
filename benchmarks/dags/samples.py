"""The events that everything is measured with: an order of about 460 bytes when encoded."""

from __future__ import annotations

import datetime as dt
import random
import uuid

from windsock.events import Event

__all__ = ["TYPE", "order", "orders"]

SOURCE = "bench://shop/orders"
TYPE = "order.created"
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven")


def order(n: int, chance: random.Random) -> Event:
    """One order, with a random id as most systems give them."""
    return Event.make(
        {
            "order": n,
            "customer": {"id": chance.randrange(10_000), "tier": chance.choice(("gold", "silver", "none"))},
            "lines": [
                {"sku": f"SKU-{chance.randrange(100_000):05d}", "count": 2, "price": 1999},
                {"sku": f"SKU-{chance.randrange(100_000):05d}", "count": 1, "price": 459},
            ],
            "total": 4457,
            "currency": "EUR",
            "note": " ".join(chance.choice(_WORDS) for _ in range(22)),
        },
        source=SOURCE,
        type=TYPE,
        id=uuid.UUID(int=chance.getrandbits(128), version=4),
        time=_START + dt.timedelta(milliseconds=n),
    )


def orders(first: int, count: int) -> list[Event]:
    """Orders ``first``, ``first + 1``, …: the same ones whenever they are asked for."""
    chance = random.Random(first)
    return [order(n, chance) for n in range(first, first + count)]
