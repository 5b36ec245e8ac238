"""Fast expressions: what Python decides is what CEL would have said, value and failure alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windsock.events import Event
from windsock.pipeline import expressions
from windsock.pipeline.expressions import compile_condition, compile_value
from windsock.pipeline.fast import UNSURE, compile_fast
from windsock.spec import SpecError

KEYS = ("a", "b", "c")
NUMBERS = [0, 1, -1, 2, 100, 2**53 - 1, 2**53 + 1, 2**63, -(2**63), 0.0, 1.0, -0.0, 1.5, 2.0**53, 1e300]
TEXTS = ["", "a", "ab", "abc", "a/b.csv", "é😀", "a\n", "1", "\x00"]
LITERALS = [
    *("0", "1", "-1", "2", "100", "1.0", "0.0", "1.5", "-1.5e0", "9007199254740992", "9007199254740992.0"),
    *("9223372036854775807", "1u", "true", "false", "null"),
    *("''", "'a'", '"ab"', r"'\x61bc'", r"'\u00e9\U0001F600'", "'a/b.csv'", r"'a\n'", "r'a'", r"'\000'"),
]
PATTERNS = [
    "a",
    "^a",
    "b$",
    "^a.*c$",
    "^a/.*[.]csv$",
    "a|b",
    "(",
    "^[a-z]+$",
    r"\\d",
    "^.$",
    ".",
    r"^\\w*$",
    "[b-a]",
]
PATHS = [
    *(
        "type",
        "id",
        "subject",
        "key",
        "event.type",
        "data",
        "headers",
        "extensions",
        "headers.x",
        "headers['x']",
    ),
    *(f"data.{one}" for one in KEYS),
    *(
        "data['a']",
        "data.a.b",
        "data['a']['b'].c",
        "event.data.a",
        "data.missing",
        "extensions.n",
        "headers['y']",
    ),
]

scalars = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
events = st.builds(
    lambda data, kind, subject, key, headers, extensions: Event.make(
        data,
        id="ab",
        source="/s",
        type=kind,
        subject=subject,
        key=key,
        headers=headers,
        extensions=extensions,
    ),
    st.dictionaries(st.sampled_from(KEYS), values) | values | st.just(b"a"),
    st.sampled_from(["a", "ab", "order"]),
    st.none() | st.sampled_from(TEXTS),
    st.none() | st.just("a"),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(TEXTS)),
    st.dictionaries(st.just("n"), st.integers(-2, 2) | st.booleans() | st.just("a")),
)

paths = st.sampled_from(PATHS)
literals = st.sampled_from(LITERALS)
operands = paths | paths | literals | st.builds("size({})".format, paths)
lists = st.lists(literals, max_size=3).map(lambda chosen: f"[{', '.join(chosen)}]")
texts = st.sampled_from([one for one in LITERALS if one[0] in "'\"r"])
leaves = st.one_of(
    st.builds("{} {} {}".format, operands, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), operands),
    st.builds("{} in {}".format, operands, lists | paths),
    st.builds("has({})".format, paths),
    st.builds("{}.{}({})".format, paths, st.sampled_from(["startsWith", "endsWith", "contains"]), texts),
    st.builds("{}.matches('{}')".format, paths, st.sampled_from(PATTERNS)),
    operands,
    literals,
)
written = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||"]), inner),
        st.builds("({})".format, inner),
        st.builds("!{}".format, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=5,
)


def compiled(compile_: Any, expression: str) -> Any:
    try:
        return compile_(expression, watcher="w", option="where")
    except SpecError:
        return None


def by_cel(compile_: Any, expression: str) -> Any:
    """What CEL makes of an expression without the fast form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expressions, "compile_fast", lambda *_, **__: None)
        return compiled(compile_, expression)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


@settings(max_examples=400, deadline=None)
@given(written, st.lists(events, min_size=1, max_size=5))
@example("data.a == 1 || data.b", [Event.make({"a": True, "b": 1}, source="s", type="t")])
@example("data.a in [1, true]", [Event.make({"a": one}, source="s", type="t") for one in (True, 1, 1.0, [1])])
@example("data.a == 9007199254740992.0", [Event.make({"a": 2**53 + 1}, source="s", type="t")])
@example("data.a.matches('b$')", [Event.make({"a": "b\n"}, source="s", type="t")])
@example("has(data.a.b)", [Event.make({"a": one}, source="s", type="t") for one in ("b", ["b"], {"b": None})])
def test_python_and_cel_agree(expression: str, seen: list[Event]) -> None:
    """On any expression of the subset and any event, both give the same value or the same failure."""
    for compile_ in (compile_condition, compile_value):
        quick, slow = compiled(compile_, expression), by_cel(compile_, expression)
        assert (quick is None) == (slow is None)
        if quick is not None:
            for event in seen:
                assert same(quick(event), slow(event)), (expression, event)


@pytest.mark.parametrize(
    "expression",
    [
        "type == 'order.created' && data.total > 100",
        "data.total >= 1.5 || !(data.tier in ['gold', 'silver', null])",
        "headers['x'] != 'a' && event.subject == null",
        "has(data.customer.tier) && size(data.items) > 0",
        "subject.startsWith('in/') && subject.endsWith(\".csv\") && subject.contains('a')",
        "subject.matches('^in/.*[.]csv$')",
        "'vip' in data.tags && data.active",
        "100 < data.total",
        "data.a == data.b",
    ],
)
def test_the_simple_subset_is_fast(expression: str) -> None:
    """What most filters say does not need CEL to be compiled."""
    assert compile_fast(expression, condition=True) is not None


@pytest.mark.parametrize(
    "expression",
    [
        "data.total + 1 > 100",
        "data.?total.orValue(1) == 1",
        "time > timestamp('2026-01-01T00:00:00Z')",
        "data.tags.exists(t, t == 'a')",
        "subject.matches('a+b')",
        "subject.matches('^(a|b)')",
        "subject.matches('^.*a.*$')",
        "data.total == 1u",
        "data.total > 9007199254740993",
        "type(data.total) == int",
        "data.a ? true : false",
        "data.`a-b` == 1",
        "data.a == 1 // why",
        "data.a in data.b",
    ],
)
def test_the_rest_is_left_to_cel(expression: str) -> None:
    """What Python could get wrong, or slowly, has no fast form."""
    assert compile_fast(expression, condition=True) is None


def test_a_doubtful_event_is_left_to_cel() -> None:
    """The fast form answers for the events that it is sure of and raises for the others."""
    fast = compile_fast("data.total > 100", condition=True)
    assert fast is not None
    assert fast(Event.make({"total": 101}, source="s", type="t")) is True
    for data in ({}, {"total": "101"}, {"total": True}, {"total": None}, None, b"total"):
        with pytest.raises(UNSURE):
            fast(Event.make(data, source="s", type="t"))
