"""The log on a SQL database: everything but the connection and the bulk statements.

Its parts stand in files of their own: who is there (``registry``), what arrives (``arrival``), who is told
and has it (``delivery``, ``places``), what was set aside (``letters``), what was (``history``), where it is
(``trace``), what rules remember (``rules``), what subjects went through (``states``, ``sagas``, ``views``),
what is known (``knowledge``), whether it agrees (``audit``), what is forgotten (``retention``, ``erasure``).
The statements are in ``queries/``. The database is authoritative: no state is kept here.
"""

from __future__ import annotations

import abc

from windsock.log.arrival import Arrival
from windsock.log.audit import Audit
from windsock.log.delivery import Delivery
from windsock.log.erasure import Erasure
from windsock.log.history import History
from windsock.log.knowledge import Knowledge
from windsock.log.letters import Letters
from windsock.log.places import Places
from windsock.log.rules import Rules
from windsock.log.sagas import Sagas
from windsock.log.states import States
from windsock.log.trace import Traces
from windsock.log.views import Views

__all__ = ["SqlLog"]


class SqlLog(
    Audit,
    Arrival,
    Delivery,
    Places,
    Letters,
    History,
    Traces,
    Rules,
    States,
    Sagas,
    Views,
    Erasure,
    Knowledge,
):
    """Implements :class:`windsock.log.base.Log`; a dialect adds the connection."""

    def tick(self) -> None:
        self.close_batches()
        self.release_gaps()
        self.expire()
        self.advance_replays()

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the database."""
