"""What was announced of a stream that is ordered by time, in a few kilobytes however long the stream is.

A watermark alone is not enough: many rows may have one timestamp, and a row whose transaction was slow
appears behind newer ones. So the latest rows are remembered one by one, for as long as a row may come late,
and the mark stands below them::

    ───── announced, forgotten one by one ─────▶ mark ├── remembered ──┤ news ──▶ time

Rows are told apart by time and a digest of their identity. A row below the mark counts as announced.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import struct
from typing import Any

__all__ = ["LATE", "Seen"]

LATE = 60.0
"""Seconds for which a row may stay invisible behind newer ones: until then those are remembered."""
_MOST = 200
"""Rows that are remembered one by one; more only if they all have one timestamp."""
_ROW = struct.Struct(">q5s")

Row = tuple[int, bytes]
"""Microseconds since 1970, and the digest."""


class Seen:
    """The rows of one stream that were announced; see the module's docstring."""

    def __init__(self, saved: Any = None, *, now: float) -> None:
        self._rows: list[Row] = []
        self._mark: Row = (-(2**63), b"")
        if saved:
            self._mark = _ROW.unpack(base64.b64decode(saved["mark"]))
            self._rows = list(_ROW.iter_unpack(base64.b64decode(saved["rows"])))
        self._since: dict[Row, float] = dict.fromkeys(self._rows, now)

    @property
    def mark(self) -> int:
        """The time from which on there may be news, in microseconds since 1970."""
        return self._mark[0]

    def knows(self, time: int, identity: str) -> bool:
        """Whether this row was announced."""
        row = (time, _digest(identity))
        return row <= self._mark or row in self._since

    def add(self, time: int, identity: str, *, now: float) -> None:
        """Remember a row."""
        row = (time, _digest(identity))
        bisect.insort(self._rows, row)
        self._since[row] = now

    def start_after(self, time: int) -> None:
        """Count everything up to this time as announced."""
        self._mark = max(self._mark, (time, b"\xff" * 5))

    def trim(self, *, before: int, now: float) -> None:
        """Forget the oldest rows that are too many or remembered for long enough, moving the mark there.

        Only rows older than ``before``: up to there the stream was read whole. Rows of one timestamp come in
        an order that is not that of their digests, so that a mark among them would hide some.
        """
        gone = 0
        for row in self._rows:
            wanted = len(self._rows) - gone <= _MOST and now - self._since[row] <= LATE
            if wanted or row[0] >= before:
                break
            gone += 1
            self._mark = max(self._mark, row)
            del self._since[row]
        del self._rows[:gone]

    def saved(self) -> dict[str, str]:
        """All that is needed to go on from here."""
        rows = b"".join(_ROW.pack(*row) for row in self._rows)
        return {
            "mark": base64.b64encode(_ROW.pack(*self._mark)).decode(),
            "rows": base64.b64encode(rows).decode(),
        }


def _digest(identity: str) -> bytes:
    return hashlib.blake2b(identity.encode(), digest_size=5).digest()
