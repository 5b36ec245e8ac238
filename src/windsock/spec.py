"""WatcherSpec: what a user declares of a watcher, checked, in one JSON-able value.

The same spec travels in the trigger's arguments, stands in ``watchers.yaml`` and is registered in the log,
so that the gateway, the trigger and the CLI all see one definition. Durations may be written as numbers of
seconds or as text such as ``"5s"``, ``"10min"``, ``"24h"``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from windsock.events import MAX_EVENT_BYTES, Category, WindsockError
from windsock.json_path import JsonPath, PathError

__all__ = [
    "Batching",
    "Expectation",
    "Ordering",
    "Retention",
    "Retry",
    "Route",
    "Seconds",
    "SpecError",
    "Versions",
    "WatcherSpec",
    "rate",
    "seconds",
    "start_time",
]

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
HIGH_WATER, LOW_WATER = 100_000, 50_000

Seconds = Annotated[float, Meta(extra={"duration": True})]
"""A duration; :meth:`WatcherSpec.from_dict` takes text for it as well."""

Schema = dict[str, Any] | str
"""A JSON Schema itself, or where it is: a file, a URL, or ``package.module:Model`` (pydantic)."""


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


def rate(text: str) -> tuple[int, float]:
    """(events, seconds) of a rate such as ``"100/m"`` or ``"5 / 10s"``."""
    count, slash, window = text.partition("/")
    window = window.strip()
    if slash and count.strip().isdecimal() and int(count) > 0 and window:
        length = seconds(window if window[0].isdigit() else f"1{window}")
        if length > 0:
            return int(count), length
    raise SpecError(f"{text!r} is not a rate: write events per time, such as '100/m' or '5/10s'")


def start_time(text: str) -> float:
    """The epoch seconds of a start that is a time."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(
            f"start {text!r}: write 'earliest', 'latest', or a time such as 2026-01-31T12:00Z"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of the parts of a spec."""


class Batching(Part, frozen=True, kw_only=True):
    """When the events of a watcher become a batch: whichever limit is reached first closes it.

    With neither ``within`` nor ``quiet`` a batch closes at once with what one append brought.
    """

    size: int = DEFAULT_BATCH
    bytes: int = 16_000_000
    within: Seconds = 0.0
    quiet: Seconds = 0.0
    flush: str | None = None
    """A filter expression; an event that it matches closes the batch it is in."""
    leading: bool = False
    """With ``quiet``: the first event after a pause is a batch at once, and what follows it is debounced."""
    target: Seconds | None = None
    """Adaptive: the time from arrival to announcement to aim at; the batch grows with the backlog up to
    ``size`` and shrinks when events wait longer than this."""

    @property
    def immediate(self) -> bool:
        """Whether a batch closes with the append that opened it."""
        return not self.within and not self.quiet and self.target is None


class Ordering(Part, frozen=True, kw_only=True):
    """Events of one key in the order of a number that they carry; gaps are waited for."""

    by: str
    """CEL expression of the sequence number, an integer that grows by one within a key."""
    wait: Seconds = 60.0
    """How long a gap is waited for."""
    limit: int = 1000
    """How many events of one key may wait behind a gap."""
    on_gap: Literal["release", "dead_letter", "hold"] = "release"
    """What happens then: go on without what is missing, set aside what waits, or go on waiting."""


class Versions(Part, frozen=True, kw_only=True):
    """Schemas by version, and how an old event becomes a new one."""

    by: str
    """CEL expression of an event's version."""
    schemas: dict[str, Schema]
    """version → schema; the last one is what Dags get."""
    upcast: dict[str, str] = {}
    """version → ``package.module:function`` that turns data of this version into the next."""


class Route(Part, frozen=True, kw_only=True):
    """This watcher's place among the watchers of its source: each event goes to the first that matches."""

    group: str = "default"
    """Watchers of one source and one group share the events: first match wins, by ``order``."""
    order: int = 0
    otherwise: bool = False
    """Takes what no other watcher of the group matched."""
    unmatched: Literal["ignore", "dead_letter"] = "ignore"
    """Events that no watcher of the group takes: dropped, or set aside at this watcher."""


class Retry(Part, frozen=True, kw_only=True):
    """How often and when a dead letter of one category is redriven by itself."""

    attempts: int = 3
    """How often; redriving by hand counts, too."""
    delay: Seconds = 30.0
    """Before the first time; doubles each time."""
    cap: Seconds = 3600.0
    """The longest wait."""
    jitter: float = 0.2
    """Share of the wait that differs from letter to letter, so that they do not all come back at once."""

    def wait(self, retries: int, seed: str) -> float:
        """Seconds to wait after so many retries; the same for the same seed."""
        longest = min(self.cap, self.delay * 2.0 ** min(retries, 30))
        digest = hashlib.blake2b(f"{seed}:{retries}".encode(), digest_size=8).digest()
        return longest * (1.0 - self.jitter * int.from_bytes(digest) / 2**64)


class Expectation(Part, frozen=True, kw_only=True):
    """What should arrive, and when; a breach is an event of its own."""

    every: Seconds | None = None
    """At least one event in every so many seconds."""
    grace: Seconds = 0.0
    """How much later is still in time."""
    at_least: int | None = None
    at_most: int | None = None
    per: Seconds = 86400.0
    """The window in which ``at_least`` and ``at_most`` count."""
    fields: tuple[str, ...] = ()
    """Paths that the data of every event should have."""
    learn: Seconds | None = None
    """Take cadence and volume from so much history instead of numbers."""

    def __post_init__(self) -> None:
        if self.per <= 0 or (self.every is not None and self.every <= 0):
            raise SpecError("expect: every and per must be times, such as '10min'")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise SpecError("expect: at_least must not be above at_most")
        for path in self.fields:
            try:
                JsonPath(path)
            except PathError as error:
                raise SpecError(f"expect.fields: {error}") from error


class Retention(Part, frozen=True, kw_only=True):
    """How many settled events are kept, and what becomes of them then; the first limit reached counts."""

    age: Seconds | None = None
    """How long they are kept; by default as long as ``[windsock] retention`` says."""
    count: int | None = None
    """How many are kept, the newest."""
    bytes: int | None = None
    """How many bytes of them are kept, the newest."""
    archive: str | None = None
    """An absolute directory or object storage URL to which events are written as Parquet before they are
    deleted; the part before an ``@`` is the id of a Connection, as in ``s3://my_aws@bucket/events``."""


class WatcherSpec(Part, frozen=True, kw_only=True):
    """One watcher: a source and what happens to its events on their way to a Dag."""

    name: str
    kind: str
    """The source's kind, such as ``files``, or ``package.module:Class``."""
    options: dict[str, Any] = {}
    """The source's own options."""
    types: tuple[str, ...] = ()
    """Keep only these event types; ``*`` and ``?`` are wildcards."""
    where: str | tuple[str, ...] | None = None
    """Filter: a CEL expression, or ``package.module:function`` that takes an event and returns a bool; of
    several, all must be true."""
    unwrap: str | None = None
    """Envelope to open: ``sns``, ``eventbridge``, ``pubsub``, ``debezium`` or ``cloudevents``."""
    transform: dict[str, str | None] | str | None = None
    """Fields to compute (path → CEL expression, None drops the field), or ``package.module:function``."""
    schema: Schema | None = None
    """What data must look like."""
    schema_mode: Literal["strict", "coerce"] = "strict"
    """``coerce``: values that can be converted to the wanted type are."""
    versions: Versions | None = None
    key: str | None = None
    """CEL expression of the ordering key; events with one key are never processed out of order."""
    sequence: Ordering | None = None
    dedupe: Seconds | None = None
    """Window in seconds; None for ever; 0 not at all."""
    dedupe_key: str | None = None
    """CEL expression of the dedup key, or ``content``; by default the event's source and id."""
    dedupe_scope: Literal["watcher", "asset"] = "watcher"
    """``asset``: what another watcher of the same asset has brought is a duplicate, too."""
    batch: Batching = Batching()
    throttle: Seconds = 0.0
    """At most one announcement in so many seconds; what comes meanwhile goes along with the next."""
    rate_limit: str | None = None
    """The most events that runs may claim, such as ``100/m``; the rest waits."""
    route: Route | None = None
    priority: int = 0
    """Among the watchers of one asset, and when the total backlog is too high: the higher goes first."""
    new_dags: str | None = None
    """Where a Dag that is new to the watcher begins: ``earliest``, ``latest``, or an ISO time. Without it the
    first Dag begins at the first event, a later one at the next event."""
    max_attempts: int = 3
    """After so many failed runs an event goes to the dead letters."""
    retry_delay: Seconds = 30.0
    """Seconds before the first redelivery after a failed run; doubles each time, at most one hour."""
    retry: dict[str, Retry] = {}
    """Dead letter category → how its letters are redriven by themselves. What is ``expired`` never is."""
    max_age: Seconds | None = None
    """An event that has waited longer than this becomes a dead letter instead of a run's."""
    expect: Expectation | None = None
    retention: Retention | None = None
    history: bool = False
    """Index events by subject, for ``windsock.state`` and read models."""
    max_bytes: int = MAX_EVENT_BYTES
    """Larger events go to the dead letters."""
    high_water: int = HIGH_WATER
    """Unsettled events at which the source is paused."""
    low_water: int = LOW_WATER
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
        if self.batch.leading and not self.batch.quiet:
            raise SpecError(f"watcher {self.name!r}: leading needs quiet, the pause after which it counts")
        if self.sequence and not self.key:
            raise SpecError(f"watcher {self.name!r}: sequence needs key: numbers grow within one key")
        if self.rate_limit is not None:
            rate(self.rate_limit)
        if self.retention:
            self._check_retention(self.retention)
        for category, retry in self.retry.items():
            self._check_retry(category, retry)
        if self.new_dags not in (None, "earliest", "latest"):
            start_time(self.new_dags)

    def _check_retry(self, category: str, retry: Retry) -> None:
        wanted = [known.value for known in Category if known is not Category.EXPIRED]
        if category not in wanted:
            raise SpecError(
                f"watcher {self.name!r}: retry is by category, one of {', '.join(wanted)}; not {category!r}"
            )
        if retry.attempts < 1 or not (retry.delay >= 0 and retry.cap >= 0 and 0 <= retry.jitter <= 1):
            raise SpecError(
                f"watcher {self.name!r}: retry of {category!r} needs at least one attempt, a delay and a cap "
                "that are not negative, and a jitter between 0 and 1"
            )

    def _check_retention(self, retention: Retention) -> None:
        for option in ("age", "count", "bytes"):
            value = getattr(retention, option)
            if value is not None and not value >= 0:
                raise SpecError(f"watcher {self.name!r}: retention {option} must be at least 0")
        archive = retention.archive
        if archive is not None and not ("://" in archive or PurePath(archive).is_absolute()):
            raise SpecError(
                f"watcher {self.name!r}: retention archive {archive!r} must be an absolute path, or a URL "
                "such as s3://bucket/events"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values; :meth:`from_dict` reads them back to an equal spec."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_dict(cls, value: Any) -> WatcherSpec:
        """The spec behind plain values; raises :class:`SpecError` naming the wrong option."""
        name = value.get("name") if isinstance(value, dict) else None
        try:
            return msgspec.convert(_with_durations(value, cls), cls)
        except SpecError as error:
            raise SpecError(f"watcher {name!r}: {error}") from None
        except msgspec.ValidationError as error:
            cause = error.__cause__
            if isinstance(cause, SpecError):
                raise cause from None
            raise SpecError(f"watcher {name!r}: {error}") from error


def _with_durations(value: Any, part: Any) -> Any:
    """Plain values in which the durations that are text are numbers."""
    if not isinstance(value, dict):
        return value
    hints = _hints(part)
    read = {}
    for name, given in value.items():
        hint = hints.get(name)
        for inner in (hint, *getattr(hint, "__args__", ())):
            if inner == Seconds and isinstance(given, str):
                given = seconds(given)
            elif isinstance(inner, type) and issubclass(inner, Part):
                given = _with_durations(given, inner)
            elif getattr(inner, "__origin__", None) is dict and inner.__args__[1] is Retry:
                given = {key: _with_durations(one, Retry) for key, one in dict(given).items()}
        read[name] = given
    return read


@cache
def _hints(part: Any) -> dict[str, Any]:
    return get_type_hints(part, include_extras=True)
