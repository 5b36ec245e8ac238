"""Event-driven scheduling for Apache Airflow 3.

This is the public door. Watchers are in :mod:`windsock.watchers`, the test kit in :mod:`windsock.testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windsock.airflow.claim import claim, dead_letter
    from windsock.airflow.declare import load_assets
    from windsock.airflow.outcome import Invalid, Transient
    from windsock.airflow.route import route
    from windsock.airflow.settings import get_log
    from windsock.airflow.sourced import Projection, Saga, StateMachine, state
    from windsock.events import DeadLetter, Event, InvalidEvent, SourceError, WindsockError
    from windsock.explain import explain_dag, explain_event
    from windsock.log import Log, open_log
    from windsock.recovery import redrive
    from windsock.spec import WatcherSpec

__all__ = [
    "DeadLetter",
    "Event",
    "Invalid",
    "InvalidEvent",
    "Log",
    "Projection",
    "Saga",
    "SourceError",
    "StateMachine",
    "Transient",
    "WatcherSpec",
    "WindsockError",
    "claim",
    "dead_letter",
    "explain_dag",
    "explain_event",
    "get_log",
    "load_assets",
    "open_log",
    "redrive",
    "route",
    "state",
]

__version__ = "0.1.0"

_ROOMS = {
    "claim": "windsock.airflow.claim",
    "dead_letter": "windsock.airflow.claim",
    "Invalid": "windsock.airflow.outcome",
    "Transient": "windsock.airflow.outcome",
    "get_log": "windsock.airflow.settings",
    "Projection": "windsock.airflow.sourced",
    "Saga": "windsock.airflow.sourced",
    "StateMachine": "windsock.airflow.sourced",
    "state": "windsock.airflow.sourced",
    "load_assets": "windsock.airflow.declare",
    "route": "windsock.airflow.route",
    "DeadLetter": "windsock.events",
    "Event": "windsock.events",
    "InvalidEvent": "windsock.events",
    "SourceError": "windsock.events",
    "WindsockError": "windsock.events",
    "explain_dag": "windsock.explain",
    "explain_event": "windsock.explain",
    "Log": "windsock.log",
    "open_log": "windsock.log",
    "redrive": "windsock.recovery",
    "WatcherSpec": "windsock.spec",
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used: ``import windsock`` does not import Airflow."""
    if name in _ROOMS:
        return getattr(import_module(_ROOMS[name]), name)
    raise AttributeError(f"module 'windsock' has no attribute {name!r}")
