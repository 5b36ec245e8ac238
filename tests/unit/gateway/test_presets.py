"""Presets of senders that sign, from the request to the log: real payloads, pings, challenges, replays."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from typing import Any
from urllib.parse import urlencode

import pytest

from unit.gateway.senders import CORPORA, FORM, JSON, SECRET, digest, github, only, slack, stamp, standard
from windsock.gateway import Secret, sign

GITHUB = {path.name: path.read_bytes() for path in sorted((CORPORA / "github").glob("*.json"))}


@pytest.mark.parametrize("name", GITHUB)
async def test_github(site: Any, name: str) -> None:
    """Every real payload of GitHub becomes an event of its kind, once however often it is delivered."""
    site.watch(preset="github", auth=None, conn_id="shop")
    body, kind = GITHUB[name], name.split(".")[0]
    answers = [await site.post(content=body, headers=github(body, kind)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 200]
    event = only(site)
    assert (event.id, event.type) == ("d-1", kind)
    assert event.data == json.loads(body)
    assert event.subject == event.data.get("repository", {}).get("full_name")
    assert event.headers["x-github-hook-id"] == "42"


async def test_githubs_ping_is_answered(site: Any) -> None:
    """The ping of a new webhook is answered after its signature was checked, and is no event."""
    site.watch(preset="github", auth=None, conn_id="shop")
    body = b'{"zen": "Keep it logically awesome.", "hook_id": 42}'
    answer = await site.post(content=body, headers=github(body, "ping"))
    assert (answer.status_code, answer.json()) == (200, {"status": "pong"})
    forged = await site.post(content=body, headers=github(b"other", "ping"))
    assert forged.status_code == 401
    assert site.stored() == []


async def test_github_may_send_a_form(site: Any) -> None:
    """A webhook with the content type of forms carries its JSON in the field payload."""
    site.watch(preset="github", auth=None, conn_id="shop")
    body = urlencode({"payload": json.dumps({"action": "opened"})}).encode()
    answer = await site.post(content=body, headers={**github(body, "issues"), **FORM})
    assert answer.status_code == 202
    assert only(site).data == {"action": "opened"}


async def test_a_request_without_an_id_is_known_by_its_body(site: Any) -> None:
    """Sent again without the delivery's header, the same body is a duplicate."""
    site.watch(preset="github", auth=None, conn_id="shop")
    body = b'{"action": "opened"}'
    headers = {name: value for name, value in github(body).items() if name != "X-GitHub-Delivery"}
    answers = [await site.post(content=body, headers=headers) for _ in range(2)]
    assert [answer.json()["status"] for answer in answers] == ["accepted", "duplicate"]


async def test_gitlab(site: Any) -> None:
    """Both of GitLab's proofs are taken, the id is the one of the delivery, and the token is not kept."""
    site.watch(preset="gitlab", auth=None, conn_id="shop")
    body = b'{"object_kind": "merge_request", "project": {"path_with_namespace": "shop/web"}}'
    shared = {"X-Gitlab-Event": "Merge Request Hook", "X-Gitlab-Token": SECRET, **JSON}
    ids = {"Idempotency-Key": "i-1", "X-Gitlab-Event-UUID": "u-1"}
    assert (await site.post(content=body, headers={**shared, **ids})).status_code == 202
    event = only(site)
    assert (event.id, event.type, event.subject) == ("i-1", "merge_request", "shop/web")
    assert event.headers == {"x-gitlab-event": "Merge Request Hook", "x-gitlab-event-uuid": "u-1"}
    site.secrets["shop"] = Secret(password=SECRET)
    assert (await site.post(content=body, headers=standard(body, "i-2"))).json()["id"] == "i-2"


async def test_stripe(site: Any) -> None:
    """Id, type and time of a Stripe event are those in its body."""
    site.watch(preset="stripe", auth=None, conn_id="shop")
    body = json.dumps(
        {"id": "evt_1", "type": "invoice.paid", "created": 1_800_000_000, "data": {"object": {"id": "in_1"}}}
    ).encode()
    now = stamp()
    headers = {"Stripe-Signature": f"t={now},v1={digest(now.encode() + b'.' + body).hex()}", **JSON}
    assert (await site.post(content=body, headers=headers)).status_code == 202
    event = only(site)
    assert (event.id, event.type, event.subject) == ("evt_1", "invoice.paid", "in_1")
    assert event.time.timestamp() == 1_800_000_000


async def test_slack(site: Any) -> None:
    """An event callback is stored under its event id and answered with the empty 200 that Slack wants."""
    site.watch(preset="slack", auth=None, conn_id="shop")
    callback = {
        "type": "event_callback",
        "event_id": "Ev1",
        "event": {"type": "app_mention", "channel": "C1"},
    }
    body = json.dumps(callback).encode()
    for _ in range(2):
        answer = await site.post(content=body, headers=slack(body))
        assert (answer.status_code, answer.content) == (200, b"")
    event = only(site)
    assert (event.id, event.type, event.subject) == ("Ev1", "app_mention", "C1")


async def test_slacks_challenge(site: Any) -> None:
    """The challenge of a new address is given back, if it is signed, and is no event."""
    site.watch(preset="slack", auth=None, conn_id="shop")
    body = (
        b'{"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}'
    )
    answer = await site.post(content=body, headers=slack(body))
    assert (answer.status_code, answer.text) == (200, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
    assert (await site.post(content=body, headers=slack(b"{}"))).status_code == 401
    broken = b'{"type": "url_verification"}'
    assert (await site.post(content=broken, headers=slack(broken))).status_code == 422
    talk = b'{"event_id": "E", "event": {"type": "message", "text": "url_verification"}}'
    await site.post(content=talk, headers=slack(talk))
    assert only(site).type == "message"


async def test_slacks_commands(site: Any) -> None:
    """A slash command comes as a form; its fields are the data."""
    site.watch(preset="slack", auth=None, conn_id="shop")
    body = b"command=%2Fship&text=now&trigger_id=T1&channel_id=C1"
    assert (await site.post(content=body, headers=slack(body, FORM))).status_code == 200
    event = only(site)
    assert (event.id, event.type, event.subject) == ("T1", "/ship", "C1")
    assert event.data["text"] == "now"


async def test_shopify(site: Any) -> None:
    """Shopify's topic, shop and webhook id are the event's type, subject and id."""
    site.watch(preset="shopify", auth=None, conn_id="shop")
    body = b'{"id": 820982911946154508}'
    headers = {
        "X-Shopify-Topic": "orders/create",
        "X-Shopify-Shop-Domain": "shop.example.com",
        "X-Shopify-Webhook-Id": "w-1",
        "X-Shopify-Triggered-At": "2026-11-03T10:00:00.123Z",
        "X-Shopify-Hmac-Sha256": base64.b64encode(digest(body)).decode(),
        **JSON,
    }
    assert (await site.post(content=body, headers=headers)).status_code == 202
    event = only(site)
    assert (event.id, event.type, event.subject) == ("w-1", "orders/create", "shop.example.com")
    assert event.time.isoformat() == "2026-11-03T10:00:00.123000+00:00"
    assert "x-shopify-hmac-sha256" not in event.headers


async def test_twilio(site: Any) -> None:
    """A message's form is data under the idempotency token, for the address that Twilio knows."""
    site.watch(
        preset="twilio", auth=None, conn_id="shop", url="https://hooks.example.com/windsock/hooks/orders"
    )
    body = urlencode({"MessageSid": "SM1", "SmsStatus": "received", "Body": "höllo"}).encode()
    signed = "https://hooks.example.com/windsock/hooks/orders?a=1BodyhölloMessageSidSM1SmsStatusreceived"
    headers = {
        "X-Twilio-Signature": base64.b64encode(digest(signed.encode(), "sha1")).decode(),
        "I-Twilio-Idempotency-Token": "tok-1",
        **FORM,
    }
    answer = await site.post("/hooks/orders?a=1", content=body, headers=headers)
    assert (answer.status_code, answer.text) == (200, "<Response/>")
    assert answer.headers["content-type"].startswith("text/xml")
    event = only(site)
    assert (event.id, event.type, event.subject) == ("tok-1", "received", "SM1")
    assert event.data["Body"] == "höllo"
    assert (await site.post("/hooks/orders?a=2", content=body, headers=headers)).status_code == 401


@pytest.mark.parametrize("family", ["webhook", "svix"])
async def test_standard_webhooks(site: Any, family: str) -> None:
    """The signed message id is the event's id; the same message under another id is refused."""
    site.watch(preset="standard", auth=None, conn_id="shop")
    body = b'{"type": "order.created", "timestamp": "2026-11-03T10:00:00Z", "data": {"total": 12}}'
    headers = standard(body, family=family)
    assert (await site.post(content=body, headers=headers)).status_code == 202
    event = only(site)
    assert (event.id, event.type) == ("msg_1", "order.created")
    assert event.time.isoformat() == "2026-11-03T10:00:00+00:00"
    replayed = await site.post(content=body, headers={**headers, f"{family}-id": "msg_2"})
    assert replayed.status_code == 401


async def test_a_preset_takes_no_cloudevents(site: Any) -> None:
    """Unsigned ce-* headers cannot turn a signed body into another event."""
    site.watch(preset="github", auth=None, conn_id="shop")
    body = b"{}"
    ce = {"ce-specversion": "1.0", "ce-id": "mine", "ce-source": "me", "ce-type": "t"}
    assert (await site.post(content=body, headers={**github(body), **ce})).json()["id"] == "d-1"
    refused = await site.post("/events?watcher=orders", content=body, headers={**github(body), **ce})
    assert refused.status_code == 415


async def test_a_changed_secret(site: Any) -> None:
    """A secret under 'previous' in the Connection's extra still lets its sender in."""
    site.secrets["shop"] = Secret.of(None, "new one", {"previous": ["oldest", SECRET]})
    site.watch(preset="github", auth=None, conn_id="shop")
    body = b"{}"
    assert (await site.post(content=body, headers=github(body))).status_code == 202
    assert Secret.of("shop", None, {"previous": SECRET}) == Secret("shop", "", (SECRET,))
    assert Secret.of("shop", "x", {"previous": [1, "", None]}).passwords == ("x",)
    assert Secret.of("shop", "x", {"previous": 7}).passwords == ("x",)
    assert SECRET not in repr(site.secrets["shop"])


async def test_the_delivery_id_can_be_signed(site: Any) -> None:
    """With id_signed a captured request cannot come again under another id, nor without one."""
    site.watch(auth="hmac", conn_id="shop", id_signed=True)
    body, now = b'{"total": 1}', stamp()
    headers = {
        "X-Windsock-Timestamp": now,
        "X-Windsock-Delivery": "d-1",
        "X-Windsock-Signature": "sha256=" + sign(SECRET, body, now, "d-1"),
        **JSON,
    }
    assert (await site.post(content=body, headers=headers)).json()["id"] == "d-1"
    assert (await site.post(content=body, headers=headers)).json()["status"] == "duplicate"
    for id in ("d-2", "", "d.1"):
        answer = await site.post(content=body, headers={**headers, "X-Windsock-Delivery": id})
        assert answer.status_code == 401
    cut = {**headers, "X-Windsock-Timestamp": f"{now}.0"}
    assert (await site.post(content=body, headers=cut)).status_code == 401


async def test_a_signed_id_leaves_no_unsigned_headers(site: Any) -> None:
    """CloudEvents then come in structured mode, where the signature covers their id as well."""
    site.watch(auth="hmac", conn_id="shop", id_signed=True)
    event = {"specversion": "1.0", "id": "e-1", "source": "/s", "type": "t"}
    body, now = json.dumps(event).encode(), stamp()
    headers = {
        "X-Windsock-Timestamp": now,
        "X-Windsock-Delivery": "d-1",
        "X-Windsock-Signature": "sha256=" + sign(SECRET, body, now, "d-1"),
    }
    binary = {f"ce-{name}": value for name, value in event.items()}
    assert (await site.post(content=body, headers={**headers, **binary})).status_code == 415
    structured = {**headers, "Content-Type": "application/cloudevents+json"}
    assert (await site.post(content=body, headers=structured)).json()["id"] == "e-1"


async def test_a_token_in_the_address(site: Any) -> None:
    """auth='query' compares ?token=, for senders that only know an address."""
    site.watch(auth="query", conn_id="shop")
    site.secrets["shop"] = Secret(password="tökén")
    for query, status in (("?token=t%C3%B6k%C3%A9n", 202), ("?token=x", 401), ("", 401), ("?token=", 401)):
        assert (await site.post(f"/hooks/orders{query}", json=1)).status_code == status


async def test_the_log_says_which_check_failed(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The sender learns nothing but 401; the server's log names the check, without the secret."""
    site.watch(preset="stripe", auth=None, conn_id="shop")
    with caplog.at_level(logging.WARNING):
        answer = await site.post(json={}, headers={"Stripe-Signature": "t=1,v1=00"})
    assert (answer.status_code, answer.json()) == (401, {"detail": "not authorised"})
    assert "watcher=orders check='timestamp stale'" in caplog.text
    assert SECRET not in caplog.text


def test_sign_covers_what_it_is_given() -> None:
    """The public ``sign`` joins timestamp, id and body with dots."""
    expected = hmac.new(b"k", b"5.d.body", hashlib.sha256).hexdigest()
    assert sign("k", b"body", "5", "d") == expected
    assert sign("k", b"body") == hmac.new(b"k", b"body", hashlib.sha256).hexdigest()
