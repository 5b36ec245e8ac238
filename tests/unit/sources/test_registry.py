"""Every registered source resolves, and describes its options."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import msgspec
import pytest

from windsock.airflow.watchers import EventWatcher
from windsock.events import WindsockError
from windsock.sources import SOURCES, Source, make_source, source_key
from windsock.sources.memory import MemorySource


def load(kind: str) -> Any:
    """The class behind a kind."""
    module, _, name = SOURCES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_row_resolves(kind: str) -> None:
    """A row names a class of that kind which has what the contract asks for."""
    cls = load(kind)
    assert cls.kind == kind
    assert all(callable(getattr(cls, name)) for name in ("connect", "read", "lag", "close"))


@pytest.mark.parametrize("kind", SOURCES)
def test_every_option_is_described(kind: str) -> None:
    """A config is frozen, refuses unknown options, and says of each option what it does."""
    config = load(kind).config
    assert config.__struct_config__.frozen
    assert config.__struct_config__.forbid_unknown_fields
    schemas = msgspec.json.schema_components([config])[1].values()
    undescribed = [
        name
        for schema in schemas
        for name, option in schema.get("properties", {}).items()
        if not option.get("description")
    ]
    assert undescribed == []


@pytest.mark.parametrize("kind", SOURCES)
def test_no_option_hides_one_of_the_watcher(kind: str) -> None:
    """A source's options and those that every watcher takes have different names."""
    taken = set(inspect.signature(EventWatcher.__init__).parameters)
    assert taken & set(load(kind).config.__struct_fields__) == set()


def test_a_source_of_ones_own_is_named_by_its_path() -> None:
    """Without a registered kind, package.module:Class is made."""
    source = make_source("windsock.sources.memory:MemorySource", {"channel": "x"})
    assert isinstance(source, MemorySource)
    assert isinstance(source, Source)


def test_an_unknown_kind_names_the_known_ones() -> None:
    """A typo is answered with what there is."""
    with pytest.raises(WindsockError, match=r"unknown source 'file': use one of .*files, .*'package"):
        make_source("file", {})


def test_a_wrong_option_names_the_source() -> None:
    """An option that the source does not have is refused."""
    with pytest.raises(WindsockError, match=r"source 'memory': .*unknown field `chanel`"):
        make_source("memory", {"channel": "x", "chanel": "y"})


def test_readers_of_one_system_share_a_key() -> None:
    """The key depends on kind and options, and not on their order."""
    assert source_key("files", {"path": "/a", "pattern": "*"}) == source_key(
        "files", {"pattern": "*", "path": "/a"}
    )
    assert source_key("files", {"path": "/a"}) != source_key("files", {"path": "/b"})
    assert source_key("files", {"path": "/a"}) != source_key("memory", {"path": "/a"})


def test_tuning_does_not_move_the_position() -> None:
    """Options that do not change what is read keep the cursor; those that do begin a new one."""
    plain = source_key("files", {"path": "/in"})
    assert source_key("files", {"path": "/in", "settle": 9.0, "rescan": 60.0}) == plain
    assert source_key("files", {"path": "/in", "pattern": "*.csv"}) != plain


def test_a_source_that_cannot_be_imported_is_named() -> None:
    """A wrong dotted path is answered with the path."""
    with pytest.raises(WindsockError, match=r"source 'no\.such:Thing' cannot be imported"):
        make_source("no.such:Thing", {})
