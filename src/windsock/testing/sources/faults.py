"""What a source does when processes are killed, servers go away and settings are wrong.

These run through the real runner into a real log: what counts is what is stored at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from windsock.connections import Connection, fixed
from windsock.events import SourceError
from windsock.sources import make_source
from windsock.testing.processes import Child, tail
from windsock.testing.sources.hooks import SourceHooks, Through
from windsock.testing.wire import Wire

__all__ = ["Missing", "ReaderProcesses", "ServerFaults", "Unreachable", "WrongCredentials"]


class ReaderProcesses(SourceHooks):
    """For every source that another process can read."""

    async def test_killed_between_read_and_commit(self) -> None:
        """A reader that is killed -9 with events in hand: the next one stores them, once each."""
        await self._killed("before_commit")

    async def test_killed_between_commit_and_ack(self) -> None:
        """A reader that is killed -9 after the commit: what comes again is recognised and stored once."""
        await self._killed("after_commit")

    async def test_two_readers(self) -> None:
        """Of two readers one reads, and the other takes over when it is killed -9; nothing comes twice."""
        through = Through(self.new_log())
        with self._reader("first") as first, self._reader("second") as second:
            async with asyncio.timeout(self.patience):
                await through.until(lambda: through.log.health()[0].state == "running")
                produced = await self.produce(20)
                await through.stored(len(produced))
                owner = through.log.health()[0].owner
                (first if owner == "first" else second).kill()
                await through.until(lambda: through.log.health()[0].owner not in (owner, None))
                await through.until(lambda: through.log.health()[0].state == "running")
                produced += await self.produce(20)
                events = await through.stored(len(produced))
        self.check(events, produced)
        through.log.close()

    async def _killed(self, moment: str) -> None:
        through = Through(self.new_log())
        produced: list[str] = []
        async with asyncio.timeout(self.patience):
            with self._reader("first", die=moment) as first:
                await through.until(lambda: through.log.health()[0].state == "running")
                produced += await self.produce(20)
                await through.until(lambda: first.returncode is not None)
                assert first.returncode == -9, tail(self.directory_of_log / "first.log")
            if self.guarantees.delivery == "at most once":
                produced = self.identities(await asyncio.to_thread(through.events))
            with self._reader("second"):
                await through.until(lambda: through.log.health()[0].owner == "second")
                await through.until(lambda: through.log.health()[0].state == "running")
                produced += await self.produce(5)
                events = await through.stored(len(produced))
        self.check(events, produced)
        through.log.close()

    @contextmanager
    def _reader(self, owner: str, die: str = "") -> Iterator[Child]:
        """A reader in a process of its own; ``die`` names the moment of its first append to be killed at."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for connection in self.connections():
            fields = msgspec.structs.asdict(connection)
            fields.pop("hook")
            env[f"AIRFLOW_CONN_{connection.conn_id.upper()}"] = json.dumps(fields)
        arguments = [self.kind, json.dumps(self.options()), str(self.directory_of_log / "log.db"), owner, die]
        child = Child(
            [sys.executable, "-m", "windsock.testing.sources.reader", *arguments],
            log=self.directory_of_log / f"{owner}.log",
            env=env,
        )
        try:
            yield child
        finally:
            child.end()


class ServerFaults(SourceHooks):
    """For sources with a server behind a connection."""

    wire: Wire
    """What the source's Connection leads through."""

    @abstractmethod
    async def restart_server(self) -> None:
        """Kill the server and start it again, with what it keeps on disk."""

    async def cut(self) -> None:
        """Cut every connection to the server, and let no new one through."""
        await asyncio.to_thread(self.wire.cut)

    async def mend(self) -> None:
        """Let connections through again."""
        await asyncio.to_thread(self.wire.mend)

    async def test_survives_a_restart_of_the_server(self) -> None:
        """Reading goes on by itself when the server comes back, and nothing is missing."""
        async with self.running() as through:
            await through.until(lambda: through.log.health()[0].state == "running")
            produced = await self.produce(10)
            await through.stored(len(produced))
            await self.restart_server()
            await through.until(lambda: through.log.health()[0].state == "running")
            events, produced = await self._go_on(through, produced)
        self.check(events, produced)

    async def test_survives_a_cut_connection(self) -> None:
        """Reading goes on by itself when the connection is mended, and nothing is missing."""
        async with self.running() as through:
            await through.until(lambda: through.log.health()[0].state == "running")
            produced = await self.produce(10)
            await through.stored(len(produced))
            await self.cut()
            await through.failing()
            await self.mend()
            await through.until(lambda: through.log.health()[0].state == "running")
            events, produced = await self._go_on(through, produced)
        self.check(events, produced)

    async def _go_on(self, through: Through, produced: list[str]) -> tuple[list[Any], list[str]]:
        """Produce until something arrives again, then a last few that must all be there.

        A system that keeps nothing for a reader who is away may miss what was sent before it was back.
        """
        if self.guarantees.position == "none":
            stored = len(produced)
            while len(through.events()) <= stored:
                await self.produce(1)
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
            produced = self.identities(through.events())
        produced = produced + await self.produce(10)
        return await through.stored(len(produced)), produced


class _Misconfigured(SourceHooks):
    """A source that cannot connect says why and what to do, and is retried, with its health showing it."""

    async def refuses(self, options: dict[str, Any], connections: Sequence[Connection]) -> None:
        secrets = [connection.password for connection in connections if connection.password]
        async with asyncio.timeout(self.patience):
            source = make_source(self.kind, options, fixed(*connections))
            with pytest.raises(SourceError, match=r"(?s)\S: \S") as refused:
                await source.connect(None)
            await source.close()
        async with self.running(connections=connections, options=options) as through:
            shown = await through.failing()
            await through.until(lambda: through.log.health()[0].state == "backoff")
        assert shown.startswith("SourceError: ")
        assert not [secret for secret in secrets if secret in f"{refused.value} {shown}"]


class Unreachable(_Misconfigured):
    """For systems behind an address."""

    @abstractmethod
    def unreachable(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        """Options and Connections with an address where nobody answers."""

    async def test_an_unreachable_host(self) -> None:
        """A host that does not answer is a SourceError with the remedy, retried and shown in health."""
        await self.refuses(*self.unreachable())


class WrongCredentials(_Misconfigured):
    """For systems that ask who we are."""

    @abstractmethod
    def wrong_credentials(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        """Options and Connections with a password that is not the right one."""

    async def test_wrong_credentials(self) -> None:
        """A refused login is a SourceError with the remedy and without the secret, shown in health."""
        await self.refuses(*self.wrong_credentials())


class Missing(_Misconfigured):
    """For systems in which the queue, topic, bucket, table or directory may not be there."""

    @abstractmethod
    def missing(self) -> tuple[dict[str, Any], Sequence[Connection]]:
        """Options and Connections that name something which does not exist."""

    async def test_something_missing(self) -> None:
        """A queue, topic, bucket or table that is not there is a SourceError with the remedy."""
        await self.refuses(*self.missing())
