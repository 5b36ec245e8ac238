"""WatcherSpec: what a user declares of a watcher, checked, in one JSON-able value.

The same spec travels in the trigger's arguments, stands in ``watchers.yaml`` and is registered in the log,
so that the gateway, the trigger and the CLI all see one definition.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from windsock.events import MAX_EVENT_BYTES, WindsockError

__all__ = ["Batching", "SpecError", "WatcherSpec", "seconds"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)\s*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

_MINIMUMS = {
    "max_attempts": 1,
    "max_bytes": 1,
    "high_water": 1,
    "low_water": 0,
    "retry_delay": 0,
    "dedupe": 0,
}

DEFAULT_BATCH = 1000


class SpecError(WindsockError):
    """A watcher is declared wrongly; the message names the watcher, the option and the remedy."""


def seconds(value: str | float) -> float:
    """Seconds from a number or text such as ``"5s"``, ``"10 min"``, ``"24h"``, ``"1h30m"``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value < math.inf:
            return float(value)
    elif isinstance(value, str):
        parts = _DURATION.findall(value)
        if parts and not _DURATION.sub("", value).strip():
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    raise SpecError(f"{value!r} is not a duration: write seconds, or text such as '5s', '10min', '24h', '7d'")


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When the events of a watcher become a batch: whichever limit is reached first closes it.

    With neither ``within`` nor ``quiet`` a batch closes at once with what one append brought.
    """

    size: int = DEFAULT_BATCH
    bytes: int = 16_000_000
    within: float = 0.0
    quiet: float = 0.0
    flush: str | None = None
    """A filter expression; an event that it matches closes the batch it is in."""

    @property
    def immediate(self) -> bool:
        """Whether a batch closes with the append that opened it."""
        return not self.within and not self.quiet


class WatcherSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One watcher: a source and what happens to its events on their way to a Dag."""

    name: str
    kind: str
    """The source's kind, such as ``files``, or ``package.module:Class``."""
    options: dict[str, Any] = {}
    """The source's own options."""
    where: str | None = None
    """Filter: a CEL expression, or ``package.module:function`` that takes an event and returns a bool."""
    key: str | None = None
    """CEL expression of the ordering key; events with one key are never processed out of order."""
    dedupe: float | None = None
    """Window in seconds; None for ever; 0 not at all."""
    dedupe_key: str | None = None
    """CEL expression of the dedup key; by default the event's source and id."""
    batch: Batching = Batching()
    max_attempts: int = 3
    """After so many failed runs an event goes to the dead letters."""
    retry_delay: float = 30.0
    """Seconds before the first redelivery after a failed run; doubles each time, at most one hour."""
    max_bytes: int = MAX_EVENT_BYTES
    """Larger events go to the dead letters."""
    high_water: int = 100_000
    """Unsettled events at which the source is paused."""
    low_water: int = 50_000
    """Unsettled events at which a paused source goes on."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SpecError(
                f"watcher name {self.name!r}: use letters, digits, '_', '-' and '.', at most 100 characters"
            )
        for option, minimum in _MINIMUMS.items():
            value = getattr(self, option)
            if value is not None and not value >= minimum:
                raise SpecError(f"watcher {self.name!r}: {option} must be at least {minimum}")
        if self.low_water > self.high_water:
            raise SpecError(f"watcher {self.name!r}: low_water must not be above high_water")
        if self.batch.size < 1 or self.batch.bytes < 1:
            raise SpecError(f"watcher {self.name!r}: a batch must allow at least one event and one byte")
        if not (self.batch.within >= 0 and self.batch.quiet >= 0):
            raise SpecError(f"watcher {self.name!r}: a batch's within and quiet must not be negative")

    def as_dict(self) -> dict[str, Any]:
        """Plain values; :meth:`from_dict` reads them back to an equal spec."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_dict(cls, value: Any) -> WatcherSpec:
        """The spec behind plain values; raises :class:`SpecError` naming the wrong option."""
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            cause = error.__cause__
            if isinstance(cause, SpecError):
                raise cause from None
            name = value.get("name") if isinstance(value, dict) else None
            raise SpecError(f"watcher {name!r}: {error}") from error
