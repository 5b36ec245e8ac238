"""Reading a public document: what its server may do, and that it is read no more often than needed."""

from __future__ import annotations

import httpx
import pytest

from endpoint import Endpoint, Reply
from windsock.gateway import documents
from windsock.gateway.documents import Documents, DocumentUnavailable, fetch


async def test_it_is_read() -> None:
    """The body of a plain answer is the document."""
    with Endpoint(Reply(b"-----BEGIN")) as endpoint:
        assert await fetch(endpoint.url) == b"-----BEGIN"


@pytest.mark.parametrize(
    "reply",
    [Reply("x", status=404), Reply("", status=302, headers={"Location": "/other"}), Reply(b"x" * 200)],
    ids=["missing", "elsewhere", "large"],
)
async def test_it_is_not_read(reply: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, a redirect and a huge answer are no document."""
    monkeypatch.setattr(documents, "MAX_BYTES", 100)
    with Endpoint(reply) as endpoint, pytest.raises(DocumentUnavailable):
        await fetch(endpoint.url)
    assert len(endpoint.requests) == 1


async def test_a_server_that_drops_us() -> None:
    """A connection that breaks is an error, not an empty document."""
    with Endpoint(Reply(drop=True)) as endpoint, pytest.raises(httpx.HTTPError):
        await fetch(endpoint.url)


async def test_memory_is_bounded() -> None:
    """Many addresses do not fill the memory, and each is read again when its time is over."""
    asked: list[str] = []
    now = 0.0

    async def read(url: str) -> bytes:
        asked.append(url)
        return url.encode()

    known = Documents(read, clock=lambda: now)
    for number in range(250):
        assert await known.get(f"https://example.com/{number}") == f"https://example.com/{number}".encode()
    assert len(known._known) <= 100
    await known.get("https://example.com/249")
    assert len(asked) == 250
    now = 3600.0
    await known.get("https://example.com/249")
    assert len(asked) == 251
