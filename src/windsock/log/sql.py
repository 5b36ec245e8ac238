"""The log on a SQL database: everything but the connection and the bulk statements.

Its parts stand in files of their own: who is there (``registry``), what arrives (``arrival``), who is told
and has it (``delivery``), what was set aside (``letters``), what was (``history``), where it is (``trace``),
what is known (``knowledge``). The statements are in ``queries/``. The database is authoritative: no state is
kept here.
"""

from __future__ import annotations

import abc

from windsock.log.arrival import Arrival
from windsock.log.delivery import Delivery
from windsock.log.history import History
from windsock.log.knowledge import Knowledge
from windsock.log.letters import Letters
from windsock.log.trace import Traces

__all__ = ["SqlLog"]


class SqlLog(Arrival, Delivery, Letters, History, Traces, Knowledge):
    """Implements :class:`windsock.log.base.Log`; a dialect adds the connection."""

    def tick(self) -> None:
        self.close_batches()
        self.release_gaps()
        self.expire()
        self.advance_replays()

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the database."""
