"""Validation: JSON Schema and pydantic, strict or coerced, and versions brought to the latest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.events import Event
from windsock.pipeline import Pipeline
from windsock.pipeline.base import Result
from windsock.pipeline.schemas import with_schemas
from windsock.pipeline.validate import ValidateStep, VersionsStep
from windsock.spec import SpecError, Versions, WatcherSpec

MODULE = "unit.pipeline.upcasters"
ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "paid": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
NAMES = Versions(
    by="data.v",
    schemas={
        "1": {"required": ["name"], "properties": {"name": {"type": "string"}}},
        "2": {"required": ["first", "last"]},
        "3": {"required": ["given", "family"], "properties": {"given": {"minLength": 1}}},
    },
    upcast={"1": f"{MODULE}:to_two", "2": f"{MODULE}:to_three"},
)


def event(data: Any, id: str = "1") -> Event:
    """An event with this data."""
    return Event.make(data, source="s", type="t", id=id)


def validated(schema: Any, data: Any, *, coerce: bool = False) -> Result:
    """What the step makes of one event."""
    return ValidateStep(schema, coerce=coerce, watcher="w").apply([event(data)])


def test_what_fits_goes_on_and_what_does_not_is_set_aside() -> None:
    """The dead letter says where the data is wrong; unknown fields are kept."""
    step = ValidateStep(ORDER, coerce=False, watcher="w")
    result = step.apply(
        [event({"id": 1, "more": 2}), event({"id": "1", "tags": [1]}, id="2"), event({}, id="3")]
    )
    assert [kept.data for kept in result.kept] == [{"id": 1, "more": 2}]
    assert [letter.event_id for letter in result.dead] == ["2", "3"]
    assert "data.id: " in result.dead[0].reason
    assert "data.tags[0]: " in result.dead[0].reason
    assert '"id" is a required property' in result.dead[1].reason


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"id": " 7 "}, {"id": 7}),
        ({"id": 1, "paid": "Yes"}, {"id": 1, "paid": True}),
        ({"id": 1, "tags": [1, "a"]}, {"id": 1, "tags": ["1", "a"]}),
    ],
)
def test_coercion(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Values that can be converted without loss are; strict validation refuses them."""
    [kept] = validated(ORDER, given, coerce=True).kept
    assert kept.data == wanted


@pytest.mark.parametrize("given", [{"id": "seven"}, {"id": 7.5}, {"id": True}, {"id": [1]}])
def test_what_cannot_be_coerced_is_set_aside(given: dict[str, Any]) -> None:
    """Nothing is guessed."""
    assert len(validated(ORDER, given, coerce=True).dead) == 1


def test_pydantic_models() -> None:
    """A model checks and completes data; coerce mode converts."""
    [kept] = validated(f"{MODULE}:Order", {"id": 1, "at": "2026-01-31T08:00:00Z"}).kept
    assert kept.data == {"id": 1, "at": "2026-01-31T08:00:00Z", "note": "none"}
    [dead] = validated(f"{MODULE}:Order", {"id": "1", "at": "2026-01-31T08:00:00Z"}).dead
    assert "data.id: " in dead.reason
    [kept] = validated(f"{MODULE}:Order", {"id": "1", "at": "2026-01-31T08:00:00Z"}, coerce=True).kept
    assert kept.data["id"] == 1


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_every_version_becomes_the_latest(version: str) -> None:
    """Old events are checked as what they are and upcast step by step; Dags see one shape."""
    data = {
        "1": {"v": 1, "name": "Ada Lovelace"},
        "2": {"v": 2, "first": "Ada", "last": "Lovelace"},
        "3": {"v": 3, "given": "Ada", "family": "Lovelace"},
    }[version]
    [kept] = VersionsStep(NAMES, coerce=False, watcher="w").apply([event(data)]).kept
    assert kept.data == {"v": 3, "given": "Ada", "family": "Lovelace"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"v": 9}, "version '9' is not known: known are 1, 2, 3"),
        ({}, "it has no version"),
        ({"v": 1}, "required property"),
        ({"v": 1, "name": " x"}, "after upcasting from 2 to 3: data.given"),
        ({"v": 2, "first": "a", "last": "b"}, None),
    ],
)
def test_versions_that_do_not_fit(data: dict[str, Any], reason: str | None) -> None:
    """An unknown version, or one that does not fit its own or the next schema, is a dead letter."""
    result = VersionsStep(NAMES, coerce=False, watcher="w").apply([event(data)])
    assert [letter.reason for letter in result.dead if reason is None or reason not in letter.reason] == []
    assert len(result.dead) == (reason is not None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"schema": {"type": "nonsense"}}, "schema is not a JSON Schema"),
        ({"schema": "no.such:Model"}, "cannot import no.such:Model"),
        ({"schema": "json:loads"}, "is not a pydantic model"),
        ({"schema": "orders.json"}, "is a file, which is read when the Dag is parsed"),
        ({"versions": {"by": "data.v", "schemas": {}}}, "name at least one version"),
        ({"versions": {"by": "data.v", "schemas": {"1": {}, "2": {}}}}, r"no function for \['1'\]"),
        (
            {"versions": {"by": "data.v", "schemas": {"1": {}}, "upcast": {"1": "json:loads"}}},
            r"nothing to upcast \['1'\] to",
        ),
    ],
)
def test_mistakes_are_refused_at_once(spec: dict[str, Any], message: str) -> None:
    """A wrong schema is an error of the definition."""
    with pytest.raises(SpecError, match=message):
        Pipeline.compile(WatcherSpec.from_dict({"name": "w", "kind": "memory", **spec}))


def test_files_are_read_when_the_dag_is_parsed(tmp_path: Path) -> None:
    """What travels with the watcher is the schema itself; a file that is not there is refused."""
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    spec = WatcherSpec(name="w", kind="memory", schema="order.json")
    assert with_schemas(spec, tmp_path).schema == ORDER
    with pytest.raises(SpecError, match="cannot read the schema"):
        with_schemas(spec, tmp_path / "elsewhere")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(data=json_values, coerce=st.booleans())
def test_any_data_is_kept_or_set_aside(data: Any, coerce: bool) -> None:
    """Whatever comes, validation never raises, and what it keeps is valid."""
    result = validated(ORDER, data, coerce=coerce)
    assert len(result.kept) + len(result.dead) == 1
    for kept in result.kept:
        assert validated(ORDER, kept.data).dead == []
