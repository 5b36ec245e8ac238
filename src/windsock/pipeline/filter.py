"""The filter: events of other types, and those for which the watcher's ``where`` is not true, go no further.

An event on which the condition cannot be evaluated (it lacks the field, or has text where the condition
needs a number) does not match: it is filtered, and the verdict says why. A watcher that wants such events
says so, with ``has(data.total)`` or ``data.?total.orValue(0)``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from windsock.events import Event, Verdict
from windsock.pipeline.base import Result
from windsock.pipeline.expressions import Failure, compile_condition

__all__ = ["FilterStep", "TypesStep"]


class TypesStep:
    """Keeps the events of some types, which may have wildcards."""

    name = "types"

    def __init__(self, types: Sequence[str]) -> None:
        self._matches = re.compile("|".join(map(fnmatch.translate, types))).fullmatch

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into kept and filtered."""
        result = Result([])
        for event in events:
            if self._matches(event.type):
                result.kept.append(event)
            else:
                result.filtered.append(Verdict(stage=self.name, verdict="filtered", event=event))
        return result


class FilterStep:
    """Keeps the events for which a condition is true."""

    name = "filter"

    def __init__(self, condition: str, *, watcher: str, option: str = "where") -> None:
        self.condition = condition
        self._condition = compile_condition(condition, watcher=watcher, option=option)

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into kept and filtered."""
        result = Result([])
        condition = self._condition
        for event in events:
            verdict = condition(event)
            if verdict is True:
                result.kept.append(event)
            else:
                reason = verdict.reason if isinstance(verdict, Failure) else ""
                result.filtered.append(
                    Verdict(stage=self.name, verdict="filtered", event=event, reason=reason)
                )
        return result
