"""Body cap, rate, memory and backlog: what is too much is refused, and nothing of it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from windsock.gateway import intake


async def test_an_announced_body_is_refused_unread(site: Any) -> None:
    """A Content-Length past the cap is answered with 413 before anything is read."""
    site.watch(max_body=100)
    assert (await site.post(content=b"x" * 100)).status_code == 202
    answer = await site.post(content=b"x" * 101)
    assert (answer.status_code, answer.json()) == (413, {"detail": "the body is larger than 100 bytes"})


async def test_a_chunked_body_is_stopped_at_the_cap(site: Any) -> None:
    """A body that does not announce its size is cut off when it passes the cap, not when it ends."""
    site.watch(max_body=100)
    sent = []

    async def endless() -> AsyncIterator[bytes]:
        for n in range(1_000_000):
            sent.append(n)
            yield b"x" * 30

    answer = await site.post(content=endless())
    assert answer.status_code == 413
    assert len(sent) == 4
    assert site.stored() == []


async def test_a_lying_length_does_not_help(site: Any) -> None:
    """A small Content-Length on a large body is still stopped at the cap."""
    site.watch(max_body=100)

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 101

    answer = await site.post(content=body(), headers={"Content-Length": "5"})
    assert answer.status_code == 413


async def test_a_dawdling_body_is_408(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that stops in the middle of its body does not hold its place for ever."""
    monkeypatch.setattr(intake, "READ_SECONDS", 0.01)
    site.watch()

    async def stalled() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    assert (await site.post(content=stalled())).status_code == 408


async def test_a_sender_that_goes_away(site: Any) -> None:
    """A connection that breaks in the middle of a body stores nothing and gives its memory back."""
    site.watch()
    messages = [
        {"type": "http.request", "body": b"half", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/hooks/orders", "headers": [], "query_string": b""}
    await site.app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert site.stored() == []
    assert site.app.state.gateway._room.held == 0


async def test_compressed_bodies_are_415(site: Any) -> None:
    """A compressed body is not unpacked, because a small one may hold a large one."""
    site.watch()
    assert (await site.post(content=b"x", headers={"Content-Encoding": "gzip"})).status_code == 415
    assert (await site.post(content=b"x", headers={"Content-Encoding": "identity"})).status_code == 202


async def test_rate(site: Any) -> None:
    """Past the burst a sender gets 429 and the time to wait; other watchers are not touched."""
    site.watch(rate=0.01, burst=2)
    site.watch("other")
    answers = [await site.post(json=n) for n in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 100
    assert (await site.post("/hooks/other", json=3)).status_code == 202
    assert site.stored() == [0, 1, 3]


async def test_memory(site: Any) -> None:
    """When the bodies being received fill the room, more are refused with 503; afterwards there is room."""
    site.watch(max_body=1000)
    room = site.app.state.gateway._room
    room.limit = 150
    first_half = asyncio.Event()
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 100
        first_half.set()
        await go_on.wait()

    slow_one = asyncio.create_task(site.post(content=slow()))
    await asyncio.wait_for(first_half.wait(), 5)
    full = await site.post(content=b"x" * 100)
    assert (full.status_code, full.headers["Retry-After"]) == (503, "1")
    go_on.set()
    assert (await slow_one).status_code == 202
    assert (await site.post(content=b"x" * 100)).status_code == 202
    assert room.held == 0


async def test_backlog(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the high-water mark to the low-water mark the sender is asked to keep its events."""
    now = 0.0
    monkeypatch.setattr(site.app.state.gateway._hooks, "_clock", lambda: now)
    site.watch(high_water=3, low_water=2)
    site.log.subscribe("orders", "ship")
    for n in range(3):
        assert (await site.post(json=n)).status_code == 202
    now = 2.0
    full = await site.post(json=3)
    assert (full.status_code, full.headers["Retry-After"]) == (503, "10")
    site.log.claim(["orders"], "ship", "run-1", limit=1)
    site.log.settle("ship", "run-1", ok=True)
    now = 4.0
    assert (await site.post(json=3)).status_code == 503
    site.log.claim(["orders"], "ship", "run-2", limit=1)
    site.log.settle("ship", "run-2", ok=True)
    now = 6.0
    assert (await site.post(json=3)).status_code == 202
