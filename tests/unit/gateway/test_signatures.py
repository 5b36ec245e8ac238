"""How the senders sign: their own documented examples, and everything that must not pass."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import msgspec
import pytest
from starlette.datastructures import Headers

from windsock.gateway import auth
from windsock.gateway.auth import Secret
from windsock.gateway.presets import PRESETS
from windsock.gateway.presets.signatures import SIGNATURES
from windsock.gateway.sent import Sent
from windsock.sources.webhook import _SIGNED, WebhookConfig

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
TWILIO_URL = "https://mycompany.com/myapp.php?foo=1&bar=2"
TWILIO_FORM = (
    b"To=%2B18005551212&Digits=1234&CallSid=CA1234567890ABCDE&Caller=%2B12349013030&From=%2B12349013030"
)
TWILIO_JSON = b'{"property": "value", "boolean": true}'
TWILIO_HASH = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'


def hmac_hex(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def hmac_base64(secret: str, message: bytes) -> str:
    return base64.b64encode(hmac.new(secret.encode(), message, hashlib.sha256).digest()).decode()


class Case:
    """One request that its sender signed, and the moment of its arrival."""

    def __init__(
        self, scheme: str, secret: str, headers: dict[str, str], body: bytes, *, now: float = 0, url: str = ""
    ) -> None:
        self.scheme, self.secret, self.headers, self.body, self.now, self.url = (
            scheme, secret, headers, body, now, url,
        )  # fmt: skip

    def check(self, **other: Any) -> str | None:
        """The check that failed, with some of it exchanged."""
        given = {**vars(self), **other}
        query = dict(part.split("=") for part in given["url"].partition("?")[2].split("&") if part)
        sent = Sent(Headers(given["headers"]), query, given["url"], given["body"])
        secret = given["secret"] if isinstance(given["secret"], Secret) else Secret(password=given["secret"])
        return SIGNATURES[self.scheme].check(sent, secret, tolerance=300, now=given["now"])


STRIPE_BODY = b'{"id": "evt_1", "type": "invoice.paid"}'
CASES = {
    "github": Case(
        "github",
        "It's a Secret to Everybody",
        {
            "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        b"Hello, World!",
    ),
    "gitlab-token": Case("gitlab", "gl-s3cret", {"X-Gitlab-Token": "gl-s3cret"}, b"{}"),
    "gitlab-signed": Case("gitlab", STANDARD_SECRET, STANDARD, STANDARD_BODY, now=1614265400),
    "stripe": Case(
        "stripe",
        "whsec_test_secret",
        {
            "Stripe-Signature": "t=1492774577,v1="
            + hmac_hex("whsec_test_secret", b"1492774577." + STRIPE_BODY)
            + ",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
        },
        STRIPE_BODY,
        now=1492774600,
    ),
    "slack": Case(
        "slack",
        "8f742231b10e8888abcd99yyyzzz85a5",
        {
            "X-Slack-Request-Timestamp": "1531420618",
            "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            **FORM,
        },
        SLACK_BODY,
        now=1531420700,
    ),
    "shopify": Case(
        "shopify",
        "hush",
        {"X-Shopify-Hmac-Sha256": hmac_base64("hush", b'{"id":820982911946154508}')},
        b'{"id":820982911946154508}',
    ),
    "twilio-form": Case(
        "twilio", "12345", {"X-Twilio-Signature": "0/KCTR6DLpKmkAf8muzZqo1nDgQ=", **FORM}, TWILIO_FORM,
        url=TWILIO_URL,
    ),
    "twilio-json": Case(
        "twilio",
        "12345",
        {"X-Twilio-Signature": "a9nBmqA0ju/hNViExpshrM61xv4=", "Content-Type": "application/json"},
        TWILIO_JSON,
        url=f"{TWILIO_URL}&bodySHA256={TWILIO_HASH}",
    ),
    "standard": Case("standard", STANDARD_SECRET, STANDARD, STANDARD_BODY, now=1614265400),
    "svix": Case(
        "standard",
        STANDARD_SECRET,
        {name.replace("webhook", "svix"): value for name, value in STANDARD.items()},
        STANDARD_BODY,
        now=1614265300,
    ),
}  # fmt: skip
TIMED = ["gitlab-signed", "stripe", "slack", "standard", "svix"]


@pytest.mark.parametrize("name", CASES)
def test_a_documented_example_passes(name: str) -> None:
    """What the sender's documentation signs, or its documented recipe gives, is accepted."""
    assert CASES[name].check() is None


@pytest.mark.parametrize("name", [name for name in CASES if name != "gitlab-token"])
def test_another_body_fails(name: str) -> None:
    """A body that was changed on the way is noticed."""
    assert CASES[name].check(body=CASES[name].body.replace(b"1", b"2") + b" ") is not None


@pytest.mark.parametrize("name", CASES)
def test_another_secret_fails(name: str) -> None:
    """A signature made with another secret is refused."""
    assert CASES[name].check(secret="another secret") is not None


@pytest.mark.parametrize("name", CASES)
def test_every_header_counts(name: str) -> None:
    """Changed in its last letter, emptied or left out, no header that proves something is accepted."""
    case = CASES[name]
    for header, value in case.headers.items():
        if header == "Content-Type":
            continue
        other = {k: v for k, v in case.headers.items() if k != header}
        tampered = value[:-2] + ("A" if value[-2] != "A" else "B") + value[-1]
        assert case.check(headers={**other, header: ""}) is not None, header
        assert case.check(headers=other) is not None, header
        if not (header == "Stripe-Signature" and ",v0=" in value):
            assert case.check(headers={**other, header: tampered}) is not None, header


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("away", [-400, 400])
def test_an_old_or_early_request_fails(name: str, away: float) -> None:
    """A captured request is worth nothing after the tolerance, nor one from the future."""
    case = CASES[name]
    moment = (
        1492774577 if name == "stripe" else int(case.headers.get("X-Slack-Request-Timestamp", 1614265330))
    )
    assert case.check(now=moment + away) == "timestamp stale"


@pytest.mark.parametrize("name", CASES)
def test_a_secret_that_is_being_changed(name: str) -> None:
    """While the secret changes, requests signed with a previous one still pass."""
    case = CASES[name]
    assert case.check(secret=Secret(password="the new one", previous=("older", case.secret))) is None
    assert case.check(secret=Secret(password="the new one", previous=("older",))) is not None


def test_one_of_several_signatures() -> None:
    """A sender that changes its secret sends a signature for each; one good one will do."""
    good = STANDARD["webhook-signature"]
    several = f"v1a,abc v1,{hmac_base64('x', b'')} {good}"
    assert CASES["standard"].check(headers={**STANDARD, "webhook-signature": several}) is None
    t, v1, _ = CASES["stripe"].headers["Stripe-Signature"].split(",")
    assert CASES["stripe"].check(headers={"Stripe-Signature": f"{t},v1={'0' * 64},{v1}"}) is None
    assert CASES["stripe"].check(headers={"Stripe-Signature": f"{t},{t},{v1}"}) == "timestamp missing"
    assert CASES["stripe"].check(headers={"Stripe-Signature": f"{t},v0={v1[3:]}"}) == "signature missing"


def test_the_id_is_signed_where_the_scheme_has_it() -> None:
    """A Standard Webhooks request cannot be sent again under another id."""
    assert CASES["standard"].check(headers={**STANDARD, "webhook-id": "msg_other"}) == "signature wrong"


def test_twilio_signs_the_address() -> None:
    """Another address fails; a port that only one side writes does not."""
    case = CASES["twilio-form"]
    assert case.check(url="https://mycompany.com/other.php?foo=1&bar=2") == "signature wrong"
    assert case.check(url="https://mycompany.com:443/myapp.php?foo=1&bar=2") is None
    assert case.check(url="https://mycompany.com:bad/x") == "signature wrong"


def test_twilio_signs_the_body() -> None:
    """A body that is no form must be named by its hash in the signed address."""
    json_body = {**CASES["twilio-form"].headers, "Content-Type": "application/json"}
    assert CASES["twilio-form"].check(headers=json_body) == "body not signed"
    assert CASES["twilio-json"].check(body=b"{}") == "body changed"
    assert CASES["twilio-form"].check(body=b"a=%ff") == "form malformed"


def test_a_standard_secret_that_is_no_base64() -> None:
    """It is taken as text, and an empty one never becomes an empty key."""
    signed = b".".join([b"msg_1", b"1614265330", b"{}"])
    for secret, key in (("plain-secret!", "plain-secret!"), ("whsec_", "whsec_")):
        headers = {**STANDARD, "webhook-id": "msg_1", "webhook-signature": f"v1,{hmac_base64(key, signed)}"}
        assert CASES["standard"].check(secret=secret, headers=headers, body=b"{}") is None
        empty = {**headers, "webhook-signature": f"v1,{hmac_base64('', signed)}"}
        assert CASES["standard"].check(secret=secret, headers=empty, body=b"{}") == "signature wrong"


@pytest.mark.parametrize("scheme", SIGNATURES)
def test_a_request_without_a_signature_is_known_early(scheme: str) -> None:
    """Who does not even claim to have signed is refused before the body is read."""
    assert SIGNATURES[scheme].early(Sent(Headers({}))) == "signature missing"


def test_comparisons_take_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every signature goes through ``compare_digest``, with equal lengths."""
    seen: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        seen.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)
    for case in CASES.values():
        before = len(seen)
        case.check()
        assert len(seen) > before
    assert set(seen) == {(32, 32)}


def test_every_preset_has_its_option_and_every_option_its_preset() -> None:
    """The names in the watcher's options, the presets and the signatures are the same."""
    schema = msgspec.json.schema(WebhookConfig)["$defs"]["WebhookConfig"]["properties"]["preset"]
    names = {name for part in [schema, *schema.get("anyOf", ())] for name in part.get("enum", ()) if name}
    assert names == set(PRESETS)
    assert set(SIGNATURES) == set(_SIGNED)
