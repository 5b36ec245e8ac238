"""Event sourcing: what is true now, made of what happened.

State folded from a subject's events, state machines, sagas, read models, and a subject's audit trail. All of
it is kept in the log's own database, beside the events that it is made of. Everything here is given its
log; inside Airflow the names of :mod:`windsock` itself know it.
"""

from __future__ import annotations

from windsock.sourcing.audit import AuditEntry, audit
from windsock.sourcing.fold import state
from windsock.sourcing.machine import IllegalTransition, StateMachine, Transition
from windsock.sourcing.projection import Projection, Updated
from windsock.sourcing.saga import Saga, SagaContext, SagaStuck, Step

__all__ = [
    "AuditEntry",
    "IllegalTransition",
    "Projection",
    "Saga",
    "SagaContext",
    "SagaStuck",
    "StateMachine",
    "Step",
    "Transition",
    "Updated",
    "audit",
    "state",
]
