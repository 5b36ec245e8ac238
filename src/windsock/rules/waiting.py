"""What an event waits for in the correlations that read it, for whoever explains it."""

from __future__ import annotations

import contextlib

import msgspec

from windsock.events import Event, WindsockError
from windsock.log.base import Log
from windsock.rules import KIND, rule_of
from windsock.rules.correlator import Correlator
from windsock.sources import source_key

__all__ = ["waiting_for"]


def waiting_for(log: Log, watcher: str, event: Event) -> dict[str, str]:
    """Correlating watcher → what the event's key waits for there, such as ``waits for payments``.

    Correlations that do not know the event's key (it has its result, or was never of interest) are left out.
    """
    waits = {}
    for spec in log.watchers():
        # A definition that cannot be read explains nothing; whoever runs it says why.
        with contextlib.suppress(WindsockError, msgspec.MsgspecError):
            rule = rule_of(spec.options.get("rule")) if spec.kind == KIND else None
            if rule is None or watcher not in {leg.watcher for leg in rule.all_legs()}:
                continue
            correlator = Correlator(spec.name, rule)
            key = correlator.key_of(event)
            known = None if key is None else log.recall(source_key(spec.kind, spec.options), key)
            if known is not None:
                waits[spec.name] = correlator.explain(known[0])
    return waits
