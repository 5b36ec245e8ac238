"""Globs over relative paths, matched one directory at a time while a tree is walked.

``*``, ``?`` and ``[...]`` stay inside one name, ``**`` stands for any number of directories. Upper and lower
case differ.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

__all__ = ["Match", "Pattern", "any_of"]

Match = Callable[[str], bool]


def any_of(globs: Iterable[str]) -> Match:
    """A test whether a single name matches one of the globs."""
    globs = list(globs)
    if "*" in globs:
        return lambda name: True
    if not globs:
        return lambda name: False
    match = re.compile("|".join(fnmatch.translate(glob) for glob in globs)).match
    return lambda name: match(name) is not None


class Pattern:
    """A glob, and how much of it the directories down to some place have matched.

    The places are the indexes of the segments that may come next; one past the last is a full match.
    """

    def __init__(self, segments: Sequence[Match | None], places: frozenset[int] | None = None) -> None:
        self._segments = segments
        self._places = self._reach(0) if places is None else places

    @classmethod
    def parse(cls, glob: str) -> Pattern:
        """The pattern as it stands at the top of the tree."""
        return cls([None if segment == "**" else any_of([segment]) for segment in glob.split("/")])

    def enter(self, directory: str) -> Pattern | None:
        """The pattern as it goes on inside a directory; None if nothing in there can match."""
        places: set[int] = set()
        for place in self._places - {len(self._segments)}:
            segment = self._segments[place]
            if segment is None:
                places |= self._reach(place)
            elif segment(directory):
                places |= self._reach(place + 1)
        return None if places <= {len(self._segments)} else Pattern(self._segments, frozenset(places))

    def files(self) -> Match:
        """A test for the names of files directly in here."""
        last = len(self._segments) - 1
        if last in self._places:
            return self._segments[last] or any_of("*")
        return any_of([])

    def _reach(self, place: int) -> frozenset[int]:
        """The place and, since ``**`` may stand for nothing, those behind it."""
        places = {place}
        while place < len(self._segments) and self._segments[place] is None:
            place += 1
            places.add(place)
        return frozenset(places)
