"""Presets: what known senders call things, so that a watcher only names the sender and its secret.

| preset | proof | id | type |
|---|---|---|---|
| ``github`` | ``X-Hub-Signature-256`` | ``X-GitHub-Delivery`` | ``X-GitHub-Event`` |
| ``gitlab`` | signing token or secret token | ``Idempotency-Key`` | ``object_kind`` |
| ``stripe`` | ``Stripe-Signature``, timed | ``id`` | ``type`` |
| ``slack`` | ``X-Slack-Signature``, timed | ``event_id``, ``trigger_id`` | ``event.type``, ``type`` |
| ``shopify`` | ``X-Shopify-Hmac-Sha256`` | ``X-Shopify-Webhook-Id`` | ``X-Shopify-Topic`` |
| ``twilio`` | ``X-Twilio-Signature`` | ``I-Twilio-Idempotency-Token`` | ``EventType`` or status |
| ``standard`` | ``webhook-signature``, timed, id signed | ``webhook-id`` | ``type`` |
| ``sns`` | AWS's certificate; ``sender`` is the TopicArn | ``MessageId`` | the message's |
| ``pubsub`` | ``auth="oidc"`` or ``"query"`` | ``messageId`` | the message's |
| ``eventgrid`` | ``auth="oidc"`` or ``"query"`` | ``id`` | ``eventType`` |
| ``debezium`` | ``auth="standard"``, ``"bearer"``, … | the change's position | ``debezium.<operation>`` |

GitHub's ping, Slack's challenge and Event Grid's handshakes are answered, and Slack and Twilio get the empty
answers that they want. An SNS subscription is confirmed if the watcher says ``confirm``.

A request that names no id gets one made of its body, so that the same body again is a duplicate. GitHub,
Shopify, Twilio and GitLab's secret token prove neither time nor id: who listens in on a request can send it
again under another id, so let them come over TLS only.
"""

from __future__ import annotations

from fastapi import Response

from windsock.events import InvalidEvent
from windsock.gateway.documents import Fetch
from windsock.gateway.presets.base import At, Preset
from windsock.gateway.presets.pushed import (
    greet_eventgrid,
    greet_sns,
    read_debezium,
    read_eventgrid,
    read_pubsub,
    read_sns,
)
from windsock.gateway.sent import Sent
from windsock.sources.webhook import WebhookConfig

__all__ = ["PRESETS", "Preset"]


async def _ping(config: WebhookConfig, sent: Sent, read: Fetch) -> Response | None:
    if sent.headers.get("x-github-event") != "ping":
        return None
    return Response(b'{"status":"pong"}', 200, media_type="application/json")


async def _challenge(config: WebhookConfig, sent: Sent, read: Fetch) -> Response | None:
    """Slack sends a challenge to a new address, signed like everything else, and wants it back."""
    if b"url_verification" not in sent.body or not isinstance(sent.data, dict):
        return None
    if sent.data.get("type") != "url_verification":
        return None
    challenge = sent.data.get("challenge")
    if not isinstance(challenge, str):
        raise InvalidEvent("the challenge is missing or no text")
    return Response(challenge.encode("utf-8", "backslashreplace"), 200, media_type="text/plain")


PRESETS: dict[str, Preset] = {
    "github": Preset(
        id=At(headers=("x-github-delivery",)),
        type=At(headers=("x-github-event",)),
        subject=At(paths=("repository.full_name", "organization.login", "installation.account.login")),
        keep=("x-github-",),
        greet=_ping,
    ),
    "gitlab": Preset(
        id=At(headers=("webhook-id", "idempotency-key", "x-gitlab-event-uuid")),
        type=At(paths=("object_kind", "event_name")),
        subject=At(paths=("project.path_with_namespace", "path_with_namespace", "group.full_path")),
        keep=("x-gitlab-",),
        leave=("x-gitlab-token",),
    ),
    "stripe": Preset(
        id=At(paths=("id",)),
        type=At(paths=("type",)),
        subject=At(paths=("data.object.id", "related_object.id")),
        time=At(paths=("created",)),
    ),
    "slack": Preset(
        id=At(paths=("event_id", "trigger_id")),
        type=At(paths=("event.type", "type", "command")),
        subject=At(paths=("event.channel", "channel.id", "channel_id", "team_id")),
        time=At(paths=("event_time",)),
        keep=("x-slack-retry-",),
        greet=_challenge,
        reply=("", "text/plain"),
    ),
    "shopify": Preset(
        id=At(headers=("x-shopify-webhook-id",)),
        type=At(headers=("x-shopify-topic",)),
        subject=At(headers=("x-shopify-shop-domain",)),
        time=At(headers=("x-shopify-triggered-at",)),
        keep=("x-shopify-",),
        leave=("x-shopify-hmac-sha256",),
    ),
    "twilio": Preset(
        id=At(headers=("i-twilio-idempotency-token",)),
        type=At(paths=("EventType", "SmsStatus", "CallStatus")),
        subject=At(paths=("MessageSid", "CallSid", "AccountSid")),
        keep=("i-twilio-",),
        reply=("<Response/>", "text/xml"),
    ),
    "standard": Preset(
        id=At(headers=("webhook-id", "svix-id")),
        type=At(paths=("type", "eventType", "event_type")),
        time=At(paths=("timestamp",)),
    ),
    "sns": Preset(reader=read_sns, greet=greet_sns),
    "pubsub": Preset(reader=read_pubsub),
    "eventgrid": Preset(reader=read_eventgrid, greet=greet_eventgrid, origins=True),
    "debezium": Preset(reader=read_debezium, cloudevents=True),
}
"""Name → conventions; the names are those of the watcher's option ``preset``."""
