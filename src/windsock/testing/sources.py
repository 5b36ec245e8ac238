"""The contract suite for sources: subclass it, give the hooks, and pytest proves the behaviours.

::

    class TestMine(SourceContract, MalformedInput, MissingSystem):
        @pytest.fixture(autouse=True)
        def system(self, tmp_path): ...              # the system that is read, fresh for every test

        async def make(self): ...                    # a new source on it, as a restarted process makes one
        async def produce(self, count): ...          # put events there, return their identities in order

Every behaviour of :mod:`windsock.sources.base` is one test. :class:`MalformedInput` and
:class:`MissingSystem` are apart for systems that can have neither. The suite runs on a real event loop and
real time, but asserts no durations: ``patience`` only ends a test that would hang. Needs ``pytest-asyncio``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from windsock.events import DeadLetter, Event, SourceError
from windsock.sources.base import MAX_DELIVERY, Cursor, Delivery, Source

__all__ = ["MalformedInput", "MissingSystem", "Reader", "SourceContract"]


class Reader:
    """Drives a source the way the runner does: read, commit the cursor, ack."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.events: list[Event] = []
        self.dead: list[DeadLetter] = []
        self.deliveries: list[Delivery] = []
        self._stream = source.read()

    async def next(self) -> Delivery:
        """One more delivery, not acked."""
        delivery = await anext(self._stream)
        self.deliveries.append(delivery)
        self.events.extend(delivery.events)
        self.dead.extend(delivery.dead)
        return delivery

    async def until(self, enough: Callable[[Reader], bool], *, ack: bool = True) -> Reader:
        """Read on until ``enough`` says so, acking each delivery unless told not to."""
        while not enough(self):
            delivery = await self.next()
            if ack:
                await delivery.ack()
        return self

    async def read(self, count: int, *, ack: bool = True) -> list[Event]:
        """Read on until ``count`` events are there; all the events so far."""
        await self.until(lambda reader: len(reader.events) >= count, ack=ack)
        return self.events

    def cursor(self, before: Cursor | None = None) -> Cursor | None:
        """The last cursor that came, through JSON as the log stores it; else the one ``before``."""
        for delivery in reversed(self.deliveries):
            if delivery.cursor is not None:
                cursor: Cursor = msgspec.json.decode(msgspec.json.encode(delivery.cursor))
                return cursor
        return before


class _Hooks(ABC):
    """What the author of a source provides."""

    patience: float = 60.0
    """Seconds after which a test is given up."""

    @abstractmethod
    async def make(self) -> Source:
        """A new source on the test's system, as a restarted process would make it."""

    @abstractmethod
    async def produce(self, count: int) -> list[str]:
        """Put ``count`` more events into the system; their identities, in the order they must come."""

    def identity(self, event: Event) -> str:
        """What ``produce`` returned for this event; by default its id."""
        return event.id

    def identities(self, events: list[Event]) -> list[str]:
        """The identity of each event."""
        return [self.identity(event) for event in events]

    @asynccontextmanager
    async def reading(self, cursor: Cursor | None = None) -> AsyncIterator[Reader]:
        """A new source, connected at the cursor, read inside and closed after."""
        async with asyncio.timeout(self.patience):
            source = await self.make()
            await source.connect(cursor)
            try:
                yield Reader(source)
            finally:
                await source.close()


class SourceContract(_Hooks):
    """What every source does."""

    burst: int = 10_000
    max_cursor: int = 16_000
    """Bytes that a cursor may have as JSON after a burst: it is written with every append."""

    async def test_delivers_everything_in_order(self) -> None:
        """What was there before and what comes while it reads arrives, once each, in order."""
        produced = await self.produce(5)
        async with self.reading() as reader:
            await reader.read(5)
            produced += await self.produce(5)
            events = await reader.read(10)
        assert self.identities(events) == produced

    async def test_waits_for_the_first_event(self) -> None:
        """A read that finds nothing waits, and gets what comes later."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.read(1))
            produced = await self.produce(1)
            events = await waiting
        assert self.identities(events) == produced

    async def test_resumes_behind_what_was_acked(self) -> None:
        """A new source at the committed cursor delivers what came since, and nothing that was acked."""
        await self.produce(5)
        async with self.reading() as reader:
            await reader.read(5)
            cursor = reader.cursor()
        later = await self.produce(5)
        async with self.reading(cursor) as reader:
            events = await reader.read(5)
        assert self.identities(events) == later

    async def test_redelivers_what_was_not_acked(self) -> None:
        """After a crash between delivery and commit the same events come again, under the same ids."""
        await self.produce(3)
        async with self.reading() as reader:
            await reader.read(3)
            cursor = reader.cursor()
            unacked = await self.produce(3)
            await reader.read(6, ack=False)
            first = reader.events[3:]
        async with self.reading(cursor) as reader:
            again = await reader.read(3)
            sentinel = await self.produce(1)
            events = await reader.read(4)
        assert self.identities(events) == unacked + sentinel
        assert [event.id for event in again[:3]] == [event.id for event in first]

    async def test_redelivers_from_the_start(self) -> None:
        """A crash before the very first commit loses nothing."""
        produced = await self.produce(3)
        async with self.reading() as reader:
            first = list(await reader.read(3, ack=False))
        async with self.reading() as reader:
            again = await reader.read(3)
        assert self.identities(again) == produced
        assert [event.id for event in again] == [event.id for event in first]

    async def test_the_same_source_reconnects(self) -> None:
        """A source that was closed can be connected again, where it left off."""
        produced = await self.produce(2)
        async with self.reading() as reader:
            await reader.read(2)
            await reader.source.close()
            await reader.source.connect(reader.cursor())
            produced = await self.produce(2)
            events = await Reader(reader.source).read(2)
        assert self.identities(events) == produced

    async def test_takes_a_burst(self) -> None:
        """A burst arrives whole and in order, in deliveries and cursors of bounded size."""
        produced = await self.produce(self.burst)
        async with self.reading() as reader:
            events = await reader.read(self.burst)
        assert self.identities(events) == produced
        assert max(len(delivery.events) for delivery in reader.deliveries) <= MAX_DELIVERY
        assert max(len(msgspec.json.encode(d.cursor)) for d in reader.deliveries) <= self.max_cursor

    async def test_resumes_in_the_middle_of_a_burst(self) -> None:
        """A crash halfway through a burst: what was acked and what comes after make the burst, once each."""
        produced = await self.produce(self.burst)
        async with self.reading() as reader:
            acked = list(await reader.read(self.burst // 2))
            cursor = reader.cursor()
            if len(acked) < self.burst:
                await reader.next()
        async with self.reading(cursor) as reader:
            rest = await reader.read(self.burst - len(acked))
        assert self.identities(acked + rest) == produced

    async def test_reports_lag(self) -> None:
        """The lag counts what waits and falls to nothing when all is acked; a source may say None."""
        await self.produce(5)
        async with self.reading() as reader:
            assert await self._lag(reader.source, 5) in (5, None)
            await reader.read(5)
            assert await self._lag(reader.source, 0) in (0, None)

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
        produced = await self.produce(1)
        async with self.reading() as reader:
            events = await reader.read(1)
        assert self.identities(events) == produced

    async def test_closes_before_it_is_connected(self) -> None:
        """Close is safe on a source that never reached its system."""
        await (await self.make()).close()

    async def _lag(self, source: Source, expected: int) -> int | None:
        """The lag, once it is as expected or None; a source gives no signal that it changed."""
        while (lag := await source.lag()) not in (expected, None):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return lag


class MalformedInput(_Hooks):
    """For systems in which something can lie that is no event."""

    @abstractmethod
    async def produce_malformed(self) -> bytes:
        """Put one thing into the system that cannot become an event; bytes that its dead letter shows."""

    async def test_malformed_input_becomes_a_dead_letter(self) -> None:
        """What cannot become an event is set aside with its reason, and its neighbours go on."""
        produced = await self.produce(1)
        body = await self.produce_malformed()
        produced += await self.produce(1)
        async with self.reading() as reader:
            await reader.until(lambda reader: len(reader.events) >= 2 and bool(reader.dead))
        assert self.identities(reader.events) == produced
        (dead,) = reader.dead
        assert body in dead.body
        assert dead.reason


class MissingSystem(_Hooks):
    """For systems that can be away."""

    @abstractmethod
    async def make_missing(self) -> Source:
        """A source whose system is not there."""

    @abstractmethod
    async def restore(self) -> None:
        """Bring that system back."""

    async def test_a_missing_system_is_a_source_error(self) -> None:
        """A system that is away raises SourceError with the remedy after a colon; later it can be reached."""
        async with asyncio.timeout(self.patience):
            source = await self.make_missing()
            with pytest.raises(SourceError, match=r"\S: \S"):
                await source.connect(None)
            await source.close()
            await self.restore()
            await source.connect(None)
            await source.close()
