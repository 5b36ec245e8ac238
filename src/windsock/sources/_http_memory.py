"""What an HTTP source remembers of the items that it has delivered, small enough to be its cursor.

Three ways, by what the API offers:

* :class:`Listing`: the API lists what there is. Remembered is what stands on the list: eight bytes an item.
* :class:`Watermark`: items carry a value that grows (a time, a number), which is passed back to the API.
  Remembered is the highest one, and which items have it.
* :class:`Feed`: the API gives a place to go on from. Remembered is that place, and what was read there.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from windsock.events import DeadLetter, Event
from windsock.sources.base import Cursor

__all__ = ["Feed", "Item", "Listing", "Watermark", "chunks", "digest"]

_BYTES = 8


@dataclass(frozen=True, slots=True)
class Item:
    """One item: its event, or its dead letter, under what makes it this item and no other."""

    digest: bytes
    made: Event | DeadLetter
    mark: Any = None


class Listing:
    """Knows what stood on the list when it was last read."""

    def __init__(self, cursor: Cursor | None) -> None:
        self._seen = _unpack((cursor or {}).get("seen"))

    def new(self, items: Iterable[Item]) -> list[Item]:
        """Those that were not delivered yet, once each."""
        return _once(items, self._seen)

    def add(self, item: Item) -> None:
        """It is being delivered."""
        self._seen.add(item.digest)

    def end(self, listed: set[bytes]) -> None:
        """The list was read to its end: what is no longer on it need not be remembered."""
        self._seen &= listed

    def cursor(self) -> Cursor:
        """All of it."""
        return {"seen": _pack(self._seen)}


class Watermark:
    """Knows the highest mark, and the items that have it; items without a mark it knows one by one."""

    def __init__(self, cursor: Cursor | None, first: Any = None) -> None:
        known = cursor or {}
        self.mark: Any = known.get("mark", first)
        self._at = _unpack(known.get("at"))
        self._unmarked = _unpack(known.get("unmarked"))

    def new(self, items: Iterable[Item]) -> list[Item]:
        """Those that were not delivered yet, once each, the lowest mark first."""
        fresh = [item for item in items if item.mark is None or not self._passed(item.mark)]
        return sorted(_once(fresh, self._at | self._unmarked), key=lambda item: _rank(item.mark))

    def add(self, item: Item) -> None:
        """It is being delivered."""
        if item.mark is None:
            self._unmarked.add(item.digest)
            return
        if item.mark != self.mark:
            self.mark = item.mark
            self._at = set()
        self._at.add(item.digest)

    def end(self, listed: set[bytes]) -> None:
        """Everything from the mark on was read."""
        self._unmarked &= listed

    def cursor(self) -> Cursor:
        """All of it."""
        return {"mark": self.mark, "at": _pack(self._at), "unmarked": _pack(self._unmarked)}

    def _passed(self, mark: Any) -> bool:
        return self.mark is not None and _rank(mark) < _rank(self.mark)


class Feed:
    """Knows the place to go on from, and what was read from there."""

    def __init__(self, cursor: Cursor | None) -> None:
        known = cursor or {}
        self.place: str | None = known.get("place")
        self._seen = _unpack(known.get("seen"))

    def new(self, items: Iterable[Item]) -> list[Item]:
        """Those that were not delivered yet, once each."""
        return _once(items, self._seen)

    def add(self, item: Item) -> None:
        """It is being delivered."""
        self._seen.add(item.digest)

    def turn(self, place: str) -> None:
        """Everything up to this place was delivered."""
        self.place = place
        self._seen = set()

    def cursor(self) -> Cursor:
        """All of it."""
        return {"place": self.place, "seen": _pack(self._seen)}


def digest(text: str | bytes) -> bytes:
    """The bytes by which an item is remembered."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    return hashlib.blake2b(raw, digest_size=_BYTES).digest()


def _once(items: Iterable[Item], seen: set[bytes]) -> list[Item]:
    found: dict[bytes, Item] = {}
    for item in items:
        if item.digest not in seen:
            found.setdefault(item.digest, item)
    return list(found.values())


def _rank(mark: Any) -> tuple[int, float, str]:
    """Numbers by their size, texts as texts: times in ISO 8601 sort so."""
    return (0, mark, "") if isinstance(mark, int | float) else (1, 0, str(mark))


def _pack(digests: set[bytes]) -> str:
    return base64.b64encode(b"".join(sorted(digests))).decode("ascii")


def _unpack(text: Any) -> set[bytes]:
    raw = base64.b64decode(text) if isinstance(text, str) else b""
    return {raw[start : start + _BYTES] for start in range(0, len(raw), _BYTES)}


def chunks(items: Sequence[Item], size: int) -> Iterable[Sequence[Item]]:
    """The items in pieces of at most that size."""
    return (items[start : start + size] for start in range(0, len(items), size))
