"""The contract suite that every log passes.

Subclass :class:`LogContract` in a test module and give it a fixture that opens your log on an empty store::

    class TestMyLog(LogContract):
        @pytest.fixture
        def open_log(self, tmp_path):
            return lambda clock: MyLog(tmp_path / "log.db", clock=clock)

A log that outlives its handle passes :class:`DurableLogContract` too: there ``open_log``, called again in
the same test, opens the same store once more.
"""

from __future__ import annotations

from windsock.testing.logs.announcements import AnnouncementContract
from windsock.testing.logs.arrival import ArrivalContract
from windsock.testing.logs.audit import AuditContract
from windsock.testing.logs.batches import BatchContract
from windsock.testing.logs.claims import ClaimContract
from windsock.testing.logs.durability import DurabilityContract
from windsock.testing.logs.failures import FailuresContract
from windsock.testing.logs.flow import FlowContract
from windsock.testing.logs.history import HistoryContract
from windsock.testing.logs.knowledge import KnowledgeContract
from windsock.testing.logs.leases import LeaseContract
from windsock.testing.logs.letters import LettersContract
from windsock.testing.logs.ordering import OrderingContract
from windsock.testing.logs.outcomes import OutcomeContract
from windsock.testing.logs.places import PlaceContract
from windsock.testing.logs.retention import RetentionContract
from windsock.testing.logs.retries import RetryContract
from windsock.testing.logs.rules import RulesContract
from windsock.testing.logs.states import SourcingContract
from windsock.testing.logs.subscriptions import SubscriptionContract

__all__ = ["DurableLogContract", "LogContract"]


class LogContract(
    SubscriptionContract,
    LeaseContract,
    ArrivalContract,
    BatchContract,
    AnnouncementContract,
    ClaimContract,
    OrderingContract,
    OutcomeContract,
    FlowContract,
    LettersContract,
    FailuresContract,
    RetryContract,
    HistoryContract,
    RulesContract,
    KnowledgeContract,
    SourcingContract,
    RetentionContract,
    PlaceContract,
    AuditContract,
):
    """What every log does, in memory or not."""


class DurableLogContract(LogContract, DurabilityContract):
    """What a log does that several handles and processes can open."""
