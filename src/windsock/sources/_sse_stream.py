"""The text of an event stream (WHATWG HTML, "Server-sent events"), read piece by piece as it arrives.

::

    stream = EventStream(last_id="41")
    stream.feed(b"id: 42\\ndata: hello\\n\\n")      # [ServerEvent(name='message', data='hello', id='42', …)]
"""

from __future__ import annotations

import msgspec

__all__ = ["EventStream", "ServerEvent"]

_BOM = b"\xef\xbb\xbf"


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream."""

    data: bytes
    name: str = "message"
    last_id: str = ""
    """The last id that the stream gave, with this event or before."""
    own: bool = False
    """Whether the id is this event's own."""
    cut: bool = False
    """Whether it was larger than allowed; ``data`` is then its beginning."""


class EventStream:
    """Reads one connection's stream; :attr:`retry` and :attr:`last_id` are for the next connection."""

    def __init__(self, *, last_id: str = "", max_bytes: int = 20_000_000) -> None:
        self.last_id = last_id
        self.retry: float | None = None
        """Seconds to wait before connecting again, if the server said."""
        self._max = max_bytes
        self._parts: list[bytes] = []
        self._length = 0
        self._began = False
        self._after_return = False
        self._id = last_id
        self._reset()

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that this piece completes."""
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
        self._after_return = piece.endswith(b"\r")
        lines = piece.splitlines(keepends=True)
        events: list[ServerEvent] = []
        for line in lines:
            self._extend(line)
            if line.endswith((b"\n", b"\r")):
                event = self._take(b"".join(self._parts).rstrip(b"\r\n"))
                self._parts, self._length = [], 0
                if event is not None:
                    events.append(event)
        return events

    def _extend(self, part: bytes) -> None:
        """A line that is too long loses its end, so that no server can fill the memory."""
        room = self._max - self._length
        if len(part.rstrip(b"\r\n")) > room:
            self._cut = True
            part = part[:room]
        self._parts.append(part)
        self._length += len(part)

    def _take(self, line: bytes) -> ServerEvent | None:
        if not self._began:
            self._began = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._add(value)
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
                self._own = True
            case b"retry" if value.isdigit() and len(value) < 10:
                self.retry = int(value) / 1000
        return None

    def _add(self, value: bytes) -> None:
        if self._size + len(value) > self._max:
            self._cut = True
        else:
            self._data.append(value)
            self._size += len(value) + 1

    def _dispatch(self) -> ServerEvent | None:
        """A blank line ends an event; one without data only sets the id."""
        self.last_id = self._id
        event: ServerEvent | None = None
        if self._data or self._cut:
            event = ServerEvent(
                data=b"\n".join(self._data),
                name=self._name or "message",
                last_id=self._id,
                own=self._own,
                cut=self._cut,
            )
        self._reset()
        return event

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._own = False
        self._cut = False
