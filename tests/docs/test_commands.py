"""Commands that the pages name exist, with the options that they are given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.pages import ROOT, inline_code, pages, typed
from windsock.cli import app

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


def named(page: Path, program: str) -> list[tuple[str, list[str]]]:
    """What the page calls of a program: (command, its --options)."""
    calls = [*inline_code(page), *(line.command for line in typed(page))]
    parts = [part for call in calls for part in re.split(r"&&|\|", call)]
    found = [re.match(rf"\s*{program} ([a-z][a-z-]*)(.*)", part) for part in parts]
    return [(match[1], re.findall(r"(?<!\S)--[a-z-]+", match[2])) for match in found if match]


@PAGES
def test_every_make_target_exists(page: Path) -> None:
    """`make X` on a page is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert {target for target, _ in named(page, "make")} <= targets


def commands(group: Any) -> Iterator[tuple[str, set[str]]]:
    """(name, options) of every command; those of a group have them all together."""
    for name, command in group.commands.items():
        inner = [command, *getattr(command, "commands", {}).values()]
        parameters = [parameter for one in inner for parameter in one.params]
        yield name, {flag for one in parameters for flag in (*one.opts, *one.secondary_opts)}


@PAGES
def test_every_windsock_command_exists(page: Path) -> None:
    """`windsock X --option` on a page is a command with that option."""
    known = dict(commands(typer.main.get_command(app)))
    for command, options in named(page, "windsock"):
        assert command in known, f"windsock {command}"
        assert set(options) <= known[command] | {"--help"}, f"windsock {command}"


def test_the_readme_names_what_there_is() -> None:
    """The search for commands finds the README's, so the tests above do not pass for want of any."""
    readme = ROOT / "README.md"
    assert {"demo", "test", "bench"} <= {target for target, _ in named(readme, "make")}
    assert {"status", "events", "explain", "dlq"} <= {command for command, _ in named(readme, "windsock")}
