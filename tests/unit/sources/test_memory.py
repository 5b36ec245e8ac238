"""The in-process channel, beyond the source contract."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator

import pytest

from windsock.events import Event, SourceError
from windsock.sources.memory import Channel, MemoryConfig, MemorySource, channel
from windsock.testing.sources import Reader


@pytest.fixture
def orders() -> Channel:
    """A channel of the test's own."""
    return channel(str(uuid.uuid4()))


@pytest.fixture
async def source(orders: Channel) -> AsyncIterator[MemorySource]:
    """A connected source on that channel."""
    source = MemorySource(MemoryConfig(channel=orders.name))
    await source.connect(None)
    async with asyncio.timeout(30):
        yield source
    await source.close()


def events(*numbers: int) -> list[Event]:
    """Events with these ids."""
    return [Event.make(id=n, source="test", type="test.made") for n in numbers]


def test_a_name_is_one_channel(orders: Channel) -> None:
    """The same name gives the same channel, another name another one."""
    assert channel(orders.name) is orders
    assert channel(orders.name + "x") is not orders


async def test_drained_returns_when_all_is_acked(orders: Channel, source: MemorySource) -> None:
    """Delivered is not enough: the channel is drained by the last ack."""
    orders.put(*events(1, 2))
    drained = asyncio.create_task(orders.drained())
    delivery = await Reader(source).next()
    assert not drained.done()
    assert orders.lag == 2
    await delivery.ack()
    await drained
    assert orders.lag == 0
    assert orders.acked == events(1, 2)


async def test_a_waiting_read_fails_when_told_to(orders: Channel, source: MemorySource) -> None:
    """An ordered failure reaches the read that waits, once; the next connect works."""
    waiting = asyncio.create_task(Reader(source).next())
    orders.fail_next(SourceError("away: come back"))
    with pytest.raises(SourceError, match="away"):
        await waiting
    await source.connect(None)
    orders.put(*events(1))
    assert (await Reader(source).next()).events == events(1)


async def test_failures_come_in_their_order(orders: Channel, source: MemorySource) -> None:
    """Several ordered failures are raised one per connect."""
    orders.fail_next(SourceError("first"))
    orders.fail_next(SourceError("second"))
    for message in ("first", "second"):
        with pytest.raises(SourceError, match=message):
            await source.connect(None)
    await source.connect(None)


async def test_the_ack_of_a_stale_delivery_is_void(orders: Channel, source: MemorySource) -> None:
    """An ack that comes after a reconnect does not confirm what is out again."""
    orders.put(*events(1))
    stale = await Reader(source).next()
    await source.connect(None)
    again = await Reader(source).next()
    await stale.ack()
    assert orders.acked == []
    await again.ack()
    assert orders.acked == events(1)


async def test_redelivery_keeps_the_place(orders: Channel, source: MemorySource) -> None:
    """What was not acked comes before what was put later, in the old order."""
    reader = Reader(source)
    for n in (1, 2):
        orders.put(*events(n))
        await reader.next()
    orders.put(*events(3))
    await source.connect(None)
    assert (await Reader(source).next()).events == events(1, 2, 3)


async def test_put_from_another_thread(orders: Channel, source: MemorySource) -> None:
    """A put in any thread wakes the read in its event loop."""
    waiting = asyncio.create_task(Reader(source).next())
    thread = threading.Thread(target=orders.put, args=events(1))
    thread.start()
    assert (await waiting).events == events(1)
    thread.join()


async def test_clear_forgets_everything(orders: Channel, source: MemorySource) -> None:
    """A cleared channel has no events, no failures and nothing acked."""
    orders.put(*events(1, 2))
    await (await Reader(source).next()).ack()
    orders.put(*events(3))
    orders.fail_next(SourceError("never raised"))
    orders.clear()
    await source.connect(None)
    assert orders.lag == 0
    assert orders.acked == []
