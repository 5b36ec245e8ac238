"""The door: lets in who proves, in the way that the watcher asks for, that they may send.

What can be told from the headers is checked before the body is read, so that strangers do not get to send
one; a signature is checked with the body.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from fastapi import HTTPException, Request

from windsock.gateway.auth import (
    Secret,
    Secrets,
    SecretUnavailable,
    check_basic,
    check_bearer,
    check_query,
    check_signature,
    check_timestamp,
)
from windsock.gateway.documents import Documents, DocumentUnavailable
from windsock.gateway.hooks import Hook
from windsock.gateway.oidc import check_token
from windsock.gateway.presets.signatures import SIGNATURES
from windsock.gateway.presets.sns import check_sns
from windsock.gateway.refusal import Refused
from windsock.gateway.sent import Sent

__all__ = ["AirflowUser", "Door"]

logger = logging.getLogger("windsock.gateway")

_CHALLENGES = {
    "bearer": "Bearer", "oidc": "Bearer", "airflow": "Bearer",
    "basic": 'Basic realm="windsock", charset="UTF-8"',
}  # fmt: skip

AirflowUser = Callable[[Request], Awaitable[object | None]]


class Door:
    """Refuses with 401 who may not send, and with 503 while that cannot be found out."""

    def __init__(
        self,
        secrets: Secrets,
        documents: Documents,
        airflow_user: AirflowUser | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = secrets
        self._documents = documents
        self._airflow_user = airflow_user
        self._now = now

    async def check_headers(self, hook: Hook, sent: Sent, request: Request) -> None:
        """What can be told before the body is read."""
        config, scheme = hook.config, hook.config.scheme
        failed: str | None = None
        if scheme in SIGNATURES:
            failed = SIGNATURES[scheme].early(sent)
        else:
            match scheme:
                case "hmac":
                    failed = check_timestamp(config, sent.headers, self._now())
                case "bearer":
                    failed = check_bearer(await self._secret(hook), sent.headers)
                case "basic":
                    failed = check_basic(await self._secret(hook), sent.headers)
                case "query":
                    failed = check_query(await self._secret(hook), sent.query)
                case "oidc":
                    failed = await self._with_documents(
                        check_token(config, sent.headers, self._documents, self._now())
                    )
                case "airflow":
                    failed = await self._check_airflow(request)
                case "sns":
                    failed = None if "x-amz-sns-message-type" in sent.headers else "signature missing"
        if failed:
            raise _not_authorised(hook, failed)

    async def check_body(self, hook: Hook, sent: Sent) -> None:
        """The signature, once the body is there."""
        config, scheme = hook.config, hook.config.scheme
        failed: str | None = None
        if scheme == "hmac":
            failed = check_signature(config, await self._secret(hook), sent.headers, sent.body, self._now())
        elif scheme == "sns":
            failed = await self._with_documents(check_sns(sent, config.sender or "", self._documents))
        elif scheme in SIGNATURES:
            secret = await self._secret(hook)
            failed = SIGNATURES[scheme].check(sent, secret, tolerance=config.tolerance, now=self._now())
        if failed:
            raise _not_authorised(hook, failed)

    async def _secret(self, hook: Hook) -> Secret:
        try:
            return await self._secrets.get(hook.config.conn_id or "")
        except SecretUnavailable as error:
            raise _not_ready() from error

    async def _with_documents(self, check: Awaitable[str | None]) -> str | None:
        try:
            return await check
        except DocumentUnavailable as error:
            logger.error("windsock.gateway.not_ready: %s", error)
            raise _not_ready() from error

    async def _check_airflow(self, request: Request) -> str | None:
        if self._airflow_user is None:
            return "Airflow token not supported by this server"
        try:
            user = await self._airflow_user(request)
        except HTTPException as error:
            return f"Airflow token refused with {error.status_code}"
        return None if user is not None else "Airflow token missing or user not allowed"


def _not_ready() -> Refused:
    return Refused(503, "the webhook is not ready: try again later", retry_after=30)


def _not_authorised(hook: Hook, failed: str) -> Refused:
    logger.warning("windsock.gateway.not_authorised watcher=%s check=%r", hook.spec.name, failed)
    challenge = _CHALLENGES.get(hook.config.scheme)
    return Refused(401, "not authorised", headers={"WWW-Authenticate": challenge} if challenge else None)
