"""The reference pages of the sources, written from their own docstrings, options and guarantees.

python -m windsock.testing.source_pages            # write docs/reference/sources
python -m windsock.testing.source_pages --check    # say which pages are not up to date
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from windsock.sources import SOURCES, source_class
from windsock.sources.base import Guarantees

__all__ = ["pages"]

FOLDER = Path("docs/reference/sources")
_HIDDEN = {"correlate", "dead_letters", "expect", "memory"}
"""Kinds that are no system of the world: they read the log, or live in one process."""
_ORDER = {"all": "everything", "key": "per key", "none": "none"}
_POSITION = {"log": "in the log", "system": "in the system", "none": "nowhere"}


def pages() -> dict[str, str]:
    """File name → text of every page."""
    kinds = sorted(kind for kind in SOURCES if kind not in _HIDDEN)
    return {"README.md": _table(kinds)} | {f"{kind}.md": _page(kind) for kind in kinds}


def main() -> int:
    """Write the pages, or check them."""
    wanted = pages()
    if "--check" in sys.argv[1:]:
        known = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
        stale = sorted(name for name in {*wanted, *known} if wanted.get(name) != known.get(name))
        for name in stale:
            print(f"{FOLDER / name} is not up to date: run python -m windsock.testing.source_pages")
        return len(stale)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.md"):
        path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, "utf-8")
    print(f"{len(wanted)} pages in {FOLDER}")
    return 0


def _table(kinds: list[str]) -> str:
    rows = [
        "# Sources",
        "What each source promises. Every cell is what the class states as its `guarantees`, and the",
        "contract suite (`windsock.testing.sources`) holds it to exactly that, against the servers of the",
        "last column.",
        "",
        "| kind | delivery | order | position kept | stored once | lag | tested against |",
        "|---|---|---|---|---|---|---|",
    ]
    notes = []
    for kind in kinds:
        stated: Guarantees = source_class(kind).guarantees
        cells = [f"[`{kind}`]({kind}.md)", *_cells(stated).values()]
        rows.append(f"| {' | '.join(cells)} |")
        if stated.notes:
            notes.append(f"- `{kind}`: {stated.notes}")
    legend = [
        "",
        "- *delivery*: *at most once* means that what was read and not yet stored is gone when the reader",
        "  dies.",
        "- *stored once*: whether an event keeps its id when it is delivered again; *with id*: when its",
        "  sender gave it one.",
        "- *lag*: whether the source can tell how much waits in the system.",
        "",
        "## Notes",
    ]
    return "\n".join([*rows, *legend, *notes]) + "\n"


def _page(kind: str) -> str:
    cls = source_class(kind)
    module = importlib.import_module(cls.__module__)
    stated: Guarantees = cls.guarantees
    promises = " · ".join(f"**{name}** {value}" for name, value in _cells(stated).items())
    text = [f"# `{kind}`", promises, "", _markdown(inspect.getdoc(module) or ""), "", "## Options"]
    text += ["| option | type | default | |", "|---|---|---|---|"]
    hints = get_type_hints(cls.config, include_extras=True)
    tuning: frozenset[str] = getattr(cls, "tuning", frozenset())
    for field in msgspec.structs.fields(cls.config):
        hint = hints[field.name]
        described, meta = hint, None
        if hasattr(hint, "__metadata__"):
            described, meta = hint.__origin__, hint.__metadata__[0]
        more = " Changing it keeps the position." if field.name in tuning else ""
        about = _cell(f"{meta.description if meta else ''}{more}")
        text.append(f"| `{field.name}` | {_cell(_type(described))} | {_default(field)} | {about} |")
    text += ["", "The options that every watcher takes stand in `windsock.watchers.EventWatcher`."]
    return "\n".join(text) + "\n"


def _cells(stated: Guarantees) -> dict[str, str]:
    """The guarantees under the names of the table's columns."""
    return {
        "delivery": stated.delivery,
        "order": _ORDER[stated.order],
        "position kept": _POSITION[stated.position],
        "stored once": stated.once,
        "lag": "yes" if stated.lag else "no",
        "tested against": stated.tested,
    }


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{_cell(repr(value))}`"


def _type(hint: Any) -> str:
    """A type as people write it."""
    if hasattr(hint, "__metadata__"):
        return _type(hint.__origin__)
    origin, arguments = get_origin(hint), get_args(hint)
    if str(origin).endswith("Literal"):
        return " or ".join(f"`{value!r}`" for value in arguments)
    if origin is not None and arguments:
        inner = [_type(argument) for argument in arguments if argument not in (type(None), ...)]
        optional = " or none" if type(None) in arguments else ""
        if origin in (list, tuple, set, frozenset):
            return f"list of {inner[0]}"
        if origin is dict:
            return f"{inner[0]} → {inner[1]}"
        return " or ".join(dict.fromkeys(inner)) + optional
    return {"str": "text", "int": "number", "float": "number", "bool": "yes or no"}.get(
        getattr(hint, "__name__", ""), getattr(hint, "__name__", str(hint))
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _markdown(docstring: str) -> str:
    """A docstring's light markup as Markdown: literals, roles, and blocks after ``::``."""
    lines: list[str] = []
    block = False
    waiting = False
    for line in docstring.splitlines():
        if block and line.strip() and not line.startswith("    "):
            while lines[-1] == "":
                lines.pop()
            lines += ["```", ""]
            block = False
        if waiting and line.startswith("    "):
            lines.append("```py" if re.search(r"[=(#]", line) else "```text")
            waiting, block = False, True
        if block:
            lines.append(line.removeprefix("    "))
            continue
        if line.rstrip().endswith("::"):
            waiting = True
            line = line.rstrip()[:-2].rstrip()
            line = f"{line}:" if line else ""
        line = re.sub(r":\w+:`~?([^`]+)`", r"``\1``", line)
        lines.append(line.replace("``", "`"))
    if block:
        lines.append("```")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


if __name__ == "__main__":
    sys.exit(main())
