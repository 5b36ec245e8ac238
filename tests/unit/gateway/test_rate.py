"""The token bucket and the room for bodies."""

from __future__ import annotations

import pytest

from windsock.gateway.rate import Room, TokenBucket
from windsock.gateway.refusal import Refused


class Clock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(bucket: TokenBucket, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            bucket.take()
        except Refused:
            break
        count += 1
    return count


def test_burst_then_rate() -> None:
    """A full bucket gives its burst at once, then one token per 1/rate seconds, never more than the burst."""
    clock = Clock()
    bucket = TokenBucket(10, 5, clock=clock)
    assert taken(bucket, 100) == 5
    clock.now += 0.2
    assert taken(bucket, 100) == 2
    clock.now += 1000
    assert taken(bucket, 100) == 5


def test_the_refusal_says_when() -> None:
    """Who is too fast gets 429 and the seconds to wait, rounded up."""
    clock = Clock()
    bucket = TokenBucket(0.1, clock=clock)
    bucket.take()
    clock.now += 4.5
    with pytest.raises(Refused) as caught:
        bucket.take()
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "6"})


def test_burst_is_one_seconds_worth_by_default() -> None:
    """Without a burst the bucket holds what one second brings, and at least one request."""
    assert taken(TokenBucket(7, clock=Clock()), 100) == 7
    assert taken(TokenBucket(0.5, clock=Clock()), 100) == 1


def test_zero_is_no_limit() -> None:
    """A rate of 0 refuses nobody."""
    assert taken(TokenBucket(0, clock=Clock()), 10_000) == 10_000


def test_the_room_is_given_back() -> None:
    """Bytes count against all requests together, and come back when a request ends, also by an error."""
    room = Room(100)
    with room.hold() as one, room.hold() as two:
        one.add(60)
        two.add(40)
        with pytest.raises(Refused) as caught:
            two.add(1)
        assert caught.value.status == 503
    assert room.held == 0
    with pytest.raises(Refused), room.hold() as three:
        three.add(101)
    assert room.held == 0
