"""Webhooks and CloudEvents over HTTP, received by the gateway inside Airflow's API server.

Events are pushed by their senders to ``POST /windsock/hooks/<watcher>`` or ``POST /windsock/events``, so this
source has nothing to read: it holds the watcher's options, and the gateway does the receiving.

Delivery: at least once. The sender gets its answer only after the log committed, and sends again if it got
none. A delivery id (``id_header`` or ``Idempotency-Key``) makes the second attempt a duplicate; without one
every request is a new event. Position: none, the sender keeps it.

::

    WatcherSpec(
        name="orders",
        kind="webhook",
        options={"auth": "hmac", "conn_id": "orders_webhook", "id_header": "X-Shop-Delivery"},
    )
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["WebhookConfig", "WebhookSource"]

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WITH_SECRET = ("hmac", "bearer", "basic")


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may send, and how a request becomes an event."""

    auth: Annotated[
        Literal["hmac", "bearer", "basic", "airflow", "none"],
        Meta(
            description="How a sender proves itself: 'hmac' signs each body, 'bearer' and 'basic' send a "
            "secret, 'airflow' sends an Airflow API token, 'none' lets everybody in. There is no default: "
            "an open door must be asked for by name."
        ),
    ]
    conn_id: Annotated[
        str | None,
        Meta(
            description="Airflow Connection that holds the secret: its password is the HMAC secret or the "
            "bearer token; for 'basic' its login and password. A change of the secret counts within 30 s."
        ),
    ] = None
    header: Annotated[str, Meta(description="Header that carries the HMAC-SHA256 signature in hex.")] = (
        "X-Windsock-Signature"
    )
    prefix: Annotated[str, Meta(description="Text before the hex digits of the signature.")] = "sha256="
    timestamp_header: Annotated[
        str | None,
        Meta(
            description="Header with the time of sending in Unix seconds; the signature covers "
            "'<timestamp>.<body>'. None for senders that sign the body alone (GitHub): a captured request "
            "can then be sent again at any time, and only the delivery id tells."
        ),
    ] = "X-Windsock-Timestamp"
    tolerance: Annotated[
        float, Meta(description="Seconds that a signed timestamp may be away from now.", gt=0)
    ] = 300.0
    id_header: Annotated[
        str,
        Meta(
            description="Header with the sender's delivery id, which becomes the event's id and so its dedup "
            "key. 'Idempotency-Key' is understood too. With neither, the id is random."
        ),
    ] = "X-Windsock-Delivery"
    type: Annotated[
        str, Meta(description="Event type of a request that does not name one.", min_length=1)
    ] = "windsock.webhook"
    type_header: Annotated[
        str | None, Meta(description="Header whose value is the event type, such as 'X-GitHub-Event'.")
    ] = None
    max_body: Annotated[int, Meta(description="Largest request body in bytes; more is refused.", ge=1)] = (
        1_000_000
    )
    rate: Annotated[
        float,
        Meta(
            description="Requests per second that one API server process accepts on average; 0 is unlimited.",
            ge=0,
        ),
    ] = 1000.0
    burst: Annotated[
        int, Meta(description="Requests accepted at once before the rate counts; 0 is one second's.", ge=0)
    ] = 0

    def __post_init__(self) -> None:
        if self.auth in _WITH_SECRET and not self.conn_id:
            raise ValueError(
                f"auth={self.auth!r} needs conn_id: name the Airflow Connection that holds the secret"
            )
        if self.auth not in _WITH_SECRET and self.conn_id:
            raise ValueError(
                f"auth={self.auth!r} uses no secret: remove conn_id, or use 'hmac', 'bearer' or 'basic'"
            )
        for option in ("header", "timestamp_header", "id_header", "type_header"):
            value = getattr(self, option)
            if value is not None and not _HEADER.fullmatch(value):
                raise ValueError(f"{option}={value!r} is not the name of an HTTP header")
        if not self.prefix.isascii():
            raise ValueError(f"prefix={self.prefix!r} must be ASCII text, as HTTP headers are")


class WebhookSource:
    """The watcher's side of the gateway: waits while the gateway receives."""

    kind: ClassVar[str] = "webhook"
    config: ClassVar[type[WebhookConfig]] = WebhookConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        once="with id",
        lag=False,
        tested="HTTP requests",
        notes="The sender is answered after the commit and sends again if it got no answer.",
    )

    def __init__(self, config: WebhookConfig) -> None:
        self.options = config
        self._closed = asyncio.Event()

    async def connect(self, cursor: Cursor | None) -> None:
        self._closed.clear()

    async def read(self) -> AsyncIterator[Delivery]:
        await self._closed.wait()
        nothing: tuple[Delivery, ...] = ()
        for delivery in nothing:
            yield delivery

    async def lag(self) -> int | None:
        return None

    async def close(self) -> None:
        self._closed.set()
