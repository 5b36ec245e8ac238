"""The source contract: read one system, yield events with their ack, know your own position.

A source knows neither Airflow nor the pipeline nor the log. The runner drives it::

    source = FilesSource(FilesConfig(path="/in", pattern="*.csv"))
    await source.connect(cursor)             # where the last committed append left off, or None
    async for delivery in source.read():     # runs until cancelled
        ...                                  # events, cursor appended in one transaction
        await delivery.ack()                 # only then
    await source.close()

What every source keeps to, and the contract suite in :mod:`windsock.testing.sources` proves:

* ``read`` yields deliveries of events, in order, as large as they come for free (a broker's fetch, one
  directory scan) and at most :data:`MAX_DELIVERY` events; one without events only moves the cursor. It
  waits without polling faster than its interval and never blocks the event loop: blocking clients run in
  a thread.
* ``delivery.ack()`` is called at most once, after the commit, in the order of the deliveries. Until then
  the source must be able to deliver the same events again, from the cursor or from its broker.
* ``delivery.cursor`` is all that ``connect`` needs to go on after this delivery: small JSON, or None for a
  system that keeps its own position.
* What cannot become an event is put into ``delivery.dead`` and does not stop the next one.
* A system that is away, refuses the credentials or misses the queue raises
  :class:`~windsock.events.SourceError` with the remedy; the runner calls ``close`` and ``connect`` again,
  with backoff.
* Two watchers whose options are equal share one reader and one cursor. Options that do not change what is
  read (an interval, a time-out) are listed in the class attribute ``tuning`` and may differ.
* ``read`` may stand still for as long as the log is behind (backpressure). A source whose broker wants to
  hear from it meanwhile (a poll interval, a lock, a heartbeat) sees to that by itself.
* What a system cannot give is stated in the class attribute ``guarantees`` (and so in the capability table
  of the documentation); the contract suite then proves the weaker promise instead. Without it the best of
  everything is promised.
* ``close`` returns promptly, also in the middle of ``read``, and may be called twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import msgspec

from windsock.events import DeadLetter, Event, Verdict

__all__ = ["MAX_DELIVERY", "Cursor", "Delivery", "Guarantees", "Source"]

MAX_DELIVERY = 1000
"""The most events that one delivery may carry."""


Cursor = dict[str, Any]


async def _nothing() -> None:
    """The ack of a system that needs none."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one read brought: events, the position after them, and how to confirm them."""

    events: Sequence[Event]
    cursor: Cursor | None = None
    ack: Callable[[], Awaitable[None]] = _nothing
    dead: Sequence[DeadLetter] = field(default=())
    state: Mapping[str, tuple[bytes, float | None] | None] = field(default_factory=dict)
    """What the source remembers by key, as far as it changed, and when that is due; None forgets a key."""
    verdicts: Sequence[Verdict] = field(default=())
    """What the source read and does not pass on, with the reason, to be remembered."""


class Guarantees(msgspec.Struct, frozen=True, kw_only=True):
    """What a source promises; a row of the capability table, and what the contract suite holds it to."""

    delivery: Literal["at least once", "at most once"] = "at least once"
    """At most once: what was read and not yet committed is gone when the reader dies."""
    order: Literal["all", "key", "none"] = "all"
    """What keeps its order: everything, events of one key, or nothing."""
    position: Literal["log", "system", "none"] = "system"
    """Who knows where to go on: the cursor in the log, the system itself, or nobody."""
    once: Literal["always", "with id", "never"] = "always"
    """Whether an event keeps its id when it is delivered again, so that it is stored once: 'with id' when its
    sender gave it one."""
    lag: bool = True
    """Whether the source can tell how much waits."""
    tested: str = ""
    """The real servers that the contract suite runs against."""
    notes: str = ""
    """What else a user must know, in a sentence or two."""


@runtime_checkable
class Source(Protocol):
    """Reads one system. See the module's docstring for the contract."""

    kind: ClassVar[str]

    async def connect(self, cursor: Cursor | None) -> None:
        """Reach the system and take position; raise SourceError if it cannot be had."""

    def read(self) -> AsyncIterator[Delivery]:
        """Yield deliveries until cancelled or closed."""
        ...

    async def lag(self) -> int | None:
        """How many events wait in the system behind the position, or None if it cannot be known."""

    async def close(self) -> None:
        """Let go of the system."""
