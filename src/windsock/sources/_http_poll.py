"""One connection of an HTTP source: asks, keeps to what the server allows, and knows what was delivered."""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from windsock import cloudevents
from windsock.events import Event, InvalidEvent, SourceError, normalise, parse_json
from windsock.json_path import MISSING, JsonPath
from windsock.messages import unreadable
from windsock.sources._http_client import Answer, Closed, HttpClient, shown, unless_closed
from windsock.sources.base import Cursor, Delivery

if TYPE_CHECKING:
    from windsock.sources.http import HttpConfig

__all__ = ["Poll", "StatePoll", "content_id", "plain"]

logger = logging.getLogger("windsock.sources.http")

_LONGEST_VALUE = 1000
"""Bytes of a value that the next event tells as the previous one: it is part of the cursor."""


class Poll(ABC):
    """From ``connect`` to ``close``."""

    def __init__(self, options: HttpConfig, client: HttpClient, cursor: Cursor | None) -> None:
        self.options = options
        self.client = client
        known = cursor or {}
        self.unread = cursor is None
        """Whether nothing was ever read here."""
        self._validators: dict[str, str] = known.get("validators") or {}
        self._asked: str | None = known.get("asked")
        """The address that the validators belong to, as a digest: a parameter in it may be secret."""
        self._ahead: list[Answer | None] = []
        self._closed = asyncio.Event()
        self._not_before = 0.0

    @abstractmethod
    def deliveries(self) -> AsyncIterator[Delivery]:
        """What one poll brings; raises :class:`Closed`."""

    def first_url(self) -> httpx.URL:
        """The address that a poll begins with."""
        return self.client.url(self.options.endpoint, self.options.params)

    async def ask_first(self) -> None:
        """Ask once, so that whoever connects learns what is wrong; the answer is kept for the first poll."""
        self._ahead = [await self._ask_whether_changed()]

    async def first(self) -> Answer | None:
        """The first answer of a poll; None if nothing changed or the server wants to be left alone."""
        return self._ahead.pop() if self._ahead else await self._ask_whether_changed()

    async def next(self, url: httpx.URL) -> Answer:
        """Another answer of the same poll, as soon as the server allows it."""
        while True:
            await self.wait(0)
            answer = await self._ask(url, {})
            if not _limited(answer):
                return answer

    async def wait(self, seconds: float) -> None:
        """Wait so long, and as long as the server asked for; raises :class:`Closed` at once when closed."""
        until = max(asyncio.get_running_loop().time() + seconds, self._not_before)
        try:
            async with asyncio.timeout_at(until):
                await self._closed.wait()
        except TimeoutError:
            return
        raise Closed

    async def close(self) -> None:
        """End what is being asked and let go of the server."""
        self._closed.set()
        await self.client.aclose()

    def validate(self, answer: Answer) -> None:
        """From now on ask whether something changed since this answer."""
        headers = {"If-None-Match": "etag", "If-Modified-Since": "last-modified"}
        self._validators = {ours: answer.headers[it] for ours, it in headers.items() if it in answer.headers}
        self._asked = content_id(str(answer.url).encode())

    def validators(self) -> Cursor:
        """The part of the cursor that is about conditional requests."""
        return {"validators": self._validators, "asked": self._asked} if self._validators else {}

    def document(self, answer: Answer) -> Any:
        """The JSON of an answer; one that is none is the server's mistake, not an event's."""
        if answer.status == httpx.codes.NO_CONTENT:
            return None
        try:
            return parse_json(answer.body)
        except InvalidEvent as error:
            raise SourceError(
                f"{shown(answer.url)} answered what is {error}: check the endpoint, or use mode='change'"
            ) from None

    async def _ask_whether_changed(self) -> Answer | None:
        url = self.first_url()
        same = self._asked == content_id(str(url).encode())
        answer = await self._ask(url, self._validators if same else {})
        return None if _limited(answer) or answer.status == httpx.codes.NOT_MODIFIED else answer

    async def _ask(self, url: httpx.URL, headers: dict[str, str]) -> Answer:
        options = self.options
        answer = await unless_closed(
            self._closed,
            self.client.get(url, headers, max_bytes=options.max_body, within=options.timeout),
        )
        if answer.wait:
            self._not_before = asyncio.get_running_loop().time() + answer.wait
            logger.info("windsock.http.rate_limited url=%s wait=%.0fs", shown(url), answer.wait)
        return answer


class StatePoll(Poll):
    """Modes ``version`` and ``change``: one thing that has a state."""

    def __init__(self, options: HttpConfig, client: HttpClient, cursor: Cursor | None) -> None:
        super().__init__(options, client, cursor)
        known = cursor or {}
        self._count: int = known.get("count", 0)
        self._state: str | None = known.get("state")
        self._value: Any = known.get("value")
        self._path = JsonPath(options.value) if options.value else None

    async def deliveries(self) -> AsyncIterator[Delivery]:
        answer = await self.first()
        if answer is None:
            return
        state, value, data = await asyncio.to_thread(self._look, answer)
        self.validate(answer)
        if state == self._state:
            return
        quiet, self.unread = self.unread and self.options.start == "latest", False
        previous, self._value, self._state = self._value, value, state
        if quiet:
            yield Delivery([], cursor=self._cursor())
            return
        self._count += 1
        if self._path is not None:
            data = {"value": value, "previous": previous, "body": data}
        yield self._delivery(answer, state, data)

    def _look(self, answer: Answer) -> tuple[str, Any, Any]:
        """What tells this state from the last, the value, and what an event says of it."""
        if self._path is None:
            state = answer.headers.get("etag") or content_id(answer.body)
            try:
                return state, None, cloudevents.data_of(answer.headers.get("content-type"), answer.body)
            except InvalidEvent:
                return state, None, answer.body
        document = self.document(answer)
        value = self._path.find(document)
        if value is MISSING:
            raise SourceError(
                f"{shown(answer.url)} has nothing at {self.options.value!r}: set value to where it stands"
            )
        written = plain(value)
        return content_id(written), value if len(written) <= _LONGEST_VALUE else None, document

    def _delivery(self, answer: Answer, state: str, data: Any) -> Delivery:
        source = shown(answer.url)
        try:
            event = Event.make(
                data,
                id=f"{self._count}-{content_id(state.encode())}",
                source=source,
                type=self.options.type or f"windsock.http.{self.options.mode}",
                time=_last_modified(answer),
                subject=self.options.value,
                datacontenttype=answer.headers.get("content-type") if self._path is None else None,
            )
        except InvalidEvent as error:
            return Delivery([], cursor=self._cursor(), dead=[unreadable(answer.body, error, where=source)])
        return Delivery([event], cursor=self._cursor())

    def _cursor(self) -> Cursor:
        known = {"count": self._count, "state": self._state, "value": self._value}
        return {**known, **self.validators()}


def plain(value: Any) -> bytes:
    """A value of a JSON document in a form that is equal for equal ones."""
    try:
        return msgspec.json.encode(normalise(value), order="sorted")
    except InvalidEvent:
        return repr(value)[:100_000].encode("utf-8", "backslashreplace")


def content_id(content: bytes) -> str:
    """An id made of the content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _limited(answer: Answer) -> bool:
    return answer.status in (429, 503)


def _last_modified(answer: Answer) -> Any:
    try:
        return email.utils.parsedate_to_datetime(answer.headers.get("last-modified", ""))
    except ValueError:
        return None
