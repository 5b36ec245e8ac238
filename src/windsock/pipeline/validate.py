"""Validation: events whose data does not fit the watcher's schema become dead letters.

With ``versions`` an event is checked against the schema of its own version, then made into the latest version
by the registered functions, one step at a time, and checked again: Dags see one shape, whatever senders still
send. An event of a version that nobody registered is a dead letter, with the versions that are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windsock.events import Event, InvalidEvent, normalise
from windsock.pipeline.base import Result, set_aside
from windsock.pipeline.expressions import Failure, compile_text, import_function
from windsock.pipeline.schemas import Check, compile_schema
from windsock.spec import Schema, SpecError, Versions
from windsock.values import describe

__all__ = ["ValidateStep", "VersionsStep"]


class ValidateStep:
    """Checks data against one schema; in coerce mode it is converted."""

    name = "validate"

    def __init__(self, schema: Schema, *, coerce: bool, watcher: str) -> None:
        self._check = compile_schema(schema, coerce=coerce, where=f"watcher {watcher!r}: schema")

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into valid and dead."""
        return _checked(events, self._check, self.name)


class VersionsStep:
    """Checks each event against the schema of its version, and brings it to the latest."""

    name = "versions"

    def __init__(self, versions: Versions, *, coerce: bool, watcher: str) -> None:
        where = f"watcher {watcher!r}: versions"
        self._version = compile_text(versions.by, watcher=watcher, option="versions.by")
        self._order = list(versions.schemas)
        if not self._order:
            raise SpecError(f"{where}: name at least one version with its schema")
        self._checks: dict[str, Check] = {
            version: compile_schema(schema, coerce=coerce, where=f"{where}.schemas[{version!r}]")
            for version, schema in versions.schemas.items()
        }
        missing = [version for version in self._order[:-1] if version not in versions.upcast]
        unknown = [version for version in versions.upcast if version not in self._order[:-1]]
        if missing or unknown:
            problem = f"no function for {missing}" if missing else f"nothing to upcast {unknown} to"
            raise SpecError(f"{where}.upcast: {problem}; each version but the last needs one")
        self._upcast = {
            version: import_function(target, f"{where}.upcast[{version!r}]")
            for version, target in versions.upcast.items()
        }

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into valid ones of the latest version, and dead ones."""
        result = Result([])
        for event in events:
            try:
                result.kept.append(self._latest(event))
            except InvalidEvent as error:
                result.dead.append(set_aside(event, stage=self.name, reason=str(error)))
        return result

    def _latest(self, event: Event) -> Event:
        version = self._version(event)
        if isinstance(version, Failure):
            raise InvalidEvent(f"it has no version: {version.reason}")
        if version not in self._checks:
            raise InvalidEvent(f"version {version!r} is not known: known are {', '.join(self._order)}")
        data = self._checks[version](event.data)
        for old, new in zip(self._order, self._order[1:], strict=False):
            if self._order.index(old) < self._order.index(version):
                continue
            try:
                data = normalise(self._upcast[old](data))
            except Exception as error:  # the user's code; it costs this event alone
                raise InvalidEvent(f"upcasting from {old} to {new} failed: {describe(error)}") from error
            try:
                data = self._checks[new](data)
            except InvalidEvent as error:
                raise InvalidEvent(f"after upcasting from {old} to {new}: {error}") from error
        return event if data is event.data else msgspec.structs.replace(event, data=data)


def _checked(events: Sequence[Event], check: Check, stage: str) -> Result:
    result = Result([])
    for event in events:
        try:
            data = check(event.data)
        except InvalidEvent as error:
            result.dead.append(set_aside(event, stage=stage, reason=str(error)))
        else:
            result.kept.append(event if data is event.data else msgspec.structs.replace(event, data=data))
    return result
