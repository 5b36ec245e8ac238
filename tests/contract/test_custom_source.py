"""The source of one's own that the page shows, over the suite that it is told to pass."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from windsock.connections import Connection
from windsock.events import Event
from windsock.testing.sources import MalformedInput, Missing, ReaderProcesses, SourceContract


class TestLines(SourceContract, MalformedInput, ReaderProcesses, Missing):
    """A file of JSON lines."""

    kind = "docs.lines:LinesSource"

    @pytest.fixture(autouse=True)
    def system(self, tmp_path: Path) -> None:
        self.file = tmp_path / "orders.jsonl"
        self.file.touch()
        self.numbers = count()

    def options(self) -> dict[str, Any]:
        return {"path": str(self.file), "interval": 0.02}

    async def produce(self, count: int) -> list[str]:
        numbers = [str(next(self.numbers)) for _ in range(count)]
        with self.file.open("a") as file:
            file.writelines(f'{{"n": {number}}}\n' for number in numbers)
        return numbers

    def identity(self, event: Event) -> str:
        return str(event.data["n"])

    async def produce_malformed(self) -> bytes:
        with self.file.open("a") as file:
            file.write('{"n": \n')
        return b'{"n": '

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {"path": str(self.file.with_name("not-there"))}, []
