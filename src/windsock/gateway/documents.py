"""Documents: keys and certificates that a signature names, read from their publisher and remembered.

Whoever asks has checked the address before: a sender must not choose where the server reads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import httpx

from windsock.events import WindsockError

__all__ = ["DocumentUnavailable", "Documents", "Fetch", "fetch"]

logger = logging.getLogger("windsock.gateway.documents")

MAX_BYTES = 1_000_000
_TIMEOUT = 10.0
_MOST = 100

Fetch = Callable[[str], Awaitable[bytes]]
"""Reads an address; raises anything if it cannot."""


class DocumentUnavailable(WindsockError):
    """A key or certificate cannot be read now, so nothing can be checked with it; the log says why."""


async def fetch(url: str) -> bytes:
    """The body that a GET of the address brings: no redirects, a small answer, soon."""
    body = bytearray()
    async with (
        asyncio.timeout(_TIMEOUT),
        httpx.AsyncClient(timeout=_TIMEOUT) as client,
        client.stream("GET", url, follow_redirects=False) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise DocumentUnavailable(f"HTTP {response.status_code}")
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MAX_BYTES:
                raise DocumentUnavailable(f"more than {MAX_BYTES} bytes")
    return bytes(body)


class Documents:
    """Documents by address, each good for ``keep`` seconds; a failure is remembered for ``keep_failure``."""

    def __init__(
        self,
        read: Fetch = fetch,
        *,
        keep: float = 3600.0,
        keep_failure: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._keep = keep
        self._keep_failure = keep_failure
        self._clock = clock
        self._known: dict[str, tuple[float, bytes | None]] = {}
        self._reading = asyncio.Lock()

    async def get(self, url: str, *, older_than: float | None = None) -> bytes:
        """The document; raises :class:`DocumentUnavailable`.

        With ``older_than`` it is read again if it was read more than so many seconds ago.
        """
        async with self._reading:
            read_at, document = self._known.get(url, (float("-inf"), None))
            age = self._clock() - read_at
            keep = (
                self._keep_failure if document is None else self._keep if older_than is None else older_than
            )
            if age >= keep:
                document = await self._ask(url)
            if document is None:
                raise DocumentUnavailable(f"{url} cannot be read")
            return document

    async def _ask(self, url: str) -> bytes | None:
        document: bytes | None = None
        try:
            document = await self._read(url)
        except Exception as error:  # noqa: BLE001 - a client may raise anything
            logger.error(
                "windsock.gateway.document_unavailable url=%s error=%s: %s", url, type(error).__name__, error
            )
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[url] = (self._clock(), document)
        return document
