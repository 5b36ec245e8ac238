"""Who has it: runs take events, each Dag on its own, and keep what they took."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from windsock.events import WindsockError
from windsock.log.base import Log
from windsock.log.records import State, Write
from windsock.spec import Batching
from windsock.testing.clock import VirtualClock
from windsock.testing.logs.scene import LogScene, event, ids, put, states, watch

__all__ = ["ClaimContract"]


class ClaimContract(LogScene):
    """Claiming, explicitly and by being triggered."""

    def test_oldest_first_up_to_the_limit(self, log: Log) -> None:
        """Runs take the oldest events that nobody has, as many as they ask for."""
        watch(log, "orders", "fulfil")
        put(log, "orders", *"abcde")
        assert ids(log.claim(["orders"], "fulfil", "r1", limit=2)) == ["a", "b"]
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=2)) == ["c", "d"]
        assert ids(log.claim(["orders"], "fulfil", "r3", limit=2)) == ["e"]
        assert log.claim(["orders"], "fulfil", "r4", limit=2) == []

    def test_default_limit_is_the_largest_batch(self, log: Log) -> None:
        """Without a limit a run takes as many as the largest batch of its watchers may hold."""
        watch(log, "orders", "fulfil", batch=Batching(size=2))
        watch(log, "returns", "fulfil", batch=Batching(size=3))
        put(log, "orders", *"abcdef")
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]
        assert ids(log.claim(["orders", "returns"], "fulfil", "r2")) == ["c", "d", "e"]

    def test_same_run_same_events(self, log: Log) -> None:
        """A run that claims again gets the very same events, whatever has arrived and whatever it asks."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a", "b")
        first = log.claim(["orders"], "fulfil", "r1", limit=2)
        put(log, "orders", "c")
        assert log.claim(["orders"], "fulfil", "r1", limit=2) == first
        assert log.claim(["orders"], "fulfil", "r1", limit=1) == first
        assert log.claim(["orders"], "fulfil", "r1") == first

    def test_each_dag_gets_everything(self, log: Log) -> None:
        """Dags do not compete: the same run id in two Dags is two runs."""
        watch(log, "orders", "fulfil", "audit")
        put(log, "orders", "a", "b")
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a", "b"]
        assert ids(log.claim(["orders"], "audit", "r1")) == ["a", "b"]
        log.settle("fulfil", "r1", ok=True)
        assert set(states(log, "fulfil").values()) == {State.DONE}
        assert set(states(log, "audit").values()) == {State.CLAIMED}

    def test_watchers_of_one_asset_are_merged(self, log: Log) -> None:
        """A claim over several watchers is in the order of the log, with one limit for all."""
        watch(log, "orders", "fulfil")
        watch(log, "returns", "fulfil")
        for watcher, name in (("orders", "a"), ("returns", "b"), ("orders", "c"), ("returns", "d")):
            put(log, watcher, name)
        assert ids(log.claim(["returns", "orders"], "fulfil", "r1", limit=3)) == ["a", "b", "c"]
        assert ids(log.claim(["returns", "orders"], "fulfil", "r1", limit=3)) == ["a", "b", "c"]
        assert ids(log.claim(["returns", "orders"], "fulfil", "r2", limit=3)) == ["d"]

    def test_run_claims_two_assets_apart(self, log: Log) -> None:
        """A run that claims one watcher and then another has both, each answered on its own."""
        watch(log, "orders", "fulfil")
        watch(log, "returns", "fulfil")
        put(log, "orders", "a")
        put(log, "returns", "b")
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a"]
        assert ids(log.claim(["returns"], "fulfil", "r1")) == ["b"]
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a"]
        assert log.settle("fulfil", "r1", ok=True) == 2

    def test_stranger_gets_nothing(self, log: Log) -> None:
        """A Dag that comes late and claims before it subscribes has none of the past."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        assert log.claim(["orders"], "stranger", "r1") == []
        assert log.claim_announced("orders", "stranger", "r2", up_to=1000) == 0

    def test_unknown_watcher_cannot_be_claimed(self, log: Log) -> None:
        """A claim from a watcher that nobody registered is refused by name."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        with pytest.raises(WindsockError, match="nobody"):
            log.claim(["orders", "nobody"], "fulfil", "r1")
        assert states(log, "fulfil") == {"a": State.PENDING}

    def test_paused_dag_may_claim(self, log: Log) -> None:
        """A run of a paused Dag, started by hand, takes events all the same."""
        watch(log, "orders")
        log.subscribe("orders", "fulfil", paused=True)
        put(log, "orders", "a")
        assert ids(log.claim(["orders"], "fulfil", "r1")) == ["a"]

    def test_active_runs_are_listed(self, log: Log) -> None:
        """The runs that hold events are known until they are settled or released."""
        watch(log, "orders", "fulfil", "audit")
        watch(log, "returns", "fulfil")
        put(log, "orders", "a", "b")
        put(log, "returns", "c")
        log.claim(["orders", "returns"], "fulfil", "r1", limit=3)
        log.claim(["orders"], "audit", "r1", limit=1)
        log.claim_announced("orders", "audit", "r2", up_to=1000)
        assert sorted(log.active_runs()) == [("audit", "r1"), ("fulfil", "r1")]
        log.settle("fulfil", "r1", ok=False)
        assert log.active_runs() == [("audit", "r1")]
        log.release_run("audit", "r1")
        assert log.active_runs() == []

    def test_threads_never_share_an_event(self, log: Log) -> None:
        """However many runs claim at once, every event goes to exactly one of them."""
        watch(log, "orders", "fulfil")
        put(log, "orders", *range(60))
        with ThreadPoolExecutor(6) as threads:
            claims = threads.map(
                lambda run: ids(log.claim(["orders"], "fulfil", f"r{run}", limit=5)), range(12)
            )
        got = [id for claim in claims for id in claim]
        assert sorted(got, key=int) == [str(n) for n in range(60)]

    def test_threads_claim_and_settle_side_by_side(self, log: Log) -> None:
        """Runs over several watchers claim, settle and append at once, and never wait in a ring."""
        names = ["returns", "orders", "adjustments"]
        for name in names:
            watch(log, name, "fulfil", batch=Batching(size=2, within=1))

        def work(thread: int) -> int:
            settled = 0
            for step in range(8):
                log.append(
                    [Write(watcher=name, events=[event(f"{thread}-{step}")], flush=True) for name in names]
                )
                log.close_batches()
                log.claim(names if thread % 2 else names[::-1], "fulfil", f"r{thread}-{step}", limit=5)
                settled += log.settle("fulfil", f"r{thread}-{step}", ok=True)
            return settled

        with ThreadPoolExecutor(4) as threads:
            settled = sum(threads.map(work, range(4)))
        left = log.claim(names, "fulfil", "rest", limit=1000)
        assert settled + len(left) == 4 * 8 * 3

    def test_triggered_run_has_what_triggered_it(self, log: Log) -> None:
        """A Dag that never claims for itself has what was announced to it, and no more."""
        watch(log, "orders", "fulfil")
        *_, up_to = put(log, "orders", "a", "b")
        put(log, "orders", "c")
        assert log.claim_announced("orders", "fulfil", "r1", up_to=up_to) == 2
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.CLAIMED, "c": State.PENDING}
        assert log.active_runs() == [("fulfil", "r1")]
        assert log.settle("fulfil", "r1", ok=True) == 2
        assert states(log, "fulfil") == {"a": State.DONE, "b": State.DONE, "c": State.PENDING}

    def test_triggered_run_takes_once(self, log: Log) -> None:
        """Being told twice of the same trigger takes nothing more, and a later run takes only the rest."""
        watch(log, "orders", "fulfil")
        [a] = put(log, "orders", "a")
        log.claim_announced("orders", "fulfil", "r1", up_to=a)
        [b] = put(log, "orders", "b")
        log.claim_announced("orders", "fulfil", "r1", up_to=a)
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.PENDING}
        assert log.claim_announced("orders", "fulfil", "r2", up_to=b) == 1

    def test_claim_replaces_what_the_trigger_took(self, log: Log) -> None:
        """The first explicit claim of a triggered run decides; what it leaves is free again."""
        watch(log, "orders", "fulfil")
        *_, up_to = put(log, "orders", "a", "b", "c")
        log.claim_announced("orders", "fulfil", "r1", up_to=up_to)
        assert ids(log.claim(["orders"], "fulfil", "r1", limit=2)) == ["a", "b"]
        assert states(log, "fulfil") == {"a": State.CLAIMED, "b": State.CLAIMED, "c": State.PENDING}
        assert [item.attempt for item in log.claim(["orders"], "fulfil", "r2")] == [0]

    def test_dag_that_claims_is_left_alone(self, log: Log) -> None:
        """A Dag that has claimed for itself never gets events by being triggered."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1", limit=1)
        *_, up_to = put(log, "orders", "b", "c")
        assert log.claim_announced("orders", "fulfil", "r2", up_to=up_to) == 0
        assert ids(log.claim(["orders"], "fulfil", "r2", limit=1)) == ["b"]

    def test_dag_that_claimed_nothing_still_claims_for_itself(self, log: Log) -> None:
        """An explicit claim that found nothing is an explicit claim."""
        watch(log, "orders", "fulfil")
        assert log.claim(["orders"], "fulfil", "r1") == []
        [seq] = put(log, "orders", "a")
        assert log.claim_announced("orders", "fulfil", "r2", up_to=seq) == 0

    def test_claimed_events_stay_claimed(self, log: Log, clock: VirtualClock) -> None:
        """Time alone takes no event from a run."""
        watch(log, "orders", "fulfil")
        put(log, "orders", "a")
        log.claim(["orders"], "fulfil", "r1")
        clock.advance(30 * 86_400)
        log.close_batches()
        assert log.claim(["orders"], "fulfil", "r2") == []
        assert log.due(["orders"]) == []
