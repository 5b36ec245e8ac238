"""Refused: a request that was not accepted, with what the sender may know about it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from fastapi import Response

from windsock.events import WindsockError

__all__ = ["Refused"]


class Refused(WindsockError):
    """Nothing was stored; ``status`` is the HTTP status and the message is safe to show to the sender."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))

    def response(self) -> Response:
        """The HTTP answer: the detail in the shape that Airflow's own API uses."""
        body = msgspec.json.encode({"detail": self.detail})
        return Response(body, self.status, headers=self.headers, media_type="application/json")
