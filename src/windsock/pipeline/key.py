"""The key: which events must stay in order with each other.

An event whose key cannot be had becomes a dead letter: to let it pass without one would break the order that
the watcher asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from windsock.events import MAX_IDENTITY_BYTES, Event
from windsock.pipeline.base import Result, set_aside
from windsock.pipeline.expressions import Failure, compile_text

__all__ = ["KeyStep"]


class KeyStep:
    """Sets each event's ``key`` to the value of an expression."""

    name = "key"

    def __init__(self, expression: str, *, watcher: str) -> None:
        self._expression = expression
        self._text = compile_text(expression, watcher=watcher, option="key")

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into kept, with their key, and dead."""
        result = Result([])
        for event in events:
            key = self._text(event)
            if not isinstance(key, Failure) and len(key.encode()) > MAX_IDENTITY_BYTES:
                key = Failure(f"gave a text longer than {MAX_IDENTITY_BYTES} bytes")
            if isinstance(key, Failure):
                reason = f"key expression {self._expression!r} gives no key"
                result.dead.append(set_aside(event, stage=self.name, reason=reason, error=key.reason))
            else:
                result.kept.append(replace(event, key=key))
        return result
