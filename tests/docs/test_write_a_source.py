"""The page on writing a source: what it shows is what the tests run, and can be named as it says."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks
from windsock import load_assets, sources
from windsock.sources import make_source
from windsock.sources.base import Source

PAGE = ROOT / "docs" / "howto" / "write-a-source.md"
MODULE, HERE = "shop_sources.lines:", "docs.lines:"


def shown(language: str) -> list[str]:
    """The page's blocks of a language."""
    return [block.text for block in blocks(PAGE, language)]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's source in an installed package of the name that the page gives it."""
    folder = tmp_path / "shop_sources"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "lines.py").write_text(shown("python")[0])
    (entries,) = (tomllib.loads(text)["project"]["entry-points"] for text in shown("toml"))
    about = tmp_path / "shop_sources-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-sources\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
            for group, points in entries.items()
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    sources._entry_points.cache_clear()
    yield tmp_path
    sources._entry_points.cache_clear()


def test_the_page_shows_what_is_tested() -> None:
    """The source and its suite on the page are those that the contract tests run, to the letter."""
    source, suite = shown("python")
    assert source == (ROOT / "tests" / "docs" / "lines.py").read_text()
    tested = (ROOT / "tests" / "contract" / "test_custom_source.py").read_text()
    assert suite == tested.replace(HERE, MODULE)


def test_the_source_is_found_by_its_entry_point(package: Path) -> None:
    """An installed package makes its kind known by the entry point that the page shows."""
    source = make_source("lines", {"path": "/data/orders.jsonl"})
    assert type(source).__module__ == "shop_sources.lines"
    assert isinstance(source, Source)


def test_the_watcher_is_declared_as_the_page_says(package: Path) -> None:
    """The page's watchers.yaml names the source by its dotted path, and Airflow gets a watcher of it."""
    (text,) = shown("yaml")
    (package / "watchers.yaml").write_text(text)
    (package / "assets.yaml").write_text("assets: {orders: {uri: shop/orders, watchers: [orders]}}")
    (watcher,) = load_assets(package)["orders"].watchers
    assert watcher.name == "orders"
