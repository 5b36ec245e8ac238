"""Paths into JSON documents, and when a value there is the one that was expected.

A path is keys joined by dots, with list indexes in brackets. A key with dots in it is quoted. The document
itself is ``$``, which may also stand at the beginning:

    status      jobs[0].state      $.data.status      labels."app.kubernetes.io/state"      items[-1]["a.b"]
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from windsock.values import WindsockError

__all__ = ["MISSING", "JsonPath", "PathError", "matches"]


class PathError(WindsockError, ValueError):
    """The path cannot be read; the message says from which character on, and what would do."""


class _Missing:
    """What is found where a document has nothing: not even ``null``."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()

_KEY = r"""[^.\[\]"'\s]+"""
_QUOTED = r"""(?:"[^"]*"|'[^']*')"""
_STEP = re.compile(
    rf"""\[\s*(?P<index>-?\d+)\s*\]
       | \[\s*(?P<bracket>{_QUOTED})\s*\]
       | \.(?P<quoted>{_QUOTED})
       | \.(?P<key>{_KEY})""",
    re.VERBOSE,
)


class JsonPath:
    """A path that was checked: ``JsonPath("jobs[0].state").find(document)``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = list(_steps(text))

    def __str__(self) -> str:
        return self.text

    def find(self, document: Any) -> Any:
        """The value at the path, or :data:`MISSING`."""
        for step in self._steps:
            if isinstance(step, str):
                document = document.get(step, MISSING) if isinstance(document, dict) else MISSING
            elif isinstance(document, list) and -len(document) <= step < len(document):
                document = document[step]
            else:
                document = MISSING
        return document


def _steps(text: str) -> list[str | int]:
    rest = text.strip()
    rest = rest[1:] if rest[:1] == "$" else rest if rest[:1] in ("", "[") else f".{rest}"
    if not text.strip():
        raise PathError("the path is empty: write a key such as 'status', or '$' for the whole document")
    steps: list[str | int] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise PathError(
                f"path {text!r} cannot be read from {rest[position:]!r} on: write keys joined by dots, list"
                ' indexes in brackets and keys with dots in quotes, such as jobs[0].state or labels."a.b"'
            )
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            quoted = match["bracket"] or match["quoted"]
            steps.append(quoted[1:-1] if quoted else match["key"])
        position = match.end()
    return steps


def matches(expected: Any, actual: Any) -> bool:
    """Whether a value of a JSON document is the expected one.

    Equal JSON values match: ``1`` and ``1.0`` do, ``1`` and ``true`` do not, upper and lower case differ.
    An expected *text* also matches the number, boolean or null that it spells, because templates and
    environment variables only know texts: ``"true"`` matches ``true``, ``"3"`` matches ``3`` and ``"3"``.
    The other way round is exact: ``3`` does not match ``"3"``. :data:`MISSING` matches nothing.
    """
    if _same(expected, actual):
        return True
    if not isinstance(expected, str) or isinstance(actual, str | list | dict) or actual is MISSING:
        return False
    try:
        return _same(msgspec.json.decode(expected), actual)
    except ValueError:
        return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)
