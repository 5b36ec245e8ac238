"""Every Python and configuration snippet of the pages works as it stands there."""

from __future__ import annotations

import asyncio
import configparser
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from docs.pages import ROOT, Block, blocks, pages
from windsock.airflow.provider import get_provider_info
from windsock.cli.init import starter_files
from windsock.sources import make_source
from windsock.sources.base import Cursor, Source
from windsock.testing.sources import Reader

TUTORIAL = ROOT / "docs" / "tutorial" / "README.md"

TICK_IMPORTS = """
import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from windsock.events import Event
from windsock.sources.base import Cursor, Delivery
"""
"""What the page leaves out of its example."""


def snippets(language: str) -> list[Block]:
    """All blocks of a language, in all pages."""
    return [block for page in pages() for block in blocks(page, language)]


def shows_a_dag(block: Block) -> bool:
    """Whether the block is a Dag file."""
    return "@dag" in block.text


def shows_a_source(block: Block) -> bool:
    """Whether the block is a source."""
    return "async def read(self)" in block.text


def shows_a_suite(block: Block) -> bool:
    """Whether the block is a contract suite, which `test_write_a_source` compares with one that runs."""
    return "SourceContract" in block.text


PYTHON = snippets("python")
DAGS = [block for block in PYTHON if shows_a_dag(block)]


def load(path: Path) -> DagBag:
    """The Dags of a file, as Airflow's Dag processor finds them."""
    return DagBag(path, bundle_path=path.parent, bundle_name="docs")


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles_and_is_run_somewhere(block: Block) -> None:
    """A Python block is valid, and a Dag, a source, its suite or a file of the starter: a test runs it."""
    compile(block.text, str(block), "exec")
    shown = shows_a_dag(block) or shows_a_source(block) or shows_a_suite(block)
    assert shown or block.title in starter_files()


@pytest.mark.parametrize("block", DAGS, ids=str)
def test_dags_are_parsed(block: Block, tmp_path: Path) -> None:
    """A block that shows a Dag is a Dag file that Airflow imports, scheduled on a watched asset."""
    path = tmp_path / "snippet.py"
    path.write_text(block.text)
    bag = load(path)
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        assert [watcher for asset in dag.schedule for watcher in asset.watchers]
    assert len(bag.dags) == 1


def test_the_first_example_of_the_readme() -> None:
    """The README opens with the Dag `fulfil`, which the tests above parse."""
    first = blocks(ROOT / "README.md")[0]
    assert first in DAGS
    assert "fulfil()" in first.text


@pytest.mark.parametrize("block", [block for block in PYTHON if block.title], ids=str)
def test_titled_blocks_are_the_starters_files(block: Block) -> None:
    """A block with a file's name shows that file of the starter project, to the letter."""
    assert block.title is not None
    assert block.text == starter_files()[block.title].decode()


def test_the_tutorial_shows_the_starters_python() -> None:
    """The tutorial leaves out no Python file of the starter."""
    shown = {block.title for block in blocks(TUTORIAL, "python")}
    assert shown == {name for name in starter_files() if name.endswith(".py")}


async def test_the_source_in_contributing_ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRIBUTING's TickSource keeps the source's protocol, ticks twice, and goes on from its cursor."""
    (block,) = filter(shows_a_source, blocks(ROOT / "CONTRIBUTING.md", "python"))
    (tmp_path / "tick_of_contributing.py").write_text(TICK_IMPORTS + block.text)
    monkeypatch.syspath_prepend(tmp_path)

    async def ticks(cursor: Cursor | None) -> Reader:
        source = make_source("tick_of_contributing:TickSource", {"every": 0.001})
        assert isinstance(source, Source)
        await source.connect(cursor)
        reader = Reader(source)
        async with asyncio.timeout(60):
            await reader.read(2)
        assert await source.lag() is None
        await source.close()
        return reader

    first = await ticks(None)
    second = await ticks(first.cursor())
    assert [event.data for event in first.events + second.events] == [{"n": n} for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("block", snippets("ini"), ids=str)
def test_configuration_is_known_to_airflow(block: Block) -> None:
    """Options in a `[windsock]` block are those that the provider declares."""
    parser = configparser.ConfigParser(inline_comment_prefixes=(";",))
    parser.read_string(block.text)
    known = get_provider_info()["config"]
    assert parser.sections()
    for section in parser.sections():
        assert set(parser[section]) <= set(known[section]["options"])
