"""Signatures, tokens, passwords and the memory for secrets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging

import pytest
from starlette.datastructures import Headers

from windsock.gateway import auth
from windsock.gateway.auth import Secret, Secrets, SecretUnavailable
from windsock.sources.webhook import WebhookConfig

NOW = 1_800_000_000.0
SECRET = Secret(login="shop", password="pa55-wörd")
CONFIG = WebhookConfig(auth="hmac", conn_id="shop")
BODY = b'{"total": 120}'


def signed(
    body: bytes = BODY, *, timestamp: str = "1800000000", password: str = SECRET.password
) -> dict[str, str]:
    """The headers of an honest sender, made by hand and not with the code under test."""
    digest = hmac.new(password.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Windsock-Timestamp": timestamp, "X-Windsock-Signature": f"sha256={digest}"}


def check(headers: dict[str, str], *, body: bytes = BODY, config: WebhookConfig = CONFIG) -> str | None:
    return auth.check_signature(config, SECRET, Headers(headers), body, NOW)


def test_a_good_signature_passes() -> None:
    """HMAC-SHA256 over timestamp, dot and body, in hex after the prefix, is accepted."""
    assert check(signed()) is None


def test_sign_is_what_a_sender_does() -> None:
    """``sign`` gives the digits that ``check_signature`` accepts."""
    digits = auth.sign(SECRET.password, BODY, "1800000000")
    assert signed()["X-Windsock-Signature"] == f"sha256={digits}"


def test_hex_digits_may_be_upper_case() -> None:
    """Senders that write hex in capitals are understood."""
    headers = signed()
    digits = headers["X-Windsock-Signature"].removeprefix("sha256=")
    assert check(headers | {"X-Windsock-Signature": f"sha256={digits.upper()}"}) is None


@pytest.mark.parametrize(
    ("headers", "failed"),
    [
        (signed(b"other"), "signature wrong"),
        (signed(password="other"), "signature wrong"),
        (signed() | {"X-Windsock-Timestamp": "1800000001"}, "signature wrong"),
        (signed() | {"X-Windsock-Signature": "sha256="}, "signature wrong"),
        (signed() | {"X-Windsock-Signature": "sha256=abc"}, "signature wrong"),
        (signed() | {"X-Windsock-Signature": "sha256=" + "0" * 64}, "signature wrong"),
        (signed() | {"X-Windsock-Signature": "sha256=\xff\xfe"}, "signature wrong"),
        (signed() | {"X-Windsock-Signature": "md5=abc"}, "signature without its prefix"),
        ({"X-Windsock-Timestamp": "1800000000"}, "signature missing"),
        ({"X-Windsock-Signature": "sha256=abc"}, "timestamp missing"),
        (signed(timestamp="1799999699"), "timestamp stale"),
        (signed(timestamp="1800000301"), "timestamp stale"),
        (signed(timestamp="soon"), "timestamp malformed"),
        (signed(timestamp="-1800000000"), "timestamp malformed"),
        (signed(timestamp="1e9"), "timestamp malformed"),
        (signed(timestamp=""), "timestamp malformed"),
        (signed(timestamp="9" * 400), "timestamp malformed"),
    ],
)
def test_a_bad_signature_fails(headers: dict[str, str], failed: str) -> None:
    """Changed, foreign, short, missing, old and early signatures fail, and the check that failed is named."""
    assert check(headers) == failed


@pytest.mark.parametrize("timestamp", ["1799999700", "1800000300", "1800000000.5"])
def test_the_tolerance_is_inclusive(timestamp: str) -> None:
    """A timestamp may be as far from now as the tolerance says, in both directions."""
    assert check(signed(timestamp=timestamp)) is None


def test_body_only_signatures_are_a_choice() -> None:
    """Without a timestamp header the signature covers the body alone, as GitHub signs."""
    config = WebhookConfig(
        auth="hmac", conn_id="shop", header="X-Hub-Signature-256", timestamp_header=None, type_header=None
    )
    digest = hmac.new(SECRET.password.encode(), BODY, hashlib.sha256).hexdigest()
    assert check({"X-Hub-Signature-256": f"sha256={digest}"}, config=config) is None
    assert check({"X-Hub-Signature-256": f"sha256={digest}"}, config=config, body=b"x") == "signature wrong"


def bearer(token: str) -> Headers:
    return Headers({"Authorization": f"Bearer {token}"})


def raw_authorization(value: bytes) -> Headers:
    return Headers(raw=[(b"authorization", value)])


def test_bearer() -> None:
    """Only the whole token passes, also one with letters outside ASCII as its sender's UTF-8."""
    secret = Secret(password="token")
    assert auth.check_bearer(secret, bearer("token")) is None
    assert auth.check_bearer(SECRET, raw_authorization(b"bearer " + SECRET.password.encode())) is None
    for wrong in ("toke", "token2", "TOKEN", "", "token\xff"):
        assert auth.check_bearer(secret, bearer(wrong)) == "bearer token wrong"
    assert auth.check_bearer(secret, Headers({})) == "bearer token missing"
    assert auth.check_bearer(secret, Headers({"Authorization": "Basic token"})) == "bearer token missing"


def basic(login: str, password: str) -> Headers:
    coded = base64.b64encode(f"{login}:{password}".encode()).decode()
    return Headers({"Authorization": f"Basic {coded}"})


def test_basic() -> None:
    """Login and password must both be right; a colon may be part of the password."""
    assert auth.check_basic(SECRET, basic("shop", SECRET.password)) is None
    assert auth.check_basic(Secret("a", "b:c"), basic("a", "b:c")) is None
    for login, password in (("shop", "x"), ("other", SECRET.password), ("", ""), ("shop", "")):
        assert auth.check_basic(SECRET, basic(login, password)) == "login or password wrong"
    assert auth.check_basic(SECRET, Headers({})) == "basic credentials missing"
    for malformed in ("Basic ///!", "Basic \xff", "Basic abc"):
        assert (
            auth.check_basic(SECRET, Headers({"Authorization": malformed})) == "basic credentials malformed"
        )


def test_comparisons_take_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every comparison goes through ``compare_digest`` with equal lengths; an unknown login costs as many."""
    seen: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        seen.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)
    check(signed() | {"X-Windsock-Signature": "sha256=abc"})
    auth.check_bearer(SECRET, bearer("x"))
    assert seen == [(32, 32)] * 2
    seen.clear()
    auth.check_basic(SECRET, basic("nobody", "x"))
    unknown = len(seen)
    auth.check_basic(SECRET, basic("shop", "x"))
    assert seen == [(32, 32)] * 4
    assert unknown == 2


def test_a_secret_hides_itself() -> None:
    """Neither the login nor the password is in the text of a secret."""
    assert repr(SECRET) == "Secret()"


class Backend:
    """A secrets backend that counts its calls, and fails when told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.now = 0.0
        self.answer: Secret | Exception = SECRET

    async def __call__(self, conn_id: str) -> Secret:
        self.calls += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def secrets(self) -> Secrets:
        return Secrets(self, clock=lambda: self.now)


async def test_a_burst_asks_once() -> None:
    """Many requests at once ask the secrets backend one time, and again only after half a minute."""
    backend = Backend()
    secrets = backend.secrets()
    assert set(await asyncio.gather(*(secrets.get("shop") for _ in range(50)))) == {SECRET}
    assert backend.calls == 1
    backend.now = 29.9
    await secrets.get("shop")
    assert backend.calls == 1
    backend.now, backend.answer = 30.0, Secret(password="rotated")
    assert (await secrets.get("shop")).password == "rotated"


@pytest.mark.parametrize(
    "answer", [RuntimeError("postgresql://shop:pa55-wörd@db"), Secret(login="shop"), Secret()]
)
async def test_no_secret_lets_nobody_in(answer: Secret | Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A failing backend and an empty password are errors; the backend's words, secret included, stay out."""
    backend = Backend()
    backend.answer = answer
    secrets = backend.secrets()
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            with pytest.raises(SecretUnavailable) as caught:
                await secrets.get("shop")
            assert SECRET.password not in str(caught.value)
    assert backend.calls == 1
    assert "conn_id=shop" in caplog.text
    assert SECRET.password not in caplog.text
    backend.now, backend.answer = 2.0, SECRET
    assert await secrets.get("shop") == SECRET
