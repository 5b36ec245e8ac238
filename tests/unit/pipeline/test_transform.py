"""Transformations: picked, renamed, computed, dropped; one that fails costs its event alone."""

from __future__ import annotations

from typing import Any

import pytest

from windsock.events import Event
from windsock.pipeline.transform import TransformStep
from windsock.spec import SpecError

MODULE = "unit.pipeline.upcasters"


def order(**data: Any) -> Event:
    """An event with this data."""
    return Event.make(data, source="shop", type="order", id="1", headers={"h": "v"}, extensions={"x": "y"})


def transformed(transform: Any, event: Event) -> Event:
    """The one event that the transformation makes."""
    result = TransformStep(transform, watcher="w").apply([event])
    assert result.dead == []
    [made] = result.kept
    return made


@pytest.mark.parametrize(
    ("transform", "data"),
    [
        ({"data": "{'order': data.id, 'sum': data.total * 2.0}"}, {"order": 7, "sum": 3.0}),
        ({"data.label": "'order ' + string(data.id)"}, {"id": 7, "total": 1.5, "label": "order 7"}),
        ({"data.total": None}, {"id": 7}),
        ({"data.a.b": "data.id"}, {"id": 7, "total": 1.5, "a": {"b": 7}}),
        ({"data.none.deep": None}, {"id": 7, "total": 1.5}),
        ({"data.id": "data.total", "data.total": "data.id"}, {"id": 1.5, "total": 7}),
        ({"data": "{'k': data.id}", "data.t": "data.total"}, {"k": 7, "t": 1.5}),
        ({"data": None}, None),
    ],
)
def test_data_is_changed(transform: dict[str, str | None], data: Any) -> None:
    """Each path gets the value of its expression over the event as it came."""
    assert transformed(transform, order(id=7, total=1.5)).data == data


def test_attributes_are_changed_and_the_rest_is_kept() -> None:
    """Attributes are set or dropped like data; headers and extensions stay."""
    made = transformed({"subject": "data.id", "type": "type + '.seen'", "key": None}, order(id=7))
    assert (made.id, made.subject, made.type, made.key) == ("1", "7", "order.seen", None)
    assert (made.headers, made.extensions) == ({"h": "v"}, {"x": "y"})


def test_the_original_is_not_touched() -> None:
    """An event may go to several watchers: what one changes, the others do not see."""
    event = order(inner={"a": 1})
    transformed({"data.inner.b": "2"}, event)
    assert event.data == {"inner": {"a": 1}}


def test_functions() -> None:
    """A function returns data, several events, or nothing."""
    assert transformed(f"{MODULE}:wrapped", order(n=1)).data == {"was": {"n": 1}}
    result = TransformStep(f"{MODULE}:doubled", watcher="w").apply([order(n=1)])
    assert [event.id for event in result.kept] == ["1", "1-2"]
    result = TransformStep(f"{MODULE}:dropped", watcher="w").apply([order(n=1)])
    assert (result.kept, [verdict.stage for verdict in result.filtered]) == ([], ["transform"])


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        ({"data.x": "data.missing + 1"}, "data.x: "),
        ({"data.id.deep": "1"}, "would be inside a value"),
        ({"type": "''"}, "'type' is missing"),
        ({"time": "data.id"}, None),
        (f"{MODULE}:number", "returned a int"),
        (f"{MODULE}:raises", "KeyError: 'gone'"),
    ],
)
def test_a_failure_costs_its_event_alone(transform: Any, reason: str | None) -> None:
    """What cannot be transformed is a dead letter with the reason; its neighbour goes on."""
    good = Event.make({"id": {}, "missing": 1}, source="s", type="t")
    result = TransformStep(transform, watcher="w").apply([order(id=7), good])
    if reason is None:
        assert result.kept[0].time is not None
    else:
        assert reason in result.dead[0].reason
        assert result.dead[0].event_id == "1"


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"data.x": "1 +"}, "transform\\['data.x'\\], line 1, column"),
        ({"dta.x": "1"}, "a path begins with 'data'"),
        ({"data..x": "1"}, "a path begins with 'data'"),
        ("data.x", "package.module:function"),
        ("no.such:function", "cannot import"),
    ],
)
def test_mistakes_are_refused_at_once(transform: Any, message: str) -> None:
    """A wrong path, expression or function is an error of the definition."""
    with pytest.raises(SpecError, match=message):
        TransformStep(transform, watcher="w")
