"""The correlator as a source: its system is the log itself.

The runner reads it like any other source, with the same lease, heartbeat, health and backoff. A delivery
carries results, positions and the keyed state that changed; the runner commits them in one transaction, so a
kill at any point neither loses nor doubles a result. The source is known by its watcher's name: a rule may be
changed without losing what waits, unless its key, its legs or its kind change.

::

    CorrelatedAssetWatcher("order_complete", rule=all_of("orders", "payments", within="1h", by="data.id"))
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.log.records import Mark
from windsock.rules import KIND, Rule, rule_of
from windsock.rules.correlator import MAX_KEYS, Correlator, Found
from windsock.rules.tide import PAGE, Merge, ReadsLog, Tide
from windsock.sources.base import Cursor, Delivery, Guarantees
from windsock.spec import SpecError, WatcherSpec

__all__ = ["CorrelateConfig", "CorrelateSource", "RuleSource"]

logger = logging.getLogger(__name__)

_CHANGED = "windsock.rule.changed watcher=%s: its key, legs or kind are others; what waited is dropped"


class RuleSource(ReadsLog, ABC):
    """Drives a :class:`~windsock.rules.correlator.Correlator` over stored events."""

    named: ClassVar[bool] = True
    """The watcher's name is one of its options: every watcher has its own."""
    guarantees: ClassVar[Guarantees] = Guarantees(position="log", tested="the log itself")
    clock: Callable[[], float] = staticmethod(time.time)
    watcher: str
    max_keys: int = MAX_KEYS
    begin_at_the_end: bool = True

    _correlator: Correlator
    _merge: Merge
    _spec: WatcherSpec | None = None
    _fresh = False

    @abstractmethod
    def current(self, marks: Mapping[str, Mark]) -> Rule:
        """The rule as it is declared now. May read the log."""

    def begin(self, now: float) -> None:
        """Let the rule begin what does not wait for an event."""
        self._correlator.begin(now)

    def stale(self, marks: Mapping[str, Mark]) -> bool:
        """Whether the rule may have changed."""
        mark = marks.get(self.watcher)
        return mark is not None and mark.spec is not self._spec

    async def connect(self, cursor: Cursor | None) -> None:
        await asyncio.to_thread(self._connect, cursor)

    def _connect(self, cursor: Cursor | None) -> None:
        marks = self.log.marks()
        rule = self._declared(marks)
        self._correlator = Correlator(self.watcher, rule, max_keys=self.max_keys)
        self._merge = Merge(self.log, dict(cursor["legs"]) if cursor else {})
        self._fresh = cursor is None
        if cursor is not None:
            self._correlator.clock = cursor["clock"]
            stored = self.log.remembered(self.key)
            if cursor["rule"] == rule.shape():
                self._correlator.load(stored)
            else:
                self._correlator.forget([key for key, _ in stored])
                logger.warning(_CHANGED, self.watcher)
        self._read_legs(rule, marks)

    def _declared(self, marks: Mapping[str, Mark]) -> Rule:
        mark = marks.get(self.watcher)
        self._spec = mark.spec if mark else None
        return self.current(marks)

    def _read_legs(self, rule: Rule, marks: Mapping[str, Mark]) -> None:
        known = {leg.watcher for leg in rule.all_legs()}
        self._merge.watch(known, marks if self.begin_at_the_end else {})
        self.begin(self.clock())

    async def read(self) -> AsyncIterator[Delivery]:
        tide = Tide.of(self.log)
        while True:
            delivery = await asyncio.to_thread(self.step, self.clock())
            if delivery is not None:
                yield delivery
                continue
            wake = self._correlator.next_wake()
            # A moment more, so that it is past when we look.
            await tide.wait(self._moved, None if wake is None else max(wake - self.clock(), 0.0) + 0.01)

    def _moved(self, marks: Mapping[str, Mark]) -> bool:
        positions = self._merge.positions
        return self.stale(marks) or any(
            watcher in marks and marks[watcher].seq > seq for watcher, seq in positions.items()
        )

    def step(self, now: float) -> Delivery | None:
        """Read on, at most a page; what is to be stored together, or None if there is nothing."""
        self._adopt()
        correlator, merge = self._correlator, self._merge
        merge.look_again()
        taken = 0
        while taken < PAGE and not correlator.full:
            stored = merge.next()
            if not correlator.advance(now if stored is None else stored.received_at) or stored is None:
                break
            correlator.take(stored)
            merge.passed(stored)
            taken += 1
        found = correlator.collect()
        if not (taken or found.events or found.state or found.verdicts or self._fresh):
            return None
        self._fresh = False
        return self.delivery(found)

    def delivery(self, found: Found) -> Delivery:
        """What the runner stores in one transaction."""
        cursor = {
            "legs": dict(self._merge.positions),
            "clock": self._correlator.clock,
            "rule": self._correlator.rule.shape(),
        }
        return Delivery(found.events, cursor, state=found.state, verdicts=found.verdicts)

    def _adopt(self) -> None:
        """Go on with the rule as it is declared now."""
        marks = self.log.marks()
        if not self.stale(marks):
            return
        try:
            rule = self._declared(marks)
        except SpecError as error:
            logger.error("windsock.rule.refused watcher=%s: %s", self.watcher, error)
            return
        if rule == self._correlator.rule:
            return
        if rule.shape() != self._correlator.rule.shape():
            self._correlator.forget(self._correlator.keys())
            logger.warning(_CHANGED, self.watcher)
        self._correlator.adopt(rule, rule.compile(self.watcher))
        self._read_legs(rule, marks)
        self._fresh = True

    async def lag(self) -> int | None:
        return await asyncio.to_thread(self.log.behind, dict(self._merge.positions))

    async def close(self) -> None:
        """The log is the runner's."""


class CorrelateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A correlation: what to look for, and how much to remember."""

    watcher: Annotated[str, Meta(description="The watcher that gets the results; its own name.")]
    rule: Annotated[
        dict[str, Any],
        Meta(description="What to look for, such as {'all_of': ['orders', 'payments'], 'within': '1h'}."),
    ]
    max_keys: Annotated[
        int,
        Meta(description="Live keys; of more the one whose deadline is nearest is dropped.", ge=1),
    ] = MAX_KEYS
    read_from: Annotated[
        Literal["latest", "earliest"],
        Meta(description="Where a new correlation begins: at the next event, or at the first one stored."),
    ] = "latest"


class CorrelateSource(RuleSource):
    """Finds what a rule describes in the events of other watchers."""

    kind: ClassVar[str] = KIND
    config: ClassVar[Any] = CorrelateConfig
    tuning: ClassVar[frozenset[str]] = frozenset({"rule", "max_keys", "read_from"})

    def __init__(self, config: CorrelateConfig) -> None:
        self.options = config
        self.watcher, self.max_keys = config.watcher, config.max_keys
        self.begin_at_the_end = config.read_from == "latest"
        rule = rule_of(config.rule)
        rule.compile(config.watcher)
        Correlator(config.watcher, rule)
        if config.watcher in {leg.watcher for leg in rule.all_legs()}:
            raise SpecError(f"watcher {config.watcher!r}: a correlation cannot be a leg of itself")

    def current(self, marks: Mapping[str, Mark]) -> Rule:
        known = marks.get(self.watcher)
        return rule_of(known.spec.options["rule"] if known else self.options.rule)
