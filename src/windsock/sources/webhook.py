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

**Presets** know how a sender signs, what it calls its delivery id and its event type, and what it wants to be
answered: ``options={"preset": "github", "conn_id": "github_webhook"}``. See :mod:`windsock.gateway.presets`.

**The Connection** (any type) holds the secret as its password. While a secret is being changed, the extra
``{"previous": ["old secret"]}`` lets the old one in as well.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from windsock.envelopes.debezium import ChangeOptions
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["WebhookConfig", "WebhookSource"]

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOPIC = re.compile(r"arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]+:[A-Za-z0-9_.-]+")
_SIGNED = ("github", "gitlab", "stripe", "slack", "shopify", "twilio", "standard")
_WITH_SECRET = ("hmac", "bearer", "basic", "query", *_SIGNED)
_WITH_SENDER = ("oidc", "sns")


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may send, and how a request becomes an event."""

    auth: Annotated[
        Literal["hmac", "bearer", "basic", "query", "standard", "oidc", "airflow", "none"] | None,
        Meta(
            description="How a sender proves itself: 'hmac' signs each body, 'standard' does so as Standard "
            "Webhooks, 'bearer' and 'basic' send a secret in a header, 'query' as ?token=, 'oidc' a signed "
            "identity token, 'airflow' an Airflow API token, 'none' lets everybody in. A preset that signs "
            "has its own way, which this replaces. Otherwise there is no default: an open door must be asked "
            "for by name."
        ),
    ] = None
    preset: Annotated[
        Literal[
            "github",
            "gitlab",
            "stripe",
            "slack",
            "shopify",
            "twilio",
            "standard",
            "sns",
            "pubsub",
            "eventgrid",
            "debezium",
        ]
        | None,
        Meta(
            description="The sender's own conventions: signature, delivery id, event type, challenge and "
            "ping. 'standard' is Standard Webhooks, which Svix and many others use; 'pubsub', 'eventgrid' "
            "and 'debezium' unwrap what Google Pub/Sub, Azure Event Grid and Debezium Server push, and need "
            "auth."
        ),
    ] = None
    conn_id: Annotated[
        str | None,
        Meta(
            description="Airflow Connection that holds the secret: its password is the signing secret or the "
            "token; for 'basic' its login and password. The extra 'previous' lists older secrets that still "
            "count. A change of the secret counts within 30 s."
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
    id_signed: Annotated[
        bool,
        Meta(
            description="With auth='hmac': the signature covers '<timestamp>.<id>.<body>' with the id of "
            "id_header, so that a captured request cannot be sent again under another id. The id then has no "
            "dot and the timestamp is whole seconds."
        ),
    ] = False
    type: Annotated[
        str, Meta(description="Event type of a request that does not name one.", min_length=1)
    ] = "windsock.webhook"
    type_header: Annotated[
        str | None, Meta(description="Header whose value is the event type, such as 'X-GitHub-Event'.")
    ] = None
    sender: Annotated[
        str | None,
        Meta(
            description="Who may send, where the proof only says who it is: the TopicArn with preset 'sns'; "
            "with auth='oidc' the token's email (a Google service account), or its azp, appid or sub."
        ),
    ] = None
    audience: Annotated[
        str | None, Meta(description="With auth='oidc': the audience that the token must be made for.")
    ] = None
    issuer: Annotated[
        str,
        Meta(
            description="With auth='oidc': who signs the tokens; its keys are read from "
            "'<issuer>/.well-known/openid-configuration'."
        ),
    ] = "https://accounts.google.com"
    url: Annotated[
        str | None,
        Meta(
            description="The address that the sender was given, without its query, if a proxy changes it on "
            "the way: Twilio's signature covers it."
        ),
    ] = None
    confirm: Annotated[
        bool,
        Meta(
            description="With preset 'sns': confirm a subscription whose signature is good. Otherwise its "
            "address is written to the server's log, for someone to open."
        ),
    ] = False
    changes: Annotated[
        ChangeOptions,
        Meta(
            description="With preset 'debezium': which changes are wanted and how their columns are read, "
            "such as {'tables': ['public.orders'], 'operations': ['create']}."
        ),
    ] = ChangeOptions()
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

    @property
    def scheme(self) -> str:
        """How a sender proves itself: ``auth``, or else the preset's own way."""
        return self.auth or self.preset or ""

    def __post_init__(self) -> None:
        self._check_who()
        for option in ("header", "timestamp_header", "id_header", "type_header"):
            value = getattr(self, option)
            if value is not None and not _HEADER.fullmatch(value):
                raise ValueError(f"{option}={value!r} is not the name of an HTTP header")
        if not self.prefix.isascii():
            raise ValueError(f"prefix={self.prefix!r} must be ASCII text, as HTTP headers are")
        if self.id_signed and self.auth != "hmac":
            raise ValueError("id_signed belongs to auth='hmac': remove it, or use that")
        for option in ("url", "issuer"):
            value = getattr(self, option)
            if value is not None and (urlsplit(value).scheme not in ("http", "https") or "?" in value):
                raise ValueError(f"{option}={value!r} is not an http:// or https:// address without a query")

    def _check_who(self) -> None:
        if self.auth is None and self.preset not in (*_SIGNED, "sns"):
            raise ValueError(
                "auth is missing: say how a sender proves itself, such as 'hmac', or name a preset that signs"
                if self.preset is None
                else f"preset={self.preset!r} has no signature: set auth, such as 'query' or 'oidc'"
            )
        if self.auth == "standard" and self.preset is None:
            raise ValueError("auth='standard' goes with a preset: use preset='standard' instead")
        what = f"auth={self.auth!r}" if self.auth else f"preset={self.preset!r}"
        if self.scheme in _WITH_SECRET and not self.conn_id:
            raise ValueError(f"{what} needs conn_id: name the Airflow Connection that holds the secret")
        if self.scheme not in _WITH_SECRET and self.conn_id:
            raise ValueError(f"{what} uses no secret: remove conn_id, or use 'hmac', 'bearer' or 'basic'")
        if self.scheme in _WITH_SENDER and not self.sender:
            raise ValueError(f"{what} needs sender: anybody's signature would do otherwise")
        if self.scheme == "sns" and not _TOPIC.fullmatch(self.sender or ""):
            raise ValueError(f"sender={self.sender!r} is not the ARN of an SNS topic: copy its TopicArn")
        if self.scheme == "oidc" and not self.audience:
            raise ValueError(
                "auth='oidc' needs audience: a token made for another receiver would do otherwise"
            )


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
