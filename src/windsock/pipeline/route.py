"""Routing: watchers of one source share its events by content; each event goes to the first that wants it.

Watchers without a route get every event, as always (fan-out). Those of one group are asked in the order of
``route.order``, then of their names; one with ``otherwise`` takes what the others left. What nobody took is
ignored, or set aside at the first watcher of the group that says ``unmatched="dead_letter"``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from windsock.events import DeadLetter, Event
from windsock.pipeline import Pipeline
from windsock.pipeline.base import set_aside

__all__ = ["Shared", "share"]

Shared = dict[str, tuple[list[Event], list[DeadLetter]]]
"""Watcher → the events that go to it, and those that are set aside there."""


def share(pipelines: Iterable[Pipeline], events: Sequence[Event]) -> Shared:
    """Who gets which of the events that one source brought."""
    shared: Shared = {}
    groups: dict[str, list[Pipeline]] = defaultdict(list)
    for pipeline in pipelines:
        shared[pipeline.spec.name] = ([], [])
        if pipeline.spec.route is None:
            shared[pipeline.spec.name][0].extend(events)
        else:
            groups[pipeline.spec.route.group].append(pipeline)
    for group, members in groups.items():
        _first_match(group, sorted(members, key=_turn), events, shared)
    return shared


def _turn(pipeline: Pipeline) -> tuple[bool, int, str]:
    route = pipeline.spec.route
    return (route is not None and route.otherwise, route.order if route else 0, pipeline.spec.name)


def _first_match(group: str, members: Sequence[Pipeline], events: Sequence[Event], shared: Shared) -> None:
    strict = [m.spec.name for m in members if m.spec.route and m.spec.route.unmatched == "dead_letter"]
    for event in events:
        taker = next((member for member in members if member.wants(event)), None)
        if taker is not None:
            shared[taker.spec.name][0].append(event)
        elif strict:
            reason = f"no watcher of the route {group!r} takes it: {', '.join(m.spec.name for m in members)}"
            shared[strict[0]][1].append(set_aside(event, stage="route", reason=reason))
