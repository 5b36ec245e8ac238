"""The generated pages of the sources are those that the sources say of themselves."""

from __future__ import annotations

import ast
import re

import pytest

import windsock.watchers
from docs.pages import ROOT
from windsock.sources import source_class
from windsock.spec import WatcherSpec
from windsock.testing.source_pages import FOLDER, pages

PAGES = pages()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_up_to_date(name: str) -> None:
    """`make pages` has been run since a source's docstring, options or guarantees changed."""
    assert (ROOT / FOLDER / name).read_text("utf-8") == PAGES[name]


def made(kind: str, page: str) -> list[object]:
    """What the examples of a page make: configs, specs and watchers, made for real."""
    cls = source_class(kind)
    names = {cls.config.__name__: cls.config, "WatcherSpec": WatcherSpec, **vars(windsock.watchers)}
    calls = [
        node
        for block in re.findall(r"^```py$(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
        for node in ast.walk(compile(block, kind, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]
    return [eval(compile(ast.Expression(call), kind, "eval"), names) for call in calls]


@pytest.mark.parametrize("name", sorted(set(PAGES) - {"README.md"}))
def test_the_example_of_a_page_is_valid(name: str) -> None:
    """The options that an example shows are options that the source takes."""
    assert made(name.removesuffix(".md"), PAGES[name])


def test_no_page_is_left_over() -> None:
    """A source that is gone has no page."""
    assert {path.name for path in (ROOT / FOLDER).glob("*.md")} == set(PAGES)


def test_every_source_says_what_it_was_tested_against() -> None:
    """The last column of the table has no empty cell."""
    rows = [line for line in PAGES["README.md"].splitlines() if line.startswith("| [`")]
    assert len(rows) >= 25
    assert [row for row in rows if re.search(r"\|\s*\|$", row)] == []


def test_the_readme_names_every_watcher() -> None:
    """A watcher that a user can import stands in the README's table, under one of its names."""
    readme = (ROOT / "README.md").read_text("utf-8")
    known = {name: getattr(windsock.watchers, name) for name in windsock.watchers.__all__}
    shown = {known[name] for name in known if f"`{name}`" in readme or f"`{name}(" in readme}
    assert {cls.__name__ for cls in known.values()} - {cls.__name__ for cls in shown} == set()
