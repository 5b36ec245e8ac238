"""The shards of one Kinesis stream: which there are, how far each was read, which may be read now.

A reshard closes shards and opens children of them. What a child holds came after what its parents hold, so
that a child is read only when its parents were read to the end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windsock.sources.base import Cursor

__all__ = ["END", "HORIZON", "LATEST", "Shards", "at_time", "iterator_of"]

HORIZON = "horizon"
"""From the oldest record that the stream still has."""
LATEST = "latest"
"""Only what comes from now on."""
END = "end"
"""A closed shard that was read to its end."""
_TIME = "@"
"""Before a time in seconds since 1970; any other position is a sequence number."""


class Shards:
    """Shards and positions; see the module's docstring."""

    def __init__(self, cursor: Cursor | None, start: str, now: float) -> None:
        """``start`` is where to begin without a cursor; ``now`` is the time on the stream's own clock."""
        self._positions: dict[str, str] = dict((cursor or {}).get("shards") or {})
        self._start, self._now, self._first = start, now, cursor is None
        self._listed: dict[str, Mapping[str, Any]] = {}

    def listed(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Take note of the shards that there are now; those that are gone are forgotten."""
        self._listed = {shard["ShardId"]: shard for shard in shards}
        known = {name: position for name, position in self._positions.items() if name in self._listed}
        for name, shard in self._listed.items():
            if name not in known:
                known[name] = self._begin(shard)
        self._positions, self._first = known, False

    def _begin(self, shard: Mapping[str, Any]) -> str:
        if not self._first:
            return HORIZON  # it was born since, so all of it is news
        if self._start != LATEST:
            return self._start
        return END if shard.get("SequenceNumberRange", {}).get("EndingSequenceNumber") else LATEST

    def readable(self) -> Iterator[tuple[str, str]]:
        """Each shard whose turn it is, with its position."""
        for name, shard in self._listed.items():
            parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
            done = all(self._positions.get(parent, END) == END for parent in parents if parent)
            if done and self._positions[name] != END:
                yield name, self._positions[name]

    def read(self, shard: str, position: str) -> None:
        """Everything of the shard up to this position was handed out."""
        self._positions[shard] = position

    def owns(self, shard: str, hash_key: int) -> bool:
        """Whether the shard's range has the hash key of a record."""
        span = self._listed.get(shard, {}).get("HashKeyRange")
        return not span or int(span["StartingHashKey"]) <= hash_key <= int(span["EndingHashKey"])

    def cursor(self) -> Cursor:
        """The positions as the log keeps them: one that waits for news begins where it waited."""
        waiting = at_time(self._now)
        return {"shards": {s: waiting if p == LATEST else p for s, p in self._positions.items()}}


def at_time(moment: float) -> str:
    """The position of the first record from then on, in seconds since 1970."""
    return f"{_TIME}{moment}"


def iterator_of(position: str) -> dict[str, Any]:
    """The arguments of GetShardIterator for a position."""
    if position == HORIZON:
        return {"ShardIteratorType": "TRIM_HORIZON"}
    if position == LATEST:
        return {"ShardIteratorType": "LATEST"}
    if position.startswith(_TIME):
        moment = dt.datetime.fromtimestamp(float(position.removeprefix(_TIME)), dt.UTC)
        return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
    return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
