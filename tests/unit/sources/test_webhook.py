"""The webhook source: its options are checked, and it waits while the gateway receives."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from windsock.events import WindsockError
from windsock.sources import make_source
from windsock.sources.base import Source
from windsock.sources.webhook import WebhookConfig, WebhookSource


def config_of(options: dict[str, Any]) -> WebhookConfig:
    source = make_source("webhook", options)
    assert isinstance(source, WebhookSource)
    return source.options


def test_every_field_is_described() -> None:
    """The reference can be generated, because no option lacks its sentence."""
    properties = msgspec.json.schema(WebhookConfig)["$defs"]["WebhookConfig"]["properties"]
    assert [name for name, field in properties.items() if not field.get("description")] == []


def test_auth_has_no_default() -> None:
    """A watcher that says nothing about authentication is refused, so that no door is open by oversight."""
    with pytest.raises(WindsockError, match="auth"):
        make_source("webhook", {})


def test_an_open_door_is_asked_for_by_name() -> None:
    """``auth="none"`` is accepted, with the safe limits still on."""
    config = config_of({"auth": "none"})
    assert (config.max_body, config.rate) == (1_000_000, 1000)


@pytest.mark.parametrize("auth", ["hmac", "bearer", "basic"])
def test_a_secret_needs_a_connection(auth: str) -> None:
    """Each way that compares a secret asks for the connection that holds it."""
    with pytest.raises(WindsockError, match=f"auth='{auth}' needs conn_id"):
        make_source("webhook", {"auth": auth})
    assert config_of({"auth": auth, "conn_id": "shop"}).conn_id == "shop"


@pytest.mark.parametrize("auth", ["airflow", "none"])
def test_a_connection_that_would_not_be_used_is_refused(auth: str) -> None:
    """Naming a connection without a check of its secret would only look safe."""
    with pytest.raises(WindsockError, match="uses no secret: remove conn_id"):
        make_source("webhook", {"auth": auth, "conn_id": "shop"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("auth", "digest"),
        ("header", "X Signature"),
        ("timestamp_header", ""),
        ("id_header", "X-Id:"),
        ("type_header", "X-Tÿpe"),
        ("prefix", "ß="),
        ("tolerance", 0),
        ("max_body", 0),
        ("rate", -1),
        ("burst", -1),
        ("type", ""),
        ("secret", "in the Dag file"),
    ],
)
def test_wrong_options_are_named(option: str, value: object) -> None:
    """A value that cannot work, and an option that does not exist, are refused with the option's name."""
    with pytest.raises(WindsockError, match=option):
        make_source("webhook", {"auth": "none", option: value})


def test_a_preset_that_signs_needs_only_its_secret() -> None:
    """The preset's own proof is the default; another one may be asked for by name."""
    assert config_of({"preset": "github", "conn_id": "gh"}).scheme == "github"
    assert config_of({"preset": "github", "auth": "airflow"}).scheme == "airflow"
    assert config_of({"preset": "debezium", "auth": "standard", "conn_id": "dbz"}).scheme == "standard"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "github"}, "preset='github' needs conn_id"),
        ({"preset": "pubsub"}, "preset='pubsub' has no signature: set auth"),
        ({"preset": "eventgrid", "conn_id": "x"}, "preset='eventgrid' has no signature: set auth"),
        ({"preset": "sns"}, "preset='sns' needs sender"),
        ({"preset": "sns", "sender": "orders"}, "is not the ARN of an SNS topic"),
        ({"preset": "sns", "sender": "arn:aws:sns:eu-west-1:1:orders", "conn_id": "x"}, "uses no secret"),
        ({"preset": "pubsub", "auth": "oidc", "audience": "a"}, "auth='oidc' needs sender"),
        ({"preset": "pubsub", "auth": "oidc", "sender": "a@b"}, "auth='oidc' needs audience"),
        ({"preset": "mailchimp"}, "preset"),
        ({"auth": "standard", "conn_id": "x"}, "use preset='standard' instead"),
        ({"auth": "bearer", "conn_id": "x", "id_signed": True}, "id_signed belongs to auth='hmac'"),
        ({"auth": "none", "url": "hooks.example.com"}, "url='hooks.example.com' is not an http"),
        ({"auth": "none", "url": "https://x/?a=1"}, "without a query"),
        ({"auth": "none", "changes": {"operations": ["drop"]}}, "changes.operations"),
    ],
)
def test_presets_that_cannot_work_are_named(options: dict[str, Any], message: str) -> None:
    """A preset without its proof, or with one that proves nothing, is refused when the Dag is parsed."""
    with pytest.raises(WindsockError, match=message):
        make_source("webhook", options)


async def test_it_waits_until_closed() -> None:
    """Reading brings nothing of its own, ends when the source is closed, and closing twice is fine."""
    source = WebhookSource(WebhookConfig(auth="none"))
    assert isinstance(source, Source)
    await source.connect(None)
    reading = asyncio.create_task(_read_all(source))
    await asyncio.sleep(0)
    assert not reading.done()
    await source.close()
    await source.close()
    assert await asyncio.wait_for(reading, 5) == []
    assert await source.lag() is None


async def _read_all(source: WebhookSource) -> list[object]:
    return [delivery async for delivery in source.read()]
