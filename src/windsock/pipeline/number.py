"""The sequence number: an integer that each event of a key carries, by which the log puts them in order.

Here the number is only read; the log decides inside the append transaction whose turn it is. An event without
one becomes a dead letter, since nobody could say where it belongs.
"""

from __future__ import annotations

from collections.abc import Sequence

from windsock.events import Event
from windsock.pipeline.base import Result, set_aside
from windsock.pipeline.expressions import Failure, compile_value

__all__ = ["NumberStep"]

_LIMIT = 2**63


class NumberStep:
    """Reads the sequence number of events."""

    name = "sequence"

    def __init__(self, expression: str, *, watcher: str) -> None:
        self._expression = expression
        self._value = compile_value(expression, watcher=watcher, option="sequence.by")

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into those with a number and those without."""
        result = Result([])
        for event in events:
            number = self._number(event)
            if isinstance(number, Failure):
                reason = f"sequence.by expression {self._expression!r} gives no number"
                result.dead.append(set_aside(event, stage=self.name, reason=reason, error=number.reason))
            else:
                result.kept.append(event)
        return result

    def label(self, events: Sequence[Event]) -> list[int]:
        """The numbers of events that have one."""
        return [number for event in events if not isinstance(number := self._number(event), Failure)]

    def _number(self, event: Event) -> int | Failure:
        value = self._value(event)
        if isinstance(value, Failure):
            return value
        whole = isinstance(value, float) and value.is_integer()
        if whole or (isinstance(value, str) and value.strip().lstrip("-").isdecimal()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not -_LIMIT <= value < _LIMIT:
            return Failure(f"{value!r} is not a whole number")
        return value
