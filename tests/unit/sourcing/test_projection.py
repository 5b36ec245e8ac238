"""Read models: up to date, rebuilt, shared by processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.subjects import View
from windsock.sourcing import Projection
from windsock.spec import SpecError


def add(row: Any, event: Event) -> Any:
    """Counts and adds up; a closing event ends the row."""
    if event.type == "closed":
        return None
    row = row or {"n": 0, "total": 0}
    return {"n": row["n"] + 1, "total": row["total"] + event.data.get("total", 0)}


def customers(log: Log | None, **options: Any) -> Projection:
    """A row per customer."""
    return Projection("customers", options.pop("reducer", add), log=log, **{"key": "data.who"} | options)


def test_events_become_rows_as_they_come(log: Log, tell: Any) -> None:
    """Each update counts what is new, once; rows are found by key and prefix; None deletes one."""
    view = customers(log)
    tell("bought", who="ada", total=5)
    tell("bought", who="bob", total=1)
    tell("bought", who="ada", total=6, watcher="bills")
    tell("bought")
    done = view.update()
    assert (done.events, done.rebuilt, done.position) == (3, False, 4)
    assert view.update().events == 0
    assert view.get("ada") == {"n": 2, "total": 11}
    assert view.rows(prefix="b") == {"bob": {"n": 1, "total": 1}}
    tell("closed", who="ada")
    assert view.update().events == 1
    assert view.get("ada") is None
    assert list(view.rows()) == ["bob"]


def test_watchers_and_types_narrow(log: Log, tell: Any) -> None:
    """Only the named watchers' events of these types count; types may have wildcards."""
    tell("order.paid", who="a")
    tell("order.sent", who="a")
    tell("order.paid", who="a", watcher="bills")
    for name, options, n in (
        ("one", {"watchers": ["orders"], "types": ["order.paid"]}, 1),
        ("two", {"types": ["order.paid"]}, 2),
        ("three", {"watchers": ["orders", "bills"], "types": ["order.*"]}, 3),
    ):
        view = Projection(name, add, key="data.who", log=log, **options)  # type: ignore[arg-type]
        view.update()
        assert view.get("a")["n"] == n, name


def test_keys(log: Log, tell: Any) -> None:
    """By default the subject, else the key; a function may say; a key too long for an index works as well."""
    tell("bought", "s" * 3000)
    by_subject = customers(log, key=None)
    by_subject.update()
    assert by_subject.get("s" * 3000) == {"n": 1, "total": 0}
    by_function = Projection("typed", add, key=lambda event: event.type, log=log)
    by_function.update()
    assert list(by_function.rows()) == ["bought"]


def test_a_rebuild_replays_the_log(log: Log, tell: Any) -> None:
    """The rows are made anew from the first event, and what was wrong in them is gone."""
    tell("bought", who="ada", total=5)
    view = customers(log)
    view.update()
    [stored] = log.views("customers")
    log.advance_view(stored, {"ghost": b"1"}, position=stored.position, events=0)
    assert view.get("ghost") == 1
    done = view.rebuild()
    assert (done.events, done.rebuilt) == (1, True)
    assert view.rows() == {"ada": {"n": 1, "total": 5}}


def test_changed_code_is_rebuilt_by_the_next_update(log: Log, tell: Any) -> None:
    """So that no row is half of one reducer and half of another; a named version says so itself."""
    tell("bought", who="ada", total=5)
    customers(log).update()
    changed = customers(log, reducer=lambda row, event: {"last": event.id})
    done = changed.update()
    assert done.rebuilt
    assert changed.get("ada") == {"last": "1"}
    for version, rebuilt in ((1, True), (1, False), (2, True)):
        assert customers(log, version=version).update().rebuilt is rebuilt


def test_more_than_a_page(log: Log, tell: Any) -> None:
    """Thousands of events are counted once each."""
    for n in range(2100):
        tell("bought", who=f"c{n % 3}", total=1)
    view = customers(log)
    assert view.update().events == 2100
    assert {key: row["n"] for key, row in view.rows().items()} == {"c0": 700, "c1": 700, "c2": 700}


def test_another_process_was_faster(log: Log, tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other one counted is not counted again."""
    tell("bought", who="ada", total=5)
    view, store = customers(log), log.advance_view

    def overtaken(
        stored: View, rows: Mapping[str, bytes | None], *, position: int, events: int
    ) -> View | None:
        monkeypatch.setattr(log, "advance_view", store)
        assert customers(log).update().events == 1
        return store(stored, rows, position=position, events=events)

    monkeypatch.setattr(log, "advance_view", overtaken)
    assert view.update().events == 0
    assert view.get("ada") == {"n": 1, "total": 5}


def test_another_process_rebuilds_meanwhile(log: Log, tell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The update goes on with the new rows, and counts nothing twice."""
    tell("bought", who="ada", total=5)
    view, store = customers(log), log.advance_view
    view.update()
    tell("bought", who="ada", total=6)

    def overtaken(
        stored: View, rows: Mapping[str, bytes | None], *, position: int, events: int
    ) -> View | None:
        monkeypatch.setattr(log, "advance_view", store)
        assert customers(log).rebuild().events == 2
        return store(stored, rows, position=position, events=events)

    monkeypatch.setattr(log, "advance_view", overtaken)
    assert view.update().events == 0
    assert view.get("ada") == {"n": 2, "total": 11}


def test_a_failing_reducer_changes_nothing(log: Log, tell: Any) -> None:
    """The error names the event, and the rows stay at their position."""
    view = customers(log)
    tell("bought", who="ada", total=5)
    view.update()
    tell("bought", who="ada", total="much")
    with pytest.raises(TypeError) as caught:
        view.update()
    assert caught.value.__notes__ == ["projection 'customers' failed on event '2' (seq 2)"]
    assert view.get("ada") == {"n": 1, "total": 5}
    assert log.views("customers")[0].position == 1


def test_rows_are_plain(log: Log, tell: Any) -> None:
    """A row that would not come back as it is, is refused."""
    tell("bought", who="ada")
    with pytest.raises(WindsockError, match="the row 'ada' of projection 'customers'"):
        customers(log, reducer=lambda row, event: (1, 2)).update()


def test_it_can_be_dropped(log: Log, tell: Any) -> None:
    """Nothing is left, and the next update begins anew."""
    tell("bought", who="ada")
    view = customers(log)
    view.update()
    assert view.drop() == 1
    assert view.get("ada") is None
    assert view.update().events == 1


def test_mistakes_are_refused_when_it_is_declared() -> None:
    """A wrong name, a wrong expression."""
    with pytest.raises(SpecError, match="projection 'customers': key"):
        customers(None, key="data.")
    with pytest.raises(SpecError, match="letters"):
        Projection("a b", add)
