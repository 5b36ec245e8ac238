"""The project's Markdown pages: their code blocks, the commands in them, their links and anchors."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?$")
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$")


@dataclass(frozen=True)
class Block:
    """A fenced code block. `title` names the file that it shows."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Typed:
    """A command as a reader types it, and the lines that the page shows after it."""

    command: str
    shown: tuple[str, ...]


def pages() -> list[Path]:
    """Every Markdown file of the project; what is hidden or made by a tool is not the project's."""
    found = []
    for folder, below, files in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith(".") and name != "node_modules"]
        found += [Path(folder) / name for name in files if name.endswith(".md")]
    return sorted(found)


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The page's fenced code blocks, all or those of a language."""
    found = []
    opened: re.Match[str] | None = None
    start, inside = 0, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if opened is None:
            opened, start, inside = _FENCE.match(line), number, []
            if opened is None and line.lstrip().startswith("```"):
                raise ValueError(f'{page}:{number}: begin a block with ```language or ```language title="…"')
        elif line == "```":
            text = "".join(f"{row}\n" for row in inside)
            found.append(Block(page, start, opened["language"], opened["title"], text))
            opened = None
        else:
            inside.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{start}: this block has no end")
    return [block for block in found if language in (None, block.language)]


def typed(page: Path) -> list[Typed]:
    """The commands of the page's console blocks, in their order: lines that begin with `$ `."""
    found: list[Typed] = []
    for block in blocks(page, "console"):
        for line in block.text.splitlines():
            if line.startswith("$ "):
                found.append(Typed(line.removeprefix("$ ").partition("  #")[0].rstrip(), ()))
            elif found:
                found[-1] = Typed(found[-1].command, (*found[-1].shown, line))
    return found


def inline_code(page: Path) -> list[str]:
    """What stands between single backticks."""
    return _INLINE.findall(prose(page))


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """The targets of the page's links that stay inside the project."""
    targets = _LINK.findall(_INLINE.sub("", prose(page)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The names of the page's headings as GitHub makes them."""
    names: set[str] = set()
    for line in prose(page).splitlines():
        if heading := _HEADING.match(line):
            plain = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            name, again = plain, 0
            while name in names:
                again += 1
                name = f"{plain}-{again}"
            names.add(name)
    return names
