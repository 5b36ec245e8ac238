"""What a rule is: a declaration that can be written as JSON, and the machine that it compiles to.

A machine decides about one key at a time and holds nothing itself. Its state of a key is a small struct that
the :class:`~windsock.rules.correlator.Correlator` stores with the results in one transaction::

      event of a leg ──▶ arrive(state, arrival) ──▶ state or None (nothing to remember) ──▶ due(state)
      time is up     ──▶ ring(state, at)        ──▶ state or None                              │
                              ▲                                                                │
                              └────────────────────────────────────────────────────────────────┘

Both say through :class:`Turn` what came of it: results, and events that ended here with the reason.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import msgspec

from windsock.events import Event
from windsock.pipeline.expressions import Failure
from windsock.spec import SpecError

__all__ = [
    "KEPT_CAUSES",
    "Arrival",
    "Ended",
    "Late",
    "Leg",
    "Machine",
    "Result",
    "Rule",
    "Turn",
    "iso",
    "stable_id",
]

KEPT_CAUSES = 1000
"""The most causes that one result names."""

_LOOSE = ("within", "lateness", "late", "late_for", "type", "n")
"""What may change in a rule without making its state unreadable."""

S = TypeVar("S")


class Leg(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A watcher whose events a rule reads, all of them or those that ``where`` matches."""

    watcher: str
    where: str | None = None
    """CEL expression, or ``package.module:function``."""
    name: str | None = None
    """What the leg is called in the result; by default as the watcher."""

    @property
    def label(self) -> str:
        """What the leg is called in the result."""
        return self.name or self.watcher


class Rule(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="rule",
):
    """What every rule has."""

    by_watcher: ClassVar[bool] = False
    """Whether the key is the name of the watcher."""

    legs: tuple[Leg | str, ...]
    """The watchers whose events it reads."""
    by: str | None = None
    """CEL expression of the key: events that belong together have the same. Without it all do."""
    lateness: float = 0.0
    """How much later than its own time an event may arrive and still be in order, in seconds. Results wait
    so long."""
    type: str = "windsock.correlated"
    """The type of the resulting event."""

    def all_legs(self) -> tuple[Leg, ...]:
        """Every leg that is read, in the order of their numbers."""
        return tuple(Leg(watcher=leg) if isinstance(leg, str) else leg for leg in self.legs)

    def check(self) -> None:
        """Raise SpecError for what no field's type can refuse."""
        legs = self.all_legs()
        self.refuse(not legs, "name at least one watcher")
        labels = [leg.label for leg in legs]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        self.refuse(
            twice is not None, f"two legs are called {twice!r}: give one a name, leg({twice!r}, name='…')"
        )
        self.refuse(self.lateness < 0, "lateness must not be negative")

    def shape(self) -> str:
        """What the state of the rule depends on; as long as it is the same, state stays readable."""
        fixed = {name: value for name, value in msgspec.to_builtins(self).items() if name not in _LOOSE}
        return stable_id(msgspec.json.encode(fixed, order="sorted").decode())

    def refuse(self, wrong: bool, reason: str) -> None:
        """Raise SpecError if something is wrong."""
        if wrong:
            raise SpecError(f"{self.__struct_config__.tag}: {reason}")

    def compile(self, watcher: str) -> Machine[Any]:
        """The machine of this rule; raises SpecError that shows where an expression is wrong."""
        raise NotImplementedError


Late = Literal["ignore", "amend", "rerun"]
"""What becomes of an event that comes when its window's result is out: nothing; a result of the type
``….amended`` with what is right now and what was said before; or the whole result once more."""


class Arrival(msgspec.Struct, array_like=True):
    """An event that came to a leg, as a machine sees it and may keep it."""

    leg: int
    id: str
    source: str
    type: str
    seq: int
    time: float
    """Event time in epoch seconds, never later than the arrival."""
    received: float
    data: Any = None
    correlation: str | None = None
    value: Any = None
    """What the machine read out of the event, see :meth:`Machine.read`."""

    def event(self) -> Event:
        """The event as far as it was kept."""
        return Event(id=self.id, source=self.source, type=self.type, data=self.data, seq=self.seq)


@dataclass(slots=True)
class Result:
    """What a rule found; the correlator makes an event of it."""

    name: str
    """Distinguishes the results of one key: the same finding always has the same name."""
    data: dict[str, Any]
    causes: Sequence[Arrival]
    time: float
    suffix: str = ""
    """Added to the rule's type: ``.amended``, ``.incomplete``."""
    amends: str | None = None
    """The name of the earlier result that this one replaces or corrects."""


@dataclass(slots=True)
class Ended:
    """An event of a leg that came to no result."""

    arrival: Arrival
    verdict: str
    reason: str


@dataclass(slots=True)
class Turn:
    """What a machine is told about the moment, and what it says."""

    key: str
    watermark: float
    """Every event up to this event time has arrived, as far as the allowed lateness goes."""
    results: list[Result] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)

    def end(self, arrival: Arrival, verdict: str, reason: str) -> None:
        """This event comes to no result."""
        self.ended.append(Ended(arrival, verdict, reason))


class Machine(Protocol[S]):
    """Decides about one key at a time. State is changed in place; what is returned is kept, None forgets."""

    state: type[S]
    ordered: bool
    """Whether events must come in the order of their time: they are then held back for the lateness."""
    by_arrival: bool
    """Whether the time of an event is its arrival, whatever it says of itself."""
    slim: bool
    """Whether the machine does without the events' data."""

    def read(self, event: Event, leg: int) -> Any | Failure:
        """What the machine needs of an event beside its data; a Failure ends the event's way."""

    def begin(self, key: str, now: float) -> S | None:
        """The state of a key before anything has arrived, if there is any."""

    def arrive(self, state: S | None, arrival: Arrival, turn: Turn) -> S | None:
        """An event has come."""

    def ring(self, state: S, at: float, turn: Turn) -> S | None:
        """The time that :meth:`due` named has come."""

    def due(self, state: S) -> float | None:
        """When the state changes by itself, in event time."""

    def held(self, state: S) -> Sequence[Arrival]:
        """The events that go with the state if it is dropped."""
        ...

    def waiting(self, state: S) -> str:
        """What the key waits for, in words."""
        ...


def iso(time: float) -> str:
    """Epoch seconds as text."""
    return dt.datetime.fromtimestamp(time, dt.UTC).isoformat().replace("+00:00", "Z")


def stable_id(*parts: object) -> str:
    """The same parts, the same id."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = str(part).encode("utf-8", "replace")
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()
