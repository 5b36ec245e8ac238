"""Identity tokens (OpenID Connect), as Google Pub/Sub and Azure Event Grid send them.

A token is good if its issuer's published key signed it, it is made for our audience, names the sender that is
expected and has not expired. Keys are read from the issuer once an hour, and once a minute at most for a key
that is not known yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt

from windsock.events import InvalidEvent, parse_json
from windsock.gateway.documents import Documents, DocumentUnavailable
from windsock.sources.webhook import WebhookConfig

__all__ = ["check_token"]

_ALGORITHMS = ["RS256", "RS384", "RS512", "ES256", "ES384"]
_NAMES = ("email", "azp", "appid", "sub")
_NEW_KEY = 60.0
_LONGEST = 8192


async def check_token(
    config: WebhookConfig, headers: Mapping[str, str], documents: Documents, now: float
) -> str | None:
    """Whether ``Authorization: Bearer`` carries a good token; else the check that failed."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or len(token) > _LONGEST:
        return "identity token missing"
    try:
        # Before any key is read: a stranger's token must not make us ask the issuer.
        claims = jwt.decode(token, options={"verify_signature": False})
        failed = _claims(config, claims, now)
        if failed:
            return failed
        key = await _key(config.issuer, jwt.get_unverified_header(token).get("kid"), documents)
        if key is None:
            return "identity token signed with an unknown key"
        jwt.decode(
            token,
            key,
            algorithms=_ALGORITHMS,
            # Looked at above, by the clock that everything here uses.
            options={"verify_aud": False, "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.PyJWTError:
        return "identity token wrong"
    return None


def _claims(config: WebhookConfig, claims: Mapping[str, Any], now: float) -> str | None:
    issuers = (config.issuer, config.issuer.removeprefix("https://"))  # Google's tokens have either
    if claims.get("iss") not in issuers:
        return "identity token of another issuer"
    audience = claims.get("aud")
    if config.audience not in (audience if isinstance(audience, list) else [audience]):
        return "identity token for another audience"
    names = [claims[name] for name in _NAMES if name in claims]
    if config.sender not in names or claims.get("email_verified") is False:
        return "identity token of another sender"
    expires, begins = claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(expires, int | float) or expires + config.tolerance < now:
        return "identity token expired"
    if not isinstance(begins, int | float) or begins - config.tolerance > now:
        return "identity token not valid yet"
    return None


async def _key(issuer: str, kid: Any, documents: Documents) -> Any:
    """The issuer's key of that id, or None if it has none."""
    discovery = _object(await documents.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
    address = discovery.get("jwks_uri")
    if not isinstance(address, str):
        raise DocumentUnavailable(f"{issuer} does not say where its keys are")
    return _find(await documents.get(address), kid) or _find(
        await documents.get(address, older_than=_NEW_KEY), kid
    )


def _find(document: bytes, kid: Any) -> Any:
    for key in _object(document).get("keys") or ():
        if isinstance(key, dict) and key.get("kid") == kid and key.get("kty") in ("RSA", "EC"):
            return jwt.PyJWK(key)
    return None


def _object(document: bytes) -> dict[str, Any]:
    try:
        value = parse_json(document)
    except InvalidEvent as error:
        raise DocumentUnavailable(f"the issuer's answer is {error}") from error
    return value if isinstance(value, dict) else {}
