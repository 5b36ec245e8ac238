"""Ascending positions as compact text: ``[1, 2, 3, 7]`` ⇄ ``"1-3,7"``.

A claim remembers its events this way for good, however their states change later.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["pack", "unpack"]


def pack(seqs: Iterable[int]) -> str:
    """Ascending positions as text."""
    ranges: list[list[int]] = []
    for seq in seqs:
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def unpack(text: str) -> list[tuple[int, int]]:
    """The stretches (first, last) behind the text."""
    pairs = (part.partition("-") for part in text.split(",") if part)
    return [(int(first), int(last or first)) for first, _, last in pairs]
