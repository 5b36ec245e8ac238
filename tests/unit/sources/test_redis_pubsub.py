"""The Redis pub/sub source without a server: its options."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import WindsockError
from windsock.sources import make_source
from windsock.sources.redis_pubsub import RedisPubSubSource


@pytest.mark.parametrize("wrong", [{}, {"channel": []}, {"channel": ""}, {"pattern": ["a", ""]}])
def test_something_must_be_listened_to(wrong: dict[str, Any]) -> None:
    """A watcher without a channel or a pattern would wait for ever, and is refused."""
    with pytest.raises(WindsockError, match="name a channel or a pattern"):
        make_source("redis_pubsub", {"conn_id": "redis_default", **wrong})


def test_one_or_several() -> None:
    """Channels and patterns are named by themselves or in lists."""
    source = make_source("redis_pubsub", {"conn_id": "c", "channel": "a", "pattern": ["b.*", "c.*"]})
    assert isinstance(source, RedisPubSubSource)
    assert (source.options.channels, source.options.patterns) == (("a",), ("b.*", "c.*"))


def test_says_what_it_cannot_give() -> None:
    """The capability table states the weaker promise."""
    stated = RedisPubSubSource.guarantees
    assert (stated.delivery, stated.position, stated.once, stated.lag) == (
        "at most once",
        "none",
        "never",
        False,
    )
