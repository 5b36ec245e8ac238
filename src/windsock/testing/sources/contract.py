"""What every source does, one behaviour a test."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import pytest

from windsock.log.records import State
from windsock.sources.base import MAX_DELIVERY, Source
from windsock.testing.sources.hooks import DAG, WATCHER, Reader, SourceHooks, Through

__all__ = ["MalformedInput", "MessageContract", "SourceContract"]


class SourceContract(SourceHooks):
    """What every source does."""

    burst: int = 10_000
    max_cursor: int = 16_000
    """Bytes that a cursor may have as JSON after a burst: it is written with every append."""

    async def test_delivers_everything(self) -> None:
        """What was there before and what comes while it reads arrives, once each, in the promised order."""
        produced = await self._before(5)
        async with self.reading() as reader:
            await reader.read(len(produced))
            produced += await self.produce(5)
            events = await reader.read(len(produced))
        self.check(events, produced)

    async def test_waits_for_the_first_event(self) -> None:
        """A read that finds nothing waits, and gets what comes later."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.read(1))
            await asyncio.wait({waiting}, timeout=0.05)
            produced = await self.produce(1)
            events = await waiting
        self.check(events, produced)

    async def test_resumes_behind_what_was_acked(self) -> None:
        """A new source at the committed cursor delivers what came since, and nothing that was acked."""
        async with self.reading() as reader:
            await self._produce_and_read(reader, 5)
            cursor = reader.cursor()
        later = await self._before(5)
        async with self.reading(cursor) as reader:
            later += await self.produce(1)
            events = await reader.read(len(later))
        self.check(events, later)

    async def test_redelivers_what_was_not_acked(self) -> None:
        """After a crash between delivery and commit the same events come again, under the same ids.

        A source that promises at most once goes on with what comes after.
        """
        async with self.reading() as reader:
            await self._produce_and_read(reader, 3)
            cursor = reader.cursor()
            unacked = await self.produce(3)
            first = await reader.glimpse()
        async with self.reading(cursor) as reader:
            if self.guarantees.delivery == "at most once":
                unacked, first = [], []
            await reader.read(len(unacked))
            again = {event.id for event in reader.events}
            sentinel = await self.produce(1)
            events = await reader.read(len(unacked) + 1)
        self.check(events, unacked + sentinel)
        if self.guarantees.once != "never":
            assert again >= {event.id for event in first}

    async def test_redelivers_from_the_start(self) -> None:
        """A crash before the very first commit loses nothing, unless at most once is all that is promised."""
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.glimpse()
        if self.guarantees.delivery == "at most once":
            produced = []
        async with self.reading() as reader:
            produced += await self.produce(1)
            again = await reader.read(len(produced))
        self.check(again, produced)

    async def test_the_same_source_reconnects(self) -> None:
        """A source that was closed can be connected again, where it left off."""
        async with self.reading() as reader:
            await self._produce_and_read(reader, 2)
            await reader.source.close()
            await reader.source.connect(reader.cursor())
            again = Reader(reader.source)
            waiting = asyncio.create_task(again.read(2))
            await asyncio.wait({waiting}, timeout=0.05)
            produced = await self.produce(2)
            events = await waiting
        self.check(events, produced)

    async def test_takes_a_burst(self) -> None:
        """A burst arrives whole and in the promised order, in deliveries and cursors of bounded size."""
        async with self.reading() as reader:
            reading = asyncio.create_task(reader.read(self.burst))
            await asyncio.wait({reading}, timeout=0.05)
            produced = await self.produce(self.burst)
            events = await reading
        self.check(events, produced)
        assert max(len(delivery.events) for delivery in reader.deliveries) <= MAX_DELIVERY
        assert max(len(msgspec.json.encode(d.cursor)) for d in reader.deliveries) <= self.max_cursor

    async def test_resumes_in_the_middle_of_a_burst(self) -> None:
        """A crash halfway through a burst: what was acked and what comes after make the burst, once each.

        A source that promises at most once may miss what it had read ahead; nothing comes twice.
        """
        async with self.reading() as reader:
            produced = await self.produce(self.burst)
            acked = list(await reader.read(self.burst // 2))
            cursor = reader.cursor()
            if len(acked) < self.burst:
                await reader.next()
        if self.guarantees.delivery == "at most once":
            assert len(set(self.identities(acked))) == len(acked)
            return
        async with self.reading(cursor) as reader:
            rest = await reader.read(self.burst - len(acked))
        self.check(acked + rest, produced)

    async def test_reports_lag(self) -> None:
        """The lag counts what waits and falls to nothing when all is acked; a source without says None."""
        async with self.reading() as reader:
            if not self.guarantees.lag:
                assert await reader.source.lag() is None
                return
            await self.produce(5)
            assert await self._lag(reader.source, 5) == 5
            await reader.read(5)
            assert await self._lag(reader.source, 0) == 0

    async def test_pauses_and_goes_on(self) -> None:
        """Past the high-water mark the source stands still; when the backlog is worked off it goes on."""
        async with self.running(high_water=20, low_water=5) as through:
            await through.until(lambda: through.log.health()[0].state == "running")
            produced = await self.produce(30)
            await through.until(lambda: through.log.health()[0].state == "paused")
            produced += await self.produce(2)
            await self._work_off(through)
            events = await through.stored(len(produced))
        self.check(events, produced)

    async def test_closes_in_the_middle_of_a_read(self) -> None:
        """Close returns while a read waits, ends that read without an error, and may be called twice."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.next())
            await asyncio.wait({waiting}, timeout=0.05)
            await reader.source.close()
            await reader.source.close()
            with pytest.raises(StopAsyncIteration):
                await waiting

    async def test_closes_after_a_cancelled_read(self) -> None:
        """A read that is cancelled leaves a source that can be closed and read by the next one."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.next())
            await asyncio.wait({waiting}, timeout=0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with self.reading() as reader:
            produced = await self.produce(1)
            events = await reader.read(1)
        self.check(events, produced)

    async def test_closes_before_it_is_connected(self) -> None:
        """Close is safe on a source that never reached its system."""
        await (await self.make()).close()

    async def _before(self, count: int) -> list[str]:
        """Produce while nobody reads, if the system keeps what nobody reads."""
        return [] if self.guarantees.position == "none" else await self.produce(count)

    async def _produce_and_read(self, reader: Reader, count: int) -> None:
        await self.produce(count)
        await reader.read(count)

    async def _work_off(self, through: Through) -> None:
        """Settle everything that is stored, as runs of a Dag do."""
        run = 0
        while through.log.health()[0].backlog > 5:
            run += 1
            claimed = await asyncio.to_thread(through.log.claim, [WATCHER], DAG, f"run-{run}")
            assert claimed, f"nothing to claim, but the backlog is not {State.DONE}"
            await asyncio.to_thread(through.log.settle, DAG, f"run-{run}", ok=True)

    async def _lag(self, source: Source, expected: int) -> int | None:
        """The lag, once it is as expected; a source gives no signal that it changed."""
        while (lag := await source.lag()) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return lag


class MalformedInput(SourceHooks):
    """For systems in which something can lie that is no event."""

    @abstractmethod
    async def produce_malformed(self) -> bytes:
        """Put one thing into the system that cannot become an event; bytes that its dead letter shows."""

    async def test_malformed_input_becomes_a_dead_letter(self) -> None:
        """What cannot become an event is set aside with its reason, and its neighbours go on."""
        async with self.reading() as reader:
            produced = await self.produce(1)
            body = await self.produce_malformed()
            produced += await self.produce(1)
            await reader.until(lambda reader: len(reader.events) >= 2 and bool(reader.dead))
        self.check(reader.events, produced)
        (dead,) = reader.dead
        assert body in dead.body
        assert dead.reason

    async def test_malformed_input_is_acked(self) -> None:
        """What was set aside does not come back: it is in the dead letters, once."""
        async with self.reading() as reader:
            body = await self.produce_malformed()
            await reader.until(lambda reader: bool(reader.dead))
            cursor = reader.cursor()
        async with self.reading(cursor) as reader:
            produced = await self.produce(1)
            await reader.read(1)
        self.check(reader.events, produced)
        assert [dead for dead in reader.dead if body in dead.body] == []


class MessageContract(SourceContract, MalformedInput):
    """For sources of messages: they have a body of any size and, mostly, a key."""

    large: int = 900_000
    """Bytes of a large message; less where the system allows less."""

    @abstractmethod
    async def produce_large(self, size: int) -> str:
        """Put one message with so many bytes of body into the system; its identity."""

    @abstractmethod
    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        """Put one message per key into the system, in this order; their identities."""

    async def test_takes_a_large_message(self) -> None:
        """A large message arrives whole, and its neighbours with it."""
        async with self.reading() as reader:
            produced = await self.produce(1)
            produced.append(await self.produce_large(self.large))
            produced += await self.produce(1)
            events = await reader.read(3)
        self.check(events, produced)
        assert max(len(event.encode()) for event in events) >= self.large

    async def test_keeps_the_order_of_each_key(self) -> None:
        """Events of one key arrive in the order in which they were sent, unless no order is promised."""
        keys = [f"key-{number % 7}" for number in range(210)]
        async with self.reading() as reader:
            produced = await self.produce_keyed(keys)
            events = await reader.read(len(produced))
        assert sorted(self.identities(events)) == sorted(produced)
        if self.guarantees.order == "none":
            return
        sent, got = defaultdict(list), defaultdict(list)
        key_of = dict(zip(produced, keys, strict=True))
        for identity in produced:
            sent[key_of[identity]].append(identity)
        for identity in self.identities(events):
            got[key_of[identity]].append(identity)
        assert got == sent
