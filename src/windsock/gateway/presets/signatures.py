"""How the senders sign, one function each, compared in constant time.

A function gets the request, one secret and what tells whether a timestamp is fresh. It returns None, or the
name of the check that failed, which goes to the server's log only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from windsock.events import InvalidEvent
from windsock.gateway.auth import Secret, same, seconds_away
from windsock.gateway.sent import Sent

__all__ = ["SIGNATURES", "Signature"]

Fresh = Callable[[str], str | None]
Verify = Callable[[Sent, str, Fresh], str | None]

_WRONG = "signature wrong"
_MISSING = "signature missing"
_FAMILIES = ("webhook", "svix")
_MOST_SIGNATURES = 20
"""Signatures in one header that are looked at: a sender that changes its secret sends a few."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to sign."""

    headers: tuple[str, ...]
    """One of these is there, or the request is refused before its body is read."""
    verify: Verify

    def early(self, sent: Sent) -> str | None:
        """What can be told without the body."""
        return None if any(header in sent.headers for header in self.headers) else _MISSING

    def check(self, sent: Sent, secret: Secret, *, tolerance: float, now: float) -> str | None:
        """Whether one of the secrets signed this request; else the check that failed."""

        def fresh(timestamp: str) -> str | None:
            away = seconds_away(timestamp, now)
            if away is None:
                return "timestamp malformed"
            return "timestamp stale" if away > tolerance else None

        failed = [self.verify(sent, password, fresh) for password in secret.passwords]
        return None if None in failed else failed[0]


def _github(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """The hex digest of the body. Neither time nor delivery id is signed."""
    given = sent.headers.get("x-hub-signature-256", "")
    return None if same(given, "sha256=" + _digest(secret.encode(), sent.body).hex()) else _WRONG


def _gitlab(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """A signing token (GitLab signs as Standard Webhooks) or the older secret token, sent as it is."""
    token = sent.headers.get("x-gitlab-token")
    if token is not None and same(token, secret):
        return None
    return _standard(sent, secret, fresh) if "webhook-signature" in sent.headers else "token wrong"


def _stripe(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """``t=<seconds>,v1=<hex>``, with several v1 while the secret is being changed."""
    pairs = [part.strip().partition("=") for part in sent.headers.get("stripe-signature", "").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1:
        return "timestamp missing"
    given = [value for name, _, value in pairs if name == "v1"]
    expected = _digest(secret.encode(), times[0].encode("latin-1") + b"." + sent.body).hex()
    return fresh(times[0]) or _one_of(given, expected)


def _slack(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """``v0=<hex>`` of ``v0:<timestamp>:<body>``."""
    timestamp = sent.headers.get("x-slack-request-timestamp", "")
    signed = b"v0:" + timestamp.encode("latin-1") + b":" + sent.body
    given = sent.headers.get("x-slack-signature", "")
    return fresh(timestamp) or _one_of([given], "v0=" + _digest(secret.encode(), signed).hex())


def _shopify(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """The body's digest in base64."""
    given = sent.headers.get("x-shopify-hmac-sha256", "")
    return _one_of([given], _base64(_digest(secret.encode(), sent.body)))


def _twilio(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """SHA-1 over the address and the form's fields by name; a JSON body is signed through ``bodySHA256``."""
    try:
        fields = sorted(set(sent.fields)) if sent.is_form else []
    except InvalidEvent:
        return "form malformed"
    if sent.body and not sent.is_form:
        claimed = sent.query.get("bodySHA256")
        if claimed is None:
            return "body not signed"
        if not same(claimed.lower(), hashlib.sha256(sent.body).hexdigest()):
            return "body changed"
    rest = "".join(name + value for name, value in fields)
    given = sent.headers.get("x-twilio-signature", "")
    expected = [
        _base64(hmac.digest(secret.encode(), (url + rest).encode("utf-8", "replace"), "sha1"))
        for url in _with_and_without_port(sent.url)
    ]
    return None if True in [same(given, each) for each in expected] else _WRONG


def _standard(sent: Sent, secret: str, fresh: Fresh) -> str | None:
    """``v1,<base64>`` of ``<id>.<timestamp>.<body>``, several separated by spaces."""
    family = next((name for name in _FAMILIES if f"{name}-signature" in sent.headers), _FAMILIES[0])
    id, timestamp = (sent.headers.get(f"{family}-{name}", "") for name in ("id", "timestamp"))
    if not id:
        return "id missing"
    signed = b".".join([id.encode("latin-1"), timestamp.encode("latin-1"), sent.body])
    given = sent.headers.get(f"{family}-signature", "").split()[:_MOST_SIGNATURES]
    return fresh(timestamp) or _one_of(given, "v1," + _base64(_digest(_standard_key(secret), signed)))


def _standard_key(secret: str) -> bytes:
    """The bytes of a ``whsec_…`` secret; one that is not base64 is taken as it is."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    return key or secret.encode()


def _digest(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode("ascii")


def _one_of(given: list[str], expected: str) -> str | None:
    if not any(given):
        return _MISSING
    return None if True in [same(each.strip(), expected) for each in given[:_MOST_SIGNATURES]] else _WRONG


def _with_and_without_port(url: str) -> list[str]:
    """The address as it is, and as a sender writes it that names the port, or does not."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return [url]
    default = 443 if parts.scheme == "https" else 80
    bare = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    return [url, *(parts._replace(netloc=name).geturl() for name in (bare, f"{bare}:{port or default}"))]


SIGNATURES: dict[str, Signature] = {
    "github": Signature(("x-hub-signature-256",), _github),
    "gitlab": Signature(("x-gitlab-token", "webhook-signature"), _gitlab),
    "stripe": Signature(("stripe-signature",), _stripe),
    "slack": Signature(("x-slack-signature",), _slack),
    "shopify": Signature(("x-shopify-hmac-sha256",), _shopify),
    "twilio": Signature(("x-twilio-signature",), _twilio),
    "standard": Signature(("webhook-signature", "svix-signature"), _standard),
}
"""Scheme → how it is checked."""
