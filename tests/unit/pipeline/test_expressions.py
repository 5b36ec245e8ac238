"""Expressions: compiled once, mistakes shown with their position, failures confined to one event."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.events import Event
from windsock.pipeline.expressions import Failure, compile_condition, compile_text, compile_value
from windsock.spec import SpecError

EVENT = Event.make(
    {
        "total": 150,
        "price": 1.5,
        "whole": 2.0,
        "name": "Ä",
        "tags": ["a", "b"],
        "none": None,
        "deep": {"x": True},
    },
    id="1",
    source="/shop",
    type="order.created",
    subject="in/a.csv",
    time=dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    key="k",
    sequence="9",
    extensions={"region": "eu", "n": 5},
)


def is_even(event: Event) -> bool:
    return bool(event.data["total"] % 2 == 0)


def match(event: Event) -> Any:
    return event.data.get("tags")


def broken(event: Event) -> bool:
    raise LookupError(f"nothing for {event.id}")


NOT_A_FUNCTION = 5


def condition(expression: str, event: Event = EVENT) -> Any:
    return compile_condition(expression, watcher="w", option="where")(event)


def text(expression: str, event: Event = EVENT) -> Any:
    return compile_text(expression, watcher="w", option="key")(event)


@pytest.mark.parametrize(
    "expression",
    [
        "type == 'order.created' && data.total > 100",
        "event.type == type && event.data.total == data.total",
        "id == '1' && source == '/shop' && key == 'k' && sequence == '9'",
        "cause == null && correlation == null && dataschema == null && datacontenttype == null",
        "subject.matches('^in/.*[.]csv$')",
        "time > timestamp('2026-01-01T00:00:00Z') && time.getHours() == 10",
        "extensions.region == 'eu' && extensions.n == 5",
        "'b' in data.tags && data.tags.exists(key, key == 'a')",
        "data.name.size() == 1 && data.name == 'Ä'",
        "data.total > 149.5 && data.whole == 2",
        "!has(data.missing) && has(data.total)",
        "data.?missing.?at.orValue('x') == 'x'",
        "data.none == null && data.deep.x",
        "data.deep.x",
        "type(data.total) == int",
        "data.missing > 1 || type == 'order.created'",
        "source.lowerAscii().split('/')[1] == 'shop'",
        "math.greatest(1, data.total) == 150",
        "  true\n  && true  ",
        f"{__name__}:is_even",
        f" {__name__}:match ",
    ],
)
def test_conditions_that_hold(expression: str) -> None:
    """The attributes, CEL's functions and Python functions can be used, alone and together."""
    assert condition(expression) is True


def test_a_condition_that_does_not_hold_is_false() -> None:
    """False is an answer, not a failure."""
    assert condition("data.total < 100") is False


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("data.missing > 1", 'Key not found in map : "missing"'),
        ("data.total > 'a'", "No matching overloads"),
        ("data.total", "gave a int, not true or false"),
        ("data.none", "gave null, not true or false"),
        ("data.tags", "gave a list, not true or false"),
        ("data.tags[9] == 'a'", "index=9"),
        ("1 / 0 == 1", "divide by zero"),
        ("subject.matches('(')", "invalid regular expression"),
        (f"{__name__}:broken", "nothing for 1"),
    ],
)
def test_what_goes_wrong_on_one_event_is_a_failure(expression: str, reason: str) -> None:
    """A missing field, a wrong type or a function that raises is a verdict with its reason, not a crash."""
    verdict = condition(expression)
    assert isinstance(verdict, Failure)
    assert reason in verdict.reason


def test_an_event_without_a_time_fails_where_time_is_needed() -> None:
    """Only the part of a condition that needs the time fails."""
    event = Event.make(None, source="/s", type="t")
    assert isinstance(condition("time > timestamp('2026-01-01T00:00:00Z')", event), Failure)
    assert condition("type == 't' || time > timestamp('2026-01-01T00:00:00Z')", event) is True


@pytest.mark.parametrize("data", [None, 5, "text", b"\xff", [], True])
def test_data_need_not_be_an_object(data: Any) -> None:
    """Data of any kind fails to have a field, and nothing else."""
    event = Event.make(data, source="/s", type="t")
    assert isinstance(condition("data.x == 1", event), Failure)
    assert condition("type == 't'", event) is True


def test_values_past_make_are_failures() -> None:
    """An event that was built with values that are no JSON fails by itself."""
    for data in (object(), {"a": "\ud800"}, 10**30):
        event = Event(id="1", source="/s", type="t", data=data)
        assert isinstance(condition("data == 1 ? true : false", event), Failure)


@pytest.mark.parametrize(
    ("expression", "where", "caret"),
    [
        ("type == ", "line 1, column 9", "    type == \n            ^"),
        ("tpye == 'x'", "line 1, column 1: undeclared reference to 'tpye'", "    tpye == 'x'\n    ^"),
        ("id + 1 == 2", "line 1, column 4", "    id + 1 == 2\n       ^"),
        ("true &&\n\t(false", "line 2, column 8", "    \t(false\n    \t      ^"),
        ("type == '漢' && x", "line 1, column 16", "    type == '漢' && x\n                    ^"),
        ("", "line 1, column 1", "    \n    ^"),
        ("event", "an expression knows id, source, type, time", "^"),
    ],
)
def test_mistakes_are_shown_where_they_are(expression: str, where: str, caret: str) -> None:
    """A wrong expression is refused with watcher, option, position and a caret below it."""
    with pytest.raises(SpecError) as caught:
        condition(expression)
    message = str(caught.value)
    assert message.startswith("watcher 'w': where")
    assert where in message
    assert message.endswith(caret)
    assert "container" not in message


@pytest.mark.parametrize("expression", ["\ud800", "(" * 500, "x" * 100_000 + "\0", "'\n'", "\x00"])
def test_odd_expressions_are_refused(expression: str) -> None:
    """Whatever is written as an expression, the answer is a SpecError that can be printed."""
    with pytest.raises(SpecError) as caught:
        condition(expression)
    str(caught.value).encode()


@pytest.mark.parametrize(("expression", "kind"), [("'a'", "string"), ("1 + 1", "int"), ("[true]", "list")])
def test_conditions_must_be_true_or_false(expression: str, kind: str) -> None:
    """A condition that can never be a bool is refused when compiled."""
    with pytest.raises(SpecError, match=f"where must be true or false, but this gives {kind}"):
        condition(expression)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no.such.module:f", "cannot import no.such.module:f"),
        (f"{__name__}:absent", "cannot import"),
        (f"{__name__}:NOT_A_FUNCTION", "is not a function"),
    ],
)
def test_functions_that_are_not_there_are_refused(path: str, reason: str) -> None:
    """A function is imported when compiled, and its absence is said then."""
    with pytest.raises(SpecError, match=reason):
        condition(path)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("data.name", "Ä"),
        ("data.total", "150"),
        ("data.price", "1.5"),
        ("data.whole", "2"),
        ("data.deep.x", "true"),
        ("data.tags", '["a","b"]'),
        ("[source, id, string(data.total)]", '["/shop","1","150"]'),
        ("time", "2026-07-01T10:00:00+00:00"),
        ("source + '-' + id", "/shop-1"),
        ("'a\\u0000b'", "a\\u0000b"),
        (f"{__name__}:match", '["a","b"]'),
    ],
)
def test_texts_are_made_of_what_can_name_something(expression: str, expected: str) -> None:
    """Texts, numbers, booleans, times and lists of them have one text each."""
    assert text(expression) == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("data.none", "gave null"),
        ("''", "gave an empty str"),
        ("[]", "gave an empty list"),
        ("data.deep", "gave a dict, not a text"),
        ("[data.deep]", "gave a list, not a text"),
        ("data.missing", "Key not found"),
        (f"{__name__}:broken", "LookupError"),
    ],
)
def test_texts_that_cannot_be_had_are_failures(expression: str, reason: str) -> None:
    """What names nothing is a failure with its reason."""
    verdict = text(expression)
    assert isinstance(verdict, Failure)
    assert reason in verdict.reason


def test_values_are_plain() -> None:
    """An expression's value is made of Python's own types."""
    value = compile_value("[data.deep, data.tags, data.price]", watcher="w", option="x")(EVENT)
    assert value == [{"x": True}, ["a", "b"], 1.5]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
COMPILED = [
    compile_condition("data.a > 1 && data.b.c == 'x' || data[0] == 1", watcher="w", option="where"),
    compile_text("data.a", watcher="w", option="key"),
    compile_text("[data.a, data.b]", watcher="w", option="key"),
]


@settings(deadline=None)
@given(json_values | st.binary(max_size=4))
def test_no_data_breaks_an_expression(data: Any) -> None:
    """On any event an expression gives a value of its type or a failure."""
    event = Event.make(data, source="/s", type="t")
    verdicts = [evaluate(event) for evaluate in COMPILED]
    assert isinstance(verdicts[0], bool | Failure)
    assert all(isinstance(verdict, str | Failure) and verdict for verdict in verdicts[1:])
