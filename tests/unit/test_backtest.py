"""The past through a definition: verdicts, duplicates, and the batches and runs that it would have made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windsock.backtest import Backtest, Batches, Form, Moment, Outcome
from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import Batching, WatcherSpec
from windsock.testing.clock import VirtualClock


def made(limits: Batching, times: list[float], *, throttle: float = 0.0, size: int = 10) -> tuple[int, int]:
    """(batches, runs) of events at these times."""
    batches = Batches(limits, throttle)
    for at in times:
        batches.add(at, size)
    batches.finish()
    return batches.closed, batches.runs


def moment(at: float, id: str, form: Form = Form.STORED, **data: object) -> Moment:
    """An event of the past."""
    return Moment(at=at, event=Event.make(data, source="s", type="t", id=id), form=form)


def test_limits_close_batches() -> None:
    """Each limit closes a batch where the log would."""
    assert made(Batching(), [0, 0, 0, 1]) == (2, 2)
    assert made(Batching(size=2), [0, 0, 0, 1]) == (3, 3)
    assert made(Batching(bytes=15), [0, 0, 0]) == (2, 2)
    assert made(Batching(within=10), [0, 5, 9, 10, 25]) == (3, 3)
    assert made(Batching(quiet=10), [0, 5, 14, 25]) == (2, 2)
    assert made(Batching(quiet=10, leading=True), [0, 1, 2, 30]) == (3, 3)
    assert made(Batching(target=10), [0, 5, 9, 10]) == (2, 2)


def test_a_throttle_joins_batches_into_runs() -> None:
    """One run in so long, of at most the batch's size; nothing is left at the end."""
    assert made(Batching(size=10), [0, 1, 2, 100], throttle=10) == (4, 3)
    assert made(Batching(size=1), [0, 1, 2, 3], throttle=10) == (4, 4)


def test_a_flush_closes_the_batch() -> None:
    """Together with what came in the same append."""
    batches = Batches(Batching(within=100))
    for at, flush in ((0, False), (1, True), (1, False), (2, False)):
        batches.add(at, 1, flush=flush)
    batches.finish()
    assert batches.closed == 2


@given(
    gaps=st.lists(st.integers(0, 20), max_size=40),
    size=st.integers(1, 5),
    within=st.sampled_from([0, 7]),
    quiet=st.sampled_from([0, 5]),
    leading=st.booleans(),
)
def test_it_makes_the_batches_that_the_log_makes(
    gaps: list[int], size: int, within: int, quiet: int, leading: bool
) -> None:
    """For any arrivals, as many batches as the log itself closes with the same limits."""
    limits = Batching(size=size, within=within, quiet=quiet, leading=leading and quiet > 0)
    clock = VirtualClock(1000.0)
    log = SqliteLog(":memory:", clock=clock)
    log.register(WatcherSpec(name="w", kind="memory", batch=limits), source="s")
    log.subscribe("w", "d")
    batches = Batches(limits)
    for number, gap in enumerate(gaps):
        for _ in range(gap):
            clock.advance(1)
            log.close_batches()
        # An append of its own is a moment of its own.
        clock.advance(0.001)
        log.append([Write(watcher="w", events=[Event(id=str(number), source="s", type="t", data=None)])])
        batches.add(clock(), len(Event(id=str(number), source="s", type="t").encode()))
    clock.advance(100)
    log.close_batches()
    batches.finish()
    assert batches.closed == log.totals()["batches"]
    log.close()


def test_verdicts_and_duplicates() -> None:
    """Kept, filtered, invalid and duplicate, one by one and in the tally, however they are mixed."""
    spec = WatcherSpec(
        name="w", kind="memory", where="data.n > 1", key="data.k", dedupe=10.0, dedupe_key="string(data.n)"
    )
    test = Backtest(spec)
    judged = test.judge(
        [
            moment(0, "low", n=1, k="a"),
            moment(0, "good", n=2, k="a"),
            moment(1, "again", n=2, k="a"),
            moment(2, "keyless", n=3),
            moment(20, "later", n=2, k="a"),
        ]
    )
    assert [one.outcome for one in judged] == [
        Outcome.FILTERED,
        Outcome.KEPT,
        Outcome.DUPLICATE,
        Outcome.INVALID,
        Outcome.KEPT,
    ]
    tally = test.tally
    assert (tally.events, tally.kept, tally.filtered, tally.invalid, tally.duplicate) == (5, 2, 1, 1, 1)


def test_only_what_was_not_transformed_is_transformed() -> None:
    """A stored event keeps its data; a filtered one goes through the whole definition."""
    spec = WatcherSpec(name="w", kind="memory", transform={"data.n": "data.n * 2"}, dedupe=0)
    stored, opened = Backtest(spec).judge([moment(0, "a", n=1), moment(0, "b", Form.OPENED, n=1)])
    assert stored.event is not None
    assert opened.event is not None
    assert (stored.event.data, opened.event.data) == ({"n": 1}, {"n": 2})
