"""A wire between a client and its server that can be cut and mended.

    with Wire("127.0.0.1", server.port) as wire:
        client = connect("127.0.0.1", wire.port)
        wire.cut()       # every connection is reset, new ones are refused
        wire.mend()

It runs in a thread of its own, so tests of blocking and of asyncio clients use it alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from windsock.testing.processes import LOOPBACK

__all__ = ["Wire"]

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST, as a pulled cable and a dead host do in the end."""


class Wire:
    """Forwards a loopback port to a server; see the module's docstring."""

    def __init__(self, host: str, port: int, *, listen: int = 0) -> None:
        self._target = (host, port)
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="windsock-wire", daemon=True)
        self._thread.start()
        self.port = listen
        """The port to connect to; the same before and after a cut."""
        self._do(self._open())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._do(self._shut())

    def mend(self) -> None:
        """Let connections through again."""
        if self._listener is None:
            self._do(self._open())

    def close(self) -> None:
        """Cut it for good."""
        self._do(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, action: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(action, self._loop).result(30)

    async def _open(self) -> None:
        self._listener = socket.create_server((LOOPBACK, self.port), backlog=1024)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        # Not asyncio's server: what that has accepted when it is closed it forgets, unclosed.
        try:
            near, _ = listener.accept()
        except OSError:  # who was there has gone
            return
        near.setblocking(False)
        task = self._loop.create_task(self._carry(near))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _shut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for end in list(self._ends):
            raw = end.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()
        await asyncio.sleep(0)  # a task that has not begun could not close its connection
        carrying = list(self._carrying)
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    async def _carry(self, near: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=near)
        except BaseException:
            near.close()
            raise
        self._ends.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            self._ends.discard(writer)
            return
        self._ends.add(far_writer)
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # one side is gone, or the wire was cut: so is the other side
        finally:
            for end in (writer, far_writer):
                end.transport.abort()
                self._ends.discard(end)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
