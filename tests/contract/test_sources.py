"""Every source that needs no server, over the published contract suite."""

from __future__ import annotations

import os
import uuid
from itertools import count
from pathlib import Path

import pytest

from windsock.events import Category, DeadLetter, Event, SourceError
from windsock.sources.files import FilesConfig, FilesSource
from windsock.sources.memory import MemoryConfig, MemorySource, channel
from windsock.testing.sources import MalformedInput, MissingSystem, SourceContract


class TestMemory(SourceContract, MalformedInput, MissingSystem):
    """The in-process channel."""

    @pytest.fixture(autouse=True)
    def system(self) -> None:
        self.channel = channel(str(uuid.uuid4()))

    async def make(self) -> MemorySource:
        return MemorySource(MemoryConfig(channel=self.channel.name))

    async def produce(self, count: int) -> list[str]:
        events = [Event.make({"n": n}, source="test", type="test.made") for n in range(count)]
        self.channel.put(*events)
        return [event.id for event in events]

    async def produce_malformed(self) -> bytes:
        self.channel.put(DeadLetter(stage="source", category=Category.INVALID, reason="no JSON", body=b"{"))
        return b"{"

    async def make_missing(self) -> MemorySource:
        self.channel.fail_next(SourceError("the channel is away: bring it back"))
        return await self.make()

    async def restore(self) -> None:
        """The failure was ordered for one connect only."""


class TestFiles(SourceContract, MissingSystem):
    """A directory of files, remembered by watermark."""

    options: dict[str, tuple[str, ...]] = {}

    @pytest.fixture(autouse=True)
    def system(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "in"
        self.directory.mkdir()
        self.numbers = count()

    async def make(self) -> FilesSource:
        config = FilesConfig(path=str(self.directory), settle=0.05, rescan=0.2, **self.options)
        return FilesSource(config)

    async def produce(self, count: int) -> list[str]:
        names = [f"{next(self.numbers):06}" for _ in range(count)]
        for name in names:
            unfinished = self.directory / f"{name}.tmp"
            unfinished.write_bytes(b"content")
            unfinished.rename(self.directory / name)
        return names

    def identity(self, event: Event) -> str:
        return event.subject or ""

    async def make_missing(self) -> FilesSource:
        os.rmdir(self.directory)
        return await self.make()

    async def restore(self) -> None:
        self.directory.mkdir()


class TestFilesWithDeletions(TestFiles):
    """A directory of files, remembered one by one because deletions are asked for."""

    options = {"events": ("created", "modified", "deleted")}
    max_cursor = 200_000  # it lists every file, which is why deletions have to be asked for
