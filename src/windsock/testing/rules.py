"""Try a rule without a log, an Airflow or a wait: events at the times that you say, results at once.

::

    play = Play(all_of("orders", "payments", within="1h", by="data.id"))
    play.event("orders", {"id": 7}, at=0)
    play.event("payments", {"id": 7}, at=60)
    assert [event.data["legs"]["payments"] for event in play.results] == [{"id": 7}]

Times are seconds after the beginning. ``after`` is how much later than its own time an event arrives.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from windsock.events import Event, Verdict
from windsock.log.records import Remembered, StoredEvent
from windsock.rules.base import Rule
from windsock.rules.correlator import MAX_KEYS, Correlator

__all__ = ["BEGIN", "Play"]

BEGIN = 1_699_920_000.0
"""2023-11-14 00:00 UTC."""


class Play:
    """A rule on an empty stage. With ``restart`` it is stopped and taken up again after every event."""

    def __init__(
        self, rule: Rule, *, name: str = "play", max_keys: int = MAX_KEYS, restart: bool = False
    ) -> None:
        self.rule = rule
        self.results: list[Event] = []
        self.verdicts: list[Verdict] = []
        self.stored: dict[str, Remembered] = {}
        self._name, self._max_keys, self._restart = name, max_keys, restart
        self._seq = 0
        self.correlator = self._make()
        self.correlator.begin(BEGIN)
        self.keep()

    def event(
        self,
        watcher: str,
        data: Any = None,
        *,
        at: float,
        after: float = 0.0,
        id: str | None = None,
        **attributes: Any,
    ) -> Event:
        """An event of a watcher, at its own time; what is due before its arrival happens first."""
        self._seq += 1
        event = Event.make(
            data,
            source="play",
            type="played",
            id=id or str(self._seq),
            time=dt.datetime.fromtimestamp(BEGIN + at, dt.UTC),
            **attributes,
        )
        self.wait(at + after)
        stored = StoredEvent(
            event=Event.decode(event.encode(), seq=self._seq), watcher=watcher, received_at=BEGIN + at + after
        )
        self.correlator.take(stored)
        self.keep()
        return event

    def wait(self, until: float) -> None:
        """Let the time pass."""
        while not self.correlator.advance(BEGIN + until):
            self.keep()
        self.keep()

    def ended(self) -> list[tuple[str, str]]:
        """(event id, verdict) of what came to no result."""
        return [(verdict.event.id, verdict.verdict) for verdict in self.verdicts]

    def keep(self) -> None:
        """Store what was found, as the log does; then begin anew if that was asked for."""
        found = self.correlator.collect()
        self.results += found.events
        self.verdicts += found.verdicts
        for key, known in found.state.items():
            if known is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = known
        if self._restart:
            clock = self.correlator.clock
            self.correlator = self._make()
            self.correlator.clock = clock
            self.correlator.load(self.stored.items())

    def _make(self) -> Correlator:
        return Correlator(self._name, self.rule, max_keys=self._max_keys, settle=0.0)
