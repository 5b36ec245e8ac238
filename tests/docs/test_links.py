"""Links between the project's pages lead somewhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.pages import ROOT, anchors, links, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    """Every relative link names an existing file, and its anchor a heading of that file."""
    broken = []
    for target in links(page):
        place, _, anchor = unquote(target).partition("#")
        path = (page.parent / place).resolve() if place else page
        if not path.exists() or not path.is_relative_to(ROOT):
            broken.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(path):
            broken.append(f"{target}: {path.name} has no such heading")
    assert broken == []
