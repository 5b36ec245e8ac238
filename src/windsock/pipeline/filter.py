"""The filter: events for which the watcher's ``where`` is not true go no further.

An event on which the condition cannot be evaluated (it lacks the field, or has text where the condition
needs a number) does not match: it is counted as filtered, and the reason is reported beside it. A watcher
that wants such events says so, with ``has(data.total)`` or ``data.?total.orValue(0)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from windsock.events import Event
from windsock.pipeline.base import Result
from windsock.pipeline.expressions import Failure, compile_condition

__all__ = ["FilterStep"]


class FilterStep:
    """Keeps the events for which a condition is true."""

    name = "filter"

    def __init__(self, condition: str, *, watcher: str) -> None:
        self._condition = compile_condition(condition, watcher=watcher, option="where")

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into kept and filtered."""
        result = Result([])
        condition = self._condition
        for event in events:
            verdict = condition(event)
            if verdict is True:
                result.kept.append(event)
            else:
                result.filtered.append(event)
                if isinstance(verdict, Failure):
                    result.failures.append(verdict.reason)
        return result
