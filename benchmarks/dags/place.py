"""Where the benchmark and its Dags leave notes for each other: files in one folder, each written whole.

A *signal* ``signals/<door>/<n>`` makes event ``n`` of a door happen; it holds one number. A *note*
``notes/<name>`` holds what a trigger, a source or a task has to say.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

__all__ = ["POLL", "folder", "note", "put", "read_note", "signals"]

POLL = 0.05
"""Seconds between two looks for a signal, the same for stock Airflow and for Windsock."""


def folder() -> Path:
    """The folder that the benchmark names in the environment."""
    return Path(os.environ["WINDSOCK_BENCH_FOLDER"])


def put(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid.uuid4().hex}")
    draft.write_text(text)
    draft.rename(path)


def note(name: str, text: object) -> None:
    """Leave a note."""
    put(folder() / "notes" / name, str(text))


def read_note(place: Path, name: str) -> float | None:
    """The number that a note holds, or None if nobody has left it yet."""
    try:
        return float((place / "notes" / name).read_text())
    except FileNotFoundError:
        return None


async def signals(door: Path, after: int) -> AsyncIterator[tuple[int, float]]:
    """The signals of a door as they are made: number and content."""
    n = after + 1
    while True:
        try:
            content = (door / str(n)).read_text()
        except FileNotFoundError:
            await asyncio.sleep(POLL)
            continue
        yield n, float(content)
        n += 1
