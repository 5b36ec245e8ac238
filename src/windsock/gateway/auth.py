"""Who may send: signatures, tokens and passwords, compared in constant time.

The checks are pure functions that return None, or the name of the check that failed. That name goes to the
server's log; the sender only ever learns "not authorised". Secrets come from an injected function, are
remembered for half a minute, and appear in no log record, error or ``repr``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from windsock.events import WindsockError
from windsock.sources.webhook import WebhookConfig

__all__ = [
    "Secret",
    "SecretUnavailable",
    "Secrets",
    "check_basic",
    "check_bearer",
    "check_query",
    "check_signature",
    "check_timestamp",
    "same",
    "seconds_away",
    "sign",
]

logger = logging.getLogger("windsock.gateway.auth")

_SECONDS = re.compile(r"[0-9]{1,11}(\.[0-9]{1,9})?")


class SecretUnavailable(WindsockError):
    """The watcher's secret cannot be had now, so nobody can be let in; the server's log says why."""


@dataclass(frozen=True, slots=True)
class Secret:
    """What an Airflow Connection holds: a login for basic authentication, and the password.

    While a secret is being changed, ``previous`` are the older ones that still count.
    """

    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    previous: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, login: str | None, password: str | None, extra: Mapping[str, Any]) -> Self:
        """The secret in a Connection's fields; the extra ``previous`` is a text or a list of texts."""
        previous = extra.get("previous")
        older = previous if isinstance(previous, list) else [previous]
        return cls(
            login or "", password or "", tuple(text for text in older if text and isinstance(text, str))
        )

    @property
    def passwords(self) -> tuple[str, ...]:
        """Every one that counts, the newest first."""
        return (self.password, *self.previous)


class Secrets:
    """The injected lookup with a memory, so that a burst of requests asks the secrets backend once.

    What was found is good for ``keep`` seconds. A failure is remembered for ``keep_failure`` seconds, so
    that a backend that is away is not asked once per request.
    """

    def __init__(
        self,
        lookup: Callable[[str], Awaitable[Secret]],
        *,
        keep: float = 30.0,
        keep_failure: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lookup = lookup
        self._keep = keep
        self._keep_failure = keep_failure
        self._clock = clock
        self._known: dict[str, tuple[float, Secret | None]] = {}
        self._asking = asyncio.Lock()

    async def get(self, conn_id: str) -> Secret:
        """The secret of the connection; raises :class:`SecretUnavailable` if it has none or is not found."""
        secret = self._remembered(conn_id)
        if secret is None:
            async with self._asking:
                secret = self._remembered(conn_id) or await self._ask(conn_id)
        return secret

    def _remembered(self, conn_id: str) -> Secret | None:
        until, secret = self._known.get(conn_id, (0.0, None))
        if conn_id not in self._known or self._clock() >= until:
            return None
        if secret is None:
            raise SecretUnavailable(f"connection {conn_id!r} gave no secret a moment ago")
        return secret

    async def _ask(self, conn_id: str) -> Secret:
        secret: Secret | None = None
        try:
            secret = await self._lookup(conn_id)
            why = "it has no password"
        except Exception as error:  # noqa: BLE001 - a backend may raise anything
            # Only the class: a backend's message may quote the connection's URI, secret included.
            why = type(error).__name__
        if secret is None or not secret.password:
            self._known[conn_id] = (self._clock() + self._keep_failure, None)
            logger.error(
                "windsock.gateway.secret_unavailable conn_id=%s reason=%s "
                "(add the Airflow Connection, with the secret as its password)",
                conn_id,
                why,
            )
            raise SecretUnavailable(f"connection {conn_id!r} gave no secret")
        self._known[conn_id] = (self._clock() + self._keep, secret)
        return secret


def sign(secret: str, body: bytes, timestamp: str | None = None, id: str | None = None) -> str:
    """The hex HMAC-SHA256 that a sender puts into the signature header, after the prefix.

    It covers the body, preceded by the timestamp and, with ``id_signed``, by the delivery id, joined by dots.
    """
    parts = [part.encode("latin-1") for part in (timestamp, id) if part is not None]
    return hmac.new(secret.encode(), b".".join([*parts, body]), hashlib.sha256).hexdigest()


def seconds_away(timestamp: str, now: float) -> float | None:
    """How far a timestamp in Unix seconds is from now; None if it is none."""
    return abs(now - float(timestamp)) if _SECONDS.fullmatch(timestamp) else None


def check_timestamp(config: WebhookConfig, headers: Mapping[str, str], now: float) -> str | None:
    """Whether signature, timestamp and id are there and the timestamp is near ``now``: needs no body."""
    if config.header not in headers:
        return "signature missing"
    # A dot in either would let a part of one be taken for a part of the other.
    if config.id_signed and (not headers.get(config.id_header) or "." in headers[config.id_header]):
        return "signed id missing or with a dot"
    if config.timestamp_header is None:
        return None
    timestamp = headers.get(config.timestamp_header)
    if timestamp is None:
        return "timestamp missing"
    away = seconds_away(timestamp, now)
    if away is None or (config.id_signed and "." in timestamp):
        return "timestamp malformed"
    return "timestamp stale" if away > config.tolerance else None


def check_signature(
    config: WebhookConfig, secret: Secret, headers: Mapping[str, str], body: bytes, now: float
) -> str | None:
    """Whether the signature is the one of this body, timestamp and id."""
    failed = check_timestamp(config, headers, now)
    if failed:
        return failed
    timestamp = headers[config.timestamp_header] if config.timestamp_header is not None else None
    id = headers[config.id_header] if config.id_signed else None
    given = headers[config.header].strip()
    if not given.startswith(config.prefix):
        return "signature without its prefix"
    digits = given.removeprefix(config.prefix).lower()
    right = [same(digits, sign(password, body, timestamp, id)) for password in secret.passwords]
    return None if any(right) else "signature wrong"


def check_bearer(secret: Secret, headers: Mapping[str, str]) -> str | None:
    """Whether ``Authorization: Bearer`` carries the secret."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return "bearer token missing"
    return None if _any(token.strip(), secret) else "bearer token wrong"


def check_basic(secret: Secret, headers: Mapping[str, str]) -> str | None:
    """Whether ``Authorization: Basic`` carries the login and the password."""
    scheme, _, coded = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return "basic credentials missing"
    try:
        plain = base64.b64decode(coded.strip(), validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        return "basic credentials malformed"
    login, _, password = plain.partition(":")
    # Both are always compared, so that a known login is not answered later than an unknown one.
    right = same(login, secret.login) & _any(password, secret)
    return None if right else "login or password wrong"


def check_query(secret: Secret, query: Mapping[str, str]) -> str | None:
    """Whether ``?token=`` carries the secret, for senders that can only be given an address."""
    token = query.get("token")
    if token is None:
        return "query token missing"
    # The query was decoded as UTF-8, unlike a header.
    return None if _any(token.encode("utf-8", "replace").decode("latin-1"), secret) else "query token wrong"


def same(given: str, expected: str) -> bool:
    """Compare header text with a secret, in a time that tells nothing of the secret.

    Header text is latin-1 by HTTP's rules, so its bytes are what the sender wrote. Digests, because of texts
    of different length ``compare_digest`` would tell how long the secret is.
    """
    left = hashlib.sha256(given.encode("latin-1", "backslashreplace")).digest()
    return hmac.compare_digest(left, hashlib.sha256(expected.encode()).digest())


def _any(given: str, secret: Secret) -> bool:
    # A list: all are compared, so that the time does not tell which one it was.
    return True in [same(given, password) for password in secret.passwords]
