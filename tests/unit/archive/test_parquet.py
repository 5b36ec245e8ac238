"""Events as Parquet: nothing is lost on the way, and other programs can read it."""

from __future__ import annotations

import builtins
import datetime as dt
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from windsock.archive.parquet import pack, unpack
from windsock.events import Event
from windsock.log.archive import ArchivedEvent, ArchiveError, Outcome

texts = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)
events = st.builds(
    Event,
    id=texts,
    source=texts,
    type=texts,
    subject=st.none() | texts,
    key=st.none() | texts,
    time=st.none()
    | st.timedeltas(dt.timedelta(0), dt.timedelta(days=40_000)).map(
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC).__add__
    ),
    data=st.none() | st.integers() | st.lists(texts),
)
outcomes = st.builds(
    Outcome,
    dag_id=texts,
    state=st.sampled_from(["done", "dead"]),
    run_id=st.none() | texts,
    attempts=st.integers(0, 100),
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(events, st.floats(0, 4e9), st.lists(outcomes, max_size=3).map(tuple)),
        min_size=1,
        max_size=20,
    )
)
def test_what_is_packed_is_unpacked(given_: list[tuple[Event, float, tuple[Outcome, ...]]]) -> None:
    """Every event comes back with its bytes, its exact time and its Dags, and packing is repeatable."""
    stored = [
        ArchivedEvent(seq=seq, watcher="w", received_at=at, body=event.encode(), dags=dags)
        for seq, (event, at, dags) in enumerate(given_, 1)
    ]
    content = pack(stored)
    back = list(unpack(content, "w"))
    assert [(one.seq, one.body, one.dags) for one in back] == [
        (one.seq, one.body, one.dags) for one in stored
    ]
    assert [one.received_at for one in back] == pytest.approx([one.received_at for one in stored], abs=1e-9)
    assert pack(stored) == content


@settings(deadline=None, max_examples=200)
@given(st.floats(1e9, 4e9))
def test_times_of_our_days_come_back_to_the_last_bit(at: float) -> None:
    """A time of reception is stored in nanoseconds, from which the same float is made."""
    one = ArchivedEvent(seq=1, watcher="w", received_at=at, body=Event(id="a", source="s", type="t").encode())
    [back] = unpack(pack([one]), "w")
    assert back.received_at == at


def test_other_programs_find_columns() -> None:
    """The file has a column for each attribute, with zstd inside."""
    moment = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
    event = Event(id="a", source="shop", type="order", subject="s", key="k", time=moment, data={"n": 1})
    outcome = Outcome(dag_id="fulfil", state="done", run_id="r", attempts=1)
    stored = ArchivedEvent(seq=7, watcher="w", received_at=1e9, body=event.encode(), dags=(outcome,))
    file = parquet.ParquetFile(io.BytesIO(pack([stored])))
    [row] = file.read().to_pylist()
    assert row["seq"] == 7
    assert [row[name] for name in ("id", "source", "type", "subject", "key")] == [
        "a",
        "shop",
        "order",
        "s",
        "k",
    ]
    assert row["time"] == moment
    assert row["received_at"].timestamp() == 1e9
    assert row["body"] == event.encode()
    assert row["dags"] == [{"dag_id": "fulfil", "state": "done", "run_id": "r", "attempts": 1}]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_what_is_no_parquet_is_told() -> None:
    """Bytes of another kind are an error with a name."""
    with pytest.raises(ArchiveError, match="not a Parquet file"):
        list(unpack(b"PAR0", "w"))


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not installed it learns what to install."""
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArchiveError, match=r"windsock\[archive\]"):
        pack([])
