"""Whatever is sent to a preset, there is an answer that makes sense."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unit.gateway.senders import SECRET
from windsock.gateway import Secret, create_app
from windsock.gateway.presets import PRESETS
from windsock.log.sqlite import SqliteLog
from windsock.sources import source_key
from windsock.spec import WatcherSpec

HEADER_TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "x-hub-signature-256", "x-github-event", "x-github-delivery", "x-gitlab-token",
            "webhook-signature", "webhook-id", "webhook-timestamp", "svix-signature", "stripe-signature",
            "x-slack-signature", "x-slack-request-timestamp", "x-shopify-hmac-sha256",
            "x-shopify-triggered-at", "x-twilio-signature", "x-amz-sns-message-type",
            "x-amz-sns-rawdelivery", "aeg-event-type", "ce-specversion",
        ]
    ),
    HEADER_TEXT
    | st.sampled_from(["ping", "t=1,v1=0", "1800000000", "v0=ab", "SubscriptionConfirmation", "true", "1.0"]),
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "type", "event", "challenge", "message", "data", "messageId", "subscription", "attributes", "id",
        "eventType", "op", "source", "after", "Type", "TopicArn", "Message", "Signature", "SubscribeURL",
        "SigningCertURL", "payload", "schema", "publishTime", "eventTime", "created", "orderingKey",
    ]
)  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)
BODIES = (
    st.binary(max_size=200)
    | JSON_VALUES.map(json.dumps).map(str.encode)
    | st.dictionaries(NAMES, JSON_VALUES, max_size=6).map(json.dumps).map(str.encode)
    | st.dictionaries(NAMES, st.text(max_size=20), max_size=4).map(urlencode).map(str.encode)
    | st.just(b'{"type": "url_verification", "challenge": 7}')
    | st.integers(1, 3000).map(lambda depth: b'{"message": ' + b"[" * depth + b"]" * depth + b"}")
)
CONTENT = st.sampled_from(["application/json", "application/x-www-form-urlencoded", "text/plain", "", "x/y"])


async def throw(requests: list[tuple[str, bool, str, dict[str, str], bytes]]) -> list[httpx.Response]:
    """Send garbage to a server with every preset, once behind its own door and once behind an open one."""
    log = SqliteLog(":memory:")
    for name in PRESETS:
        own: dict[str, Any] = {"preset": name, "max_body": 10_000, "rate": 0, "confirm": True}
        if name == "sns":
            own |= {"sender": "arn:aws:sns:eu-central-1:1:orders"}
        elif name in ("pubsub", "eventgrid", "debezium"):
            own |= {"auth": "query", "conn_id": "shop"}
        else:
            own |= {"conn_id": "shop"}
        for watcher, options in ((name, own), (f"open-{name}", {**own, "auth": "none", "conn_id": None})):
            log.register(
                WatcherSpec(name=watcher, kind="webhook", options=options),
                source=source_key("webhook", options),
            )

    async def secret(conn_id: str) -> Secret:
        return Secret(password=SECRET)

    async def nothing(url: str) -> bytes:
        raise ConnectionError(url)

    app = create_app(log, secrets=secret, read=nothing)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return [
                await client.post(
                    f"/hooks/{'open-' if open_door else ''}{preset}",
                    content=body,
                    headers=[
                        (name.encode(), value.encode("latin-1"))
                        for name, value in {**headers, **({"content-type": kind} if kind else {})}.items()
                    ],
                )
                for preset, open_door, kind, headers, body in requests
            ]
    finally:
        await app.state.gateway.aclose()
        log.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(PRESETS)), st.booleans(), CONTENT, HEADERS, BODIES),
        min_size=1,
        max_size=8,
    )
)
def test_nothing_breaks_a_preset(requests: list[tuple[str, bool, str, dict[str, str], bytes]]) -> None:
    """Garbage is refused at a preset's own door; behind an open one it is stored, set aside or refused."""
    for (preset, open_door, *_), answer in zip(requests, asyncio.run(throw(requests)), strict=True):
        if open_door:
            assert answer.status_code in (200, 202, 415, 422), (preset, answer.text)
        else:
            assert answer.status_code == 401, (preset, answer.text)
