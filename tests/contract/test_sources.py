"""Every source that needs no server, over the published contract suite."""

from __future__ import annotations

import uuid
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from windsock.connections import Connection
from windsock.events import Category, DeadLetter, Event
from windsock.sources.memory import channel
from windsock.testing.sources import MalformedInput, Missing, ReaderProcesses, SourceContract


class TestMemory(SourceContract, MalformedInput):
    """The in-process channel."""

    kind = "memory"

    @pytest.fixture(autouse=True)
    def system(self) -> None:
        self.channel = channel(str(uuid.uuid4()))

    def options(self) -> dict[str, Any]:
        return {"channel": self.channel.name}

    async def produce(self, count: int) -> list[str]:
        events = [Event.make({"n": n}, source="test", type="test.made") for n in range(count)]
        self.channel.put(*events)
        return [event.id for event in events]

    async def produce_malformed(self) -> bytes:
        self.channel.put(DeadLetter(stage="source", category=Category.INVALID, reason="no JSON", body=b"{"))
        return b"{"


class TestFiles(SourceContract, ReaderProcesses, Missing):
    """A directory of files, remembered by watermark."""

    kind = "files"
    more: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def system(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "in"
        self.directory.mkdir()
        self.numbers = count()

    def options(self) -> dict[str, Any]:
        return {"path": str(self.directory), "settle": 0.05, "rescan": 0.2, **self.more}

    async def produce(self, count: int) -> list[str]:
        names = [f"{next(self.numbers):06}" for _ in range(count)]
        for name in names:
            unfinished = self.directory / f"{name}.tmp"
            unfinished.write_bytes(b"content")
            unfinished.rename(self.directory / name)
        return names

    def identity(self, event: Event) -> str:
        return event.subject or ""

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "path": str(self.directory / "not-there")}, []


class TestFilesWithDeletions(TestFiles):
    """A directory of files, remembered one by one because deletions are asked for."""

    more = {"events": ["created", "modified", "deleted"]}
    max_cursor = 200_000  # it lists every file, which is why deletions have to be asked for
