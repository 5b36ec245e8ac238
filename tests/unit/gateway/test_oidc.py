"""Identity tokens: only the expected sender's, for us, signed by the issuer's key and not expired."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.datastructures import Headers

from windsock.gateway.documents import Documents, DocumentUnavailable
from windsock.gateway.oidc import check_token
from windsock.sources.webhook import WebhookConfig

ISSUER = "https://accounts.google.com"
DISCOVERY = f"{ISSUER}/.well-known/openid-configuration"
KEYS = "https://www.googleapis.com/oauth2/v3/certs"
SENDER = "push@project.iam.gserviceaccount.com"
AUDIENCE = "https://airflow.example.com/windsock"
CONFIG = WebhookConfig(preset="pubsub", auth="oidc", sender=SENDER, audience=AUDIENCE)
NOW = time.time()
PRIVATE = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in ("one", "two")}
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "1137",
    "email": SENDER,
    "email_verified": True,
    "iat": NOW - 10,
    "exp": NOW + 3000,
}


def published(*names: str) -> bytes:
    """The issuer's keys."""
    algorithm = jwt.algorithms.RSAAlgorithm
    keys = [{**json.loads(algorithm.to_jwk(PRIVATE[name].public_key())), "kid": name} for name in names]
    return json.dumps({"keys": keys}).encode()


class Issuer:
    """The issuer's pages, and how often they were read."""

    def __init__(self, *names: str) -> None:
        self.pages: dict[str, bytes] = {
            DISCOVERY: json.dumps({"issuer": ISSUER, "jwks_uri": KEYS}).encode(),
            KEYS: published(*names),
        }
        self.asked: list[str] = []
        self.now = 0.0
        self.documents = Documents(self._read, clock=lambda: self.now)

    async def _read(self, url: str) -> bytes:
        self.asked.append(url)
        return self.pages[url]

    async def check(
        self, *, key: str = "one", kid: str | None = None, config: WebhookConfig = CONFIG, **claims: Any
    ) -> str | None:
        token = jwt.encode({**CLAIMS, **claims}, PRIVATE[key], "RS256", headers={"kid": kid or key})
        return await self.check_header(f"Bearer {token}", config)

    async def check_header(self, header: str, config: WebhookConfig = CONFIG) -> str | None:
        return await check_token(config, Headers({"Authorization": header}), self.documents, NOW)


async def test_a_good_token() -> None:
    """The sender's token passes, under both names of the issuer, and the keys are read once."""
    issuer = Issuer("one")
    assert await issuer.check() is None
    assert await issuer.check(iss="accounts.google.com", aud=["other", AUDIENCE]) is None
    assert issuer.asked == [DISCOVERY, KEYS]


async def test_a_sender_without_an_email() -> None:
    """Other issuers name the sender as azp, appid or sub, under their own address."""
    issuer = Issuer("one")
    tenant = "https://login.example.com/tenant/v2.0"
    issuer.pages[f"{tenant}/.well-known/openid-configuration"] = issuer.pages[DISCOVERY]
    config = WebhookConfig(
        preset="eventgrid", auth="oidc", issuer=tenant, sender="4962773b", audience=AUDIENCE
    )
    assert (
        await issuer.check(config=config, iss=tenant, appid="4962773b", email="x@y", email_verified=None)
        is None
    )


@pytest.mark.parametrize(
    ("claims", "failed"),
    [
        ({"iss": "https://evil.example.com"}, "identity token of another issuer"),
        ({"aud": "https://other.example.com"}, "identity token for another audience"),
        ({"aud": None}, "identity token for another audience"),
        ({"email": "mallory@example.com"}, "identity token of another sender"),
        ({"email_verified": False}, "identity token of another sender"),
        ({"exp": NOW - 301}, "identity token expired"),
        ({"exp": None}, "identity token expired"),
        ({"nbf": NOW + 301}, "identity token not valid yet"),
        ({"key": "two", "kid": "one"}, "identity token wrong"),
    ],
)
async def test_a_bad_token(claims: dict[str, Any], failed: str) -> None:
    """Another issuer, audience, sender, time or key fails."""
    assert await Issuer("one").check(**claims) == failed


async def test_a_strangers_token_asks_nobody() -> None:
    """The issuer is not asked for the sake of a token that could not pass anyhow."""
    issuer = Issuer("one")
    await issuer.check(aud="other")
    for header in ("", "Basic abc", "Bearer ", "Bearer a.b.c", "Bearer " + "a" * 9000):
        assert await issuer.check_header(header) is not None
    assert issuer.asked == []


async def test_a_token_that_nobody_signed() -> None:
    """Neither no signature nor one made with the public key as a secret passes."""
    issuer = Issuer("one")
    unsigned = jwt.encode(CLAIMS, None, "none", headers={"kid": "one"})
    assert await issuer.check_header(f"Bearer {unsigned}") == "identity token wrong"
    confused = jwt.encode(CLAIMS, "a-secret-of-thirty-two-characters!", "HS256", headers={"kid": "one"})
    assert await issuer.check_header(f"Bearer {confused}") == "identity token wrong"


async def test_a_new_key_is_looked_up_once_a_minute() -> None:
    """A key that the issuer published since is found; an unknown one is not asked for at every request."""
    issuer = Issuer("one")
    assert await issuer.check() is None
    issuer.pages[KEYS] = published("one", "two")
    assert await issuer.check(key="two") == "identity token signed with an unknown key"
    issuer.now = 60.0
    assert await issuer.check(key="two") is None
    for _ in range(5):
        assert await issuer.check(kid="three") == "identity token signed with an unknown key"
    assert issuer.asked == [DISCOVERY, KEYS, KEYS]


async def test_an_issuer_that_is_away() -> None:
    """Without keys nothing can be checked; the failure is remembered for a moment and then asked again."""
    issuer = Issuer("one")
    page = issuer.pages.pop(KEYS)
    for _ in range(3):
        with pytest.raises(DocumentUnavailable):
            await issuer.check()
    assert issuer.asked == [DISCOVERY, KEYS]
    issuer.pages[KEYS] = page
    issuer.now = 10.0
    assert await issuer.check() is None


@pytest.mark.parametrize("page", [b"<html>", b"[]", b'{"jwks_uri": 7}'])
async def test_an_issuer_that_talks_nonsense(page: bytes) -> None:
    """A discovery document that says nothing of keys lets nobody in."""
    issuer = Issuer("one")
    issuer.pages[DISCOVERY] = page
    with pytest.raises(DocumentUnavailable):
        await issuer.check()


async def test_through_the_gateway(site: Any) -> None:
    """A push with a good token is stored, one without is refused with a challenge, and 503 without keys."""
    issuer = Issuer("one")
    site.app.state.gateway._door._documents = issuer.documents
    site.watch(preset="pubsub", auth="oidc", sender=SENDER, audience=AUDIENCE)
    body = {"message": {"messageId": "1", "data": "e30="}, "subscription": "projects/p/subscriptions/s"}
    token = jwt.encode(CLAIMS, PRIVATE["one"], "RS256", headers={"kid": "one"})
    good = {"Authorization": f"Bearer {token}"}
    assert (await site.post(json=body, headers=good)).status_code == 202
    refused = await site.post(json=body)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    issuer.now = 4000.0
    del issuer.pages[KEYS]
    assert (await site.post(json=body, headers=good)).status_code == 503
