"""The sequence number: an integer that each event of a key carries, by which the log puts them in order.

Here the number is only read; the log decides inside the append transaction whose turn it is. An event without
one becomes a dead letter, since nobody could say where it belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windsock.events import DeadLetter, Event
from windsock.pipeline.base import set_aside
from windsock.pipeline.expressions import Failure, compile_value

__all__ = ["NumberStep", "Numbered"]

_LIMIT = 2**63


@dataclass(slots=True)
class Numbered:
    """The events that have a number, the number of each, and those that have none."""

    kept: list[Event] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)

    def of(self, events: Sequence[Event]) -> list[int]:
        """The numbers of some of the kept events, as objects."""
        if len(events) == len(self.kept):
            return self.numbers
        numbers = dict(zip(map(id, self.kept), self.numbers, strict=True))
        return [numbers[id(event)] for event in events]


class NumberStep:
    """Reads the sequence number of events."""

    name = "sequence"

    def __init__(self, expression: str, *, watcher: str) -> None:
        self._expression = expression
        self._value = compile_value(expression, watcher=watcher, option="sequence.by")

    def apply(self, events: Sequence[Event]) -> Numbered:
        """Sort the events into those with a number and those without."""
        result = Numbered()
        for event in events:
            number = self._number(event)
            if isinstance(number, Failure):
                reason = f"sequence.by expression {self._expression!r} gives no number"
                result.dead.append(set_aside(event, stage=self.name, reason=reason, error=number.reason))
            else:
                result.kept.append(event)
                result.numbers.append(number)
        return result

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
