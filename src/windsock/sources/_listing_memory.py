"""What a listing remembers of the objects it has announced, as a cursor.

:class:`ByTime`: "everything up to this Last-Modified is announced" is one number, the mark. Around it:

* The mark trails the newest object by ``late`` seconds and by the time that the sweep took, since an object
  may appear later than its date says: S3 dates a multipart upload at its beginning, and a sweep is no
  snapshot. Only times of the store are compared with each other, so no clock has to be right.
* What was announced with a date behind the mark is listed, by an 8-byte digest of key, date and ETag each.
  Thousands of keys with the same second are nothing special.
* Past 500 of them the cursor has a sum of the digests in each of 512 buckets instead. At the next start a
  listing tells from the sums which objects are known. Where a bucket does not add up, because several of its
  objects were deleted or came late meanwhile, its objects are announced again, under the same ids: duplicates
  to the log.
* In a backlog the cursor also has the key up to which the sweep has come.

:class:`ByKey`: a key, and the last 200 keys that were listed behind it. As far as those reach back, keys
may appear out of order, as they do when several writers are at work.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from windsock.sources.base import Cursor

__all__ = ["ByKey", "ByTime", "Item"]

MAX_EXACT = 500
BUCKETS = 512
TAIL = 200
_SIZE = 8  # bytes of a digest
_CELL = _SIZE + 3  # a sum and its count
_UNKNOWN = 2**63
"""The date of what a cursor lists: later than all others, until a sweep shows the object."""
_ROOM = 50_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class Item(NamedTuple):
    """An object as a listing shows it."""

    key: str
    time: dt.datetime
    """Its Last-Modified."""
    size: int
    etag: str
    version: str | None = None

    @property
    def modified(self) -> int:
        """Its Last-Modified in microseconds."""
        return (self.time - _EPOCH) // _MICROSECOND

    @property
    def digest(self) -> bytes:
        """What tells this version of this object from every other."""
        text = f"{self.key}\0{self.modified}\0{self.etag}\0{self.version}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


class ByTime:
    """A Last-Modified up to which everything is announced, and what is announced beyond it."""

    def __init__(self, cursor: Cursor | None, late: float) -> None:
        cursor = cursor or {}
        self._late = int(late * 1_000_000)
        self._mark: int = cursor.get("mark", 0)
        self.after: str | None = cursor.get("after")
        self._limit: int | None = cursor.get("limit")
        self._packed = [_Packed(cursor.get("recent")), _Packed(cursor.get("seen"))]
        self._recent = dict.fromkeys(self._packed[0].exact, _UNKNOWN)
        self._seen = dict.fromkeys(self._packed[1].exact, _UNKNOWN)
        self._newest = self._mark
        self._oldest_held: int | None = None
        self._began = 0.0
        self._last = ""
        self._room = _ROOM

    @property
    def forgetful(self) -> bool:
        """Whether the cursor has only sums, and a listing has to be shown to :meth:`recall` first."""
        return any(packed.sums for packed in self._packed)

    def recall(self, items: Iterable[Item]) -> None:
        """Take a page of the store for :meth:`recalled`."""
        recent, seen = self._packed
        for item in items:
            if recent.sums and item.modified > self._mark:
                recent.candidates.append(item)
            if seen.sums and item.key <= (self.after or "") and item.modified > (self._limit or 0):
                seen.candidates.append(item)

    def recalled(self) -> None:
        """Find out which of the objects that were shown are known."""
        for packed, known in zip(self._packed, (self._recent, self._seen), strict=True):
            known.update(packed.solve())

    def begin(self) -> None:
        """A sweep begins, behind ``after``."""
        self._oldest_held, self._began = None, time.monotonic()

    def is_news(self, item: Item) -> bool:
        """Whether the next object of the sweep is not announced yet."""
        self._last, modified = item.key, item.modified
        self._newest = max(self._newest, modified)
        if modified <= self._mark:
            return False
        digest = item.digest
        if digest in self._recent or digest in self._seen:
            self._seen[digest] = modified
            return False
        return True

    def hold(self, item: Item) -> bool:
        """The object is not announced in this sweep; whether those behind it may be."""
        self._oldest_held = min(item.modified, self._oldest_held or _UNKNOWN)
        return True

    def dismiss(self, item: Item) -> None:
        """The object is not wanted; the mark takes care of it."""

    def announce(self, items: Sequence[Item]) -> None:
        """These are announced."""
        for item in items:
            self._seen[item.digest] = item.modified
        if len(self._seen) > self._room:
            self._prune()
            self._room = max(_ROOM, 2 * len(self._seen))

    def cursor(self, *, sweeping: bool, more: bool) -> Cursor | None:
        """The cursor after what is announced, while the sweep goes on or not, and more is found or not."""
        if more:
            # In the middle of a backlog there is no position but the last one.
            return None if sweeping or self.after else self._cursor({**self._recent, **self._seen})
        if sweeping:
            self.after = self._last
            self._prune()
            place = {"after": self.after, "limit": self._upto(), "seen": _pack(self._seen)}
            return self._cursor(self._recent) | place
        resumed = self._limit is not None
        self._mark = max(self._mark, self._upto())
        known = {**self._recent, **self._seen} if resumed else self._seen
        self._recent = {digest: modified for digest, modified in known.items() if modified > self._mark}
        self._seen, self.after, self._limit = {}, None, None
        return self._cursor(self._recent)

    def _cursor(self, recent: Mapping[bytes, int]) -> Cursor:
        return {"mark": self._mark, "recent": _pack(recent)}

    def _upto(self) -> int:
        """The mark that this sweep may set."""
        limit = self._limit
        if limit is None:
            took = int((time.monotonic() - self._began) * 1_000_000)
            limit = self._newest - self._late - max(took, 1)  # what is as old as the newest may still come
        return limit if self._oldest_held is None else min(limit, self._oldest_held - 1)

    def _prune(self) -> None:
        upto = self._upto()
        self._seen = {digest: modified for digest, modified in self._seen.items() if modified > upto}


class ByKey:
    """A key up to which everything is announced, and the few keys behind it that are, too."""

    forgetful = False

    def __init__(self, cursor: Cursor | None, late: float) -> None:
        cursor = cursor or {}
        self.after: str | None = cursor.get("after")
        self._tail = dict.fromkeys(_split(cursor.get("tail", ""), _SIZE), "")
        self._listed: dict[bytes, str] = {}
        self._announced = ""

    def recall(self, items: Iterable[Item]) -> None:
        """Nothing beyond the cursor is needed."""

    def recalled(self) -> None:
        """Nothing beyond the cursor is needed."""

    def begin(self) -> None:
        """A sweep begins, behind ``after``."""
        self._listed = {}

    def is_news(self, item: Item) -> bool:
        """Whether the next object of the sweep is not announced yet."""
        if self.after is not None and item.key <= self.after:
            return False
        digest = item.digest
        if digest in self._tail:
            self._listed[digest] = item.key
            return False
        return True

    def hold(self, item: Item) -> bool:
        """The object is not announced in this sweep; whether those behind it may be."""
        return False

    def dismiss(self, item: Item) -> None:
        """The object is not wanted."""
        self._list([item])

    def announce(self, items: Sequence[Item]) -> None:
        """These are announced."""
        self._list(items)
        self._announced = max(self._announced, items[-1].key) if items else self._announced

    def cursor(self, *, sweeping: bool, more: bool) -> Cursor | None:
        """The cursor after what is announced, while the sweep goes on or not, and more is found or not."""
        known = self._listed
        if more:
            known = {digest: key for digest, key in known.items() if key <= self._announced}
        ordered = sorted(known.items(), key=lambda each: each[1])
        tail = dict(ordered[-TAIL:])
        after = ordered[-TAIL - 1][1] if len(ordered) > TAIL else self.after
        if not more:
            self._listed = dict(tail)
        if not more and not sweeping:
            self._tail, self.after = tail, after
        return {"after": after, "tail": base64.b64encode(b"".join(tail)).decode()}

    def _list(self, items: Iterable[Item]) -> None:
        for item in items:
            self._listed[item.digest] = item.key
        if len(self._listed) > _ROOM:
            self._listed = dict(sorted(self._listed.items(), key=lambda each: each[1])[-TAIL - 1 :])


class _Packed:
    """Digests as a cursor has them: each, or the sums of many."""

    def __init__(self, packed: Mapping[str, str] | None) -> None:
        packed = packed or {}
        self.exact = _split(packed.get("exact", ""), _SIZE)
        self.sums = _split(packed.get("sums", ""), _CELL)
        self.candidates: list[Item] = []

    def solve(self) -> dict[bytes, int]:
        """Which of the candidates make up the sums, with their dates."""
        buckets: list[list[tuple[int, str, bytes]]] = [[] for _ in self.sums]
        for item in self.candidates:
            digest = item.digest
            buckets[_bucket(digest)].append((item.modified, item.key, digest))
        self.candidates = []
        known: dict[bytes, int] = {}
        for cell, bucket in zip(self.sums, buckets, strict=True):
            bucket.sort()  # in the order in which they are announced
            digests = [digest for _, _, digest in bucket]
            dates = {digest: modified for modified, _, digest in bucket}
            total, count = int.from_bytes(cell[:_SIZE]), int.from_bytes(cell[_SIZE:])
            known |= {digest: dates[digest] for digest in _solved(digests, total, count)}
        return known


def _solved(digests: Sequence[bytes], total: int, count: int) -> Sequence[bytes]:
    """The ``count`` digests whose sum is ``total``: the first ones, but for up to two stragglers."""
    numbers = [int.from_bytes(digest) for digest in digests]
    for strangers in range(3):
        first = numbers[: count + strangers]
        if len(first) != count + strangers:
            return ()
        rest = total
        for number in first:
            rest ^= number
        out: set[int] | None = None
        if strangers == 0 and rest == 0:
            out = set()
        elif strangers == 1 and rest in first:
            out = {rest}
        elif strangers == 2 and rest:
            among = set(first)
            out = next(({number, rest ^ number} for number in first if rest ^ number in among), None)
        if out is not None:
            return [d for d, number in zip(digests, first, strict=False) if number not in out]
    return ()


def _pack(digests: Mapping[bytes, Any]) -> dict[str, str]:
    if len(digests) <= MAX_EXACT:
        return {"exact": base64.b64encode(b"".join(digests)).decode()}
    totals, counts = [0] * BUCKETS, [0] * BUCKETS
    for digest in digests:
        bucket = _bucket(digest)
        totals[bucket] ^= int.from_bytes(digest)
        counts[bucket] += 1
    cells = (
        total.to_bytes(_SIZE) + count.to_bytes(_CELL - _SIZE)
        for total, count in zip(totals, counts, strict=True)
    )
    return {"sums": base64.b64encode(b"".join(cells)).decode()}


def _bucket(digest: bytes) -> int:
    return int.from_bytes(digest[-2:]) % BUCKETS


def _split(text: str, size: int) -> list[bytes]:
    whole = base64.b64decode(text)
    return [whole[at : at + size] for at in range(0, len(whole), size)]
