"""Compatibility of schemas: what breaks is found, and what is called compatible is."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.pipeline.compatibility import compare_schemas

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string"}, "total": {"type": "number", "minimum": 0}},
}


def breaks(
    old: Any, new: Any, mode: Any = "backward", *, declared: bool = False
) -> list[tuple[str, str, str]]:
    found = compare_schemas(old, new, mode=mode, declared=declared)
    return [(one.direction, one.path, one.problem) for one in found]


def changed(**properties: Any) -> dict[str, Any]:
    return {**ORDER, "properties": {**ORDER["properties"], **properties}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("old", "new", "path", "problem"),
    [
        (ORDER, {**ORDER, "required": ["id", "total"]}, "data.total", "is required"),
        (ORDER, changed(id={"type": "integer"}), "data.id", "no longer allows string"),
        (ORDER, changed(total={"type": "integer"}), "data.total", "no longer allows number"),
        (ORDER, changed(total={"type": "number", "minimum": 1}), "data.total", "tighter minimum, 1"),
        (
            ORDER,
            changed(total={"type": "number", "exclusiveMinimum": 0}),
            "data.total",
            "exclusiveMinimum, 0",
        ),
        (ORDER, changed(total={"type": "number", "maximum": 9}), "data.total", "tighter maximum, 9"),
        (ORDER, changed(total={"type": "number", "multipleOf": 2}), "data.total", "multiple of 2"),
        (ORDER, changed(id={"type": "string", "maxLength": 3}), "data.id", "smaller maxLength, 3"),
        (ORDER, changed(id={"type": "string", "pattern": "^a"}), "data.id", "another 'pattern'"),
        (ORDER, changed(id={"enum": ["a"]}), "data.id", "allows only"),
        (ORDER, {**ORDER, "additionalProperties": False}, "data", "no additional properties"),
        (ORDER, changed(note={"type": "string"}), "data.note", "no longer allows"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "data", 'no longer allows "b"'),
        ({"type": ["string", "null"]}, {"type": "string"}, "data", "no longer allows null"),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}, "data[]", "no longer allows"),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, "data", "unique items"),
        ({"type": "string"}, {"not": {"const": "a"}}, "data", "another 'not'"),
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {}]}, "data", "more than one branch"),
        ({}, {"$ref": "https://example.com/other.json"}, "data", "cannot be compared"),
        (
            {**ORDER, "additionalProperties": False},
            {"type": "object", "additionalProperties": False, "properties": {"id": {"type": "string"}}},
            "data.total",
            "was removed",
        ),
    ],
)
def test_what_breaks(old: Any, new: Any, path: str, problem: str) -> None:
    """Each kind of change that refuses what was fine is found at its place, whichever way it is asked."""
    found = breaks(old, new)
    assert [(one, where) for one, where, _ in found] == [("backward", path)]
    assert problem in found[0][2]
    assert ("forward", path, found[0][2]) in breaks(new, old, "forward")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ORDER, ORDER),
        (ORDER, {**ORDER, "required": []}),
        (ORDER, {}),
        (ORDER, changed(total={"type": ["number", "null"]})),
        (changed(total={"type": "integer"}), changed(total={"type": "number"})),
        ({"enum": ["a"]}, {"type": "string", "maxLength": 1}),
        ({"type": "integer"}, {"type": "number", "multipleOf": 0.5}),
        ({"type": "string"}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": ["number", "null"]}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"allOf": [{"maxLength": 4}]}),
        ({"prefixItems": [{"type": "string"}]}, {"prefixItems": [{"type": ["string", "null"]}]}),
        (ORDER, {"$ref": "#/$defs/order", "$defs": {"order": ORDER}}),
    ],
)
def test_what_does_not_break(old: Any, new: Any) -> None:
    """A schema that accepts as much or more is compatible."""
    assert breaks(old, new) == []


def test_declared_members_only() -> None:
    """If senders send what they declare, a new optional property breaks nobody; a new required one does."""
    assert breaks(ORDER, changed(note={"type": "string"}), "full", declared=True) == []
    required = {**changed(note={"type": "string"}), "required": ["id", "note"]}
    assert breaks(ORDER, required, declared=True) == [("backward", "data.note", "is required")]


class Leaf(pydantic.BaseModel):
    name: str
    children: list[Leaf] = []


class Branch(pydantic.BaseModel):
    name: str | None
    children: list[Branch] = []


def test_models_that_contain_themselves() -> None:
    """Recursive models are compared to the end, through their references."""
    leaf, branch = Leaf.model_json_schema(), Branch.model_json_schema()
    assert breaks(leaf, branch) == []
    assert breaks(leaf, branch, "forward") == [
        ("forward", "data.name", "no longer allows null: it was null, it is string")
    ]


names = st.sampled_from(["a", "b"])
numbers = st.integers(0, 3)
leaf_schemas = st.one_of(
    st.just({}),
    st.sampled_from([{"type": one} for one in ("null", "boolean", "integer", "number", "string")]),
    st.builds(lambda t, k, n: {"type": t, k: n}, st.sampled_from(["integer", "number"]), st.sampled_from(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), numbers),
    st.builds(lambda n: {"type": "integer", "multipleOf": n + 1}, numbers),
    st.builds(lambda k, n: {"type": "string", k: n}, st.sampled_from(["minLength", "maxLength"]), numbers),
    st.builds(lambda v: {"enum": v}, st.lists(st.sampled_from(["x", 1, None, 1.5]), min_size=1, unique=True)),
    st.just({"type": ["integer", "null"]}),
)  # fmt: skip


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner)},
        optional={
            "required": st.lists(names, unique=True),
            "additionalProperties": st.booleans() | inner,
            "maxProperties": numbers,
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={"items": inner, "minItems": numbers, "uniqueItems": st.booleans()},
    )
    unions = st.builds(
        lambda k, v: {k: v},
        st.sampled_from(["anyOf", "allOf", "oneOf"]),
        st.lists(inner, min_size=1, max_size=2),
    )
    return objects | arrays | unions


schemas = st.recursive(leaf_schemas, containers, max_leaves=4)
documents = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 3, -1, 1.5, 1.0, "", "x", "xyz", "wxyz"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=600, deadline=None)
@given(schemas, schemas, st.lists(documents, min_size=5, max_size=20))
def test_compatible_means_that_every_document_passes(old: Any, new: Any, given_: list[Any]) -> None:
    """What fits the one schema fits the other, in each direction that is called compatible."""
    fits_old, fits_new = (jsonschema_rs.validator_for(one).is_valid for one in (old, new))
    backward, forward = breaks(old, new), breaks(old, new, "forward")
    for document in given_:
        if not backward and fits_old(document):
            assert fits_new(document), (old, new, document)
        if not forward and fits_new(document):
            assert fits_old(document), (old, new, document)


@settings(max_examples=200, deadline=None)
@given(schemas)
def test_a_schema_is_compatible_with_itself(schema: Any) -> None:
    """Nothing breaks when nothing changes."""
    assert breaks(schema, schema, "full") == []
