"""HttpProbe: asks an HTTP endpoint once and says what came of it. No secret is ever shown.

The secrets are those of an Airflow Connection:

- host, port and schema (``http`` or ``https``): the base address that an endpoint's path is joined to
- password: ``Authorization: Bearer …``; with a login, basic authentication
- extra ``{"headers": {...}, "params": {...}}``: further headers and query parameters

They are sent to the Connection's own host only, and an endpoint is shown without its query.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import datetime as dt
import email.utils
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from windsock.json_path import MISSING, JsonPath, matches
from windsock.values import InvalidEvent, WindsockError, describe, normalise, parse_json

__all__ = ["Access", "Answer", "EndpointError", "HttpProbe", "shown"]

MAX_BYTES = 1_000_000
"""A longer answer is not read to its end: a status is small, and the triggerer is shared."""

_TRY_AGAIN = {408, 425, 429}
_HINTS = {
    401: "check the password (and login) of the Connection in conn_id",
    403: "check what the credentials of the Connection in conn_id are allowed to do",
    404: "check the endpoint's address",
    405: "the endpoint must answer GET",
    410: "check the endpoint's address",
}
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_asking: contextvars.ContextVar[bool] = contextvars.ContextVar("windsock_http_probe_asking", default=False)


class EndpointError(WindsockError, ValueError):
    """The endpoint, a header or the Connection is unusable; the message says which and what to mend."""


class _WithoutOurs(logging.Filter):
    """httpx writes whole addresses into its log, with their queries; ours are left out."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _asking.get()


logging.getLogger("httpx").addFilter(_WithoutOurs())


@dataclass(frozen=True)
class Access:
    """What a Connection adds to a request."""

    conn_id: str = ""
    base: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, connection: Any) -> Access:
        """Read a Connection; raises :class:`EndpointError`."""
        where = f"Connection {connection.conn_id!r}"
        try:
            extra = json.loads(connection.extra or "{}")
            headers = {str(name): str(value) for name, value in extra.get("headers", {}).items()}
            params = {str(name): str(value) for name, value in extra.get("params", {}).items()}
        except (ValueError, AttributeError):
            raise EndpointError(
                f'{where}: extra must be a JSON object such as {{"headers": {{"X-Api-Key": "…"}}}}'
            ) from None
        secrets = [*headers.values(), *params.values()]
        if connection.password:
            if connection.login:
                pair = f"{connection.login}:{connection.password}".encode()
                kind, token = "Basic", base64.b64encode(pair).decode("ascii")
            else:
                kind, token = "Bearer", connection.password
            headers["Authorization"] = f"{kind} {token}"
            secrets += [connection.password, token]
        _check_headers(headers, where)
        return cls(connection.conn_id, _base(connection), headers, params, tuple(secrets))


@dataclass(frozen=True)
class Answer:
    """What one request brought."""

    state: Literal["ready", "waiting", "failed", "refused"]
    """``failed`` may be better next time; ``refused`` will not."""
    value: Any = MISSING
    """What stood at the path."""
    response: Any = None
    problem: str = ""
    status_code: int | None = None
    retry_after: float = 0.0


class HttpProbe:
    """One endpoint, the path to look at in its JSON answer, and the value to find there."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        path: JsonPath,
        expected: Any,
        access: Access,
        *,
        request_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._url = _join(endpoint, access)
        _check_headers(headers, "headers")
        self._headers = httpx.Headers(headers)
        self._headers.update(access.headers)
        self.secrets = (*access.secrets, *filter(None, [self._url.password]))
        """Every text of the request that must not appear in a log."""
        self._path = path
        self._expected = expected
        self._timeout = request_timeout
        self._clock = clock

    async def ask(self, client: httpx.AsyncClient) -> Answer:
        """Send one GET. Everything that the world can do to it is an answer; only cancellation is raised."""
        token = _asking.set(True)
        try:
            async with asyncio.timeout(self._timeout):
                async with client.stream(
                    "GET", self._url, headers=self._headers, follow_redirects=False
                ) as response:
                    body = bytearray()
                    async for part in response.aiter_bytes():
                        body += part
                        if len(body) > MAX_BYTES:
                            return Answer("failed", problem=f"the answer is longer than {MAX_BYTES} bytes")
        except TimeoutError:
            return Answer("failed", problem=f"no answer within {self._timeout:g} s")
        except httpx.HTTPError as error:
            return Answer("failed", problem=describe(error))
        finally:
            _asking.reset(token)
        return self._judge(response, bytes(body))

    def _judge(self, response: httpx.Response, body: bytes) -> Answer:
        code = response.status_code
        problem = f"HTTP {code} {response.reason_phrase}".rstrip()
        if code in _TRY_AGAIN or code >= 500:
            return Answer(
                "failed", problem=problem, status_code=code, retry_after=self._retry_after(response)
            )
        if not response.is_success:
            hint = _HINTS.get(code, "the request itself is wrong, asking again would not help")
            if response.has_redirect_location:
                hint = f"redirects are not followed, give the address {_target(response)}"
            return Answer("refused", problem=f"{problem}: {hint}", status_code=code)
        try:
            document = normalise(parse_json(body))
        except InvalidEvent as error:
            return Answer("failed", problem=str(error), status_code=code)
        value = self._path.find(document)
        ready = matches(self._expected, value)
        return Answer("ready" if ready else "waiting", value, document, status_code=code)

    def _retry_after(self, response: httpx.Response) -> float:
        """The seconds that the server asks us to stay away, given as such or as a date."""
        text = response.headers.get("Retry-After", "")
        if text.isascii() and text.isdigit():
            return float(text)
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        return max(0.0, moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp() - self._clock())


def shown(endpoint: str) -> str:
    """The endpoint as it may be shown: without login, password, query and fragment."""
    return re.sub(r"^([^/?#]*://)?[^/?#]*@", r"\1", re.split(r"[?#]", endpoint, maxsplit=1)[0])


def _target(response: httpx.Response) -> str:
    try:
        return shown(str(response.url.join(response.headers["Location"])))
    except httpx.InvalidURL:
        return "that it means"


def _base(connection: Any) -> str:
    host = (connection.host or "").rstrip("/")
    if not host:
        return ""
    if not _ABSOLUTE.match(host):
        scheme = connection.schema or ("https" if connection.conn_type == "https" else "http")
        host = f"{scheme}://{host}"
    try:
        url = httpx.URL(host)
    except httpx.InvalidURL:
        raise EndpointError(f"Connection {connection.conn_id!r}: its host is not an address") from None
    return str(url.copy_with(port=connection.port) if connection.port else url).rstrip("/")


def _join(endpoint: str, access: Access) -> httpx.URL:
    """The address to ask; the Connection's secrets go to no other host than its own."""
    whole = endpoint
    if access.base and not _ABSOLUTE.match(endpoint):
        whole = f"{access.base}/{endpoint.lstrip('/')}"
    try:
        url = httpx.URL(whole)
        base = httpx.URL(access.base)
    except httpx.InvalidURL:
        raise EndpointError(f"endpoint {shown(endpoint)!r} is not an address") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise EndpointError(
            f"endpoint {shown(endpoint)!r} is not an http:// or https:// address; a mere path needs the"
            " conn_id of a Connection with a host"
        )
    if access.base and (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port):
        raise EndpointError(
            f"endpoint {shown(endpoint)!r} is not on {shown(access.base)!r}, the host of Connection"
            f" {access.conn_id!r}: its secrets are not sent elsewhere; give a path, or another conn_id"
        )
    return url.copy_merge_params(dict(access.params)) if access.params else url


def _check_headers(headers: Mapping[str, str], where: str) -> None:
    """Refuse here what the HTTP library would refuse with the value in its message."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise EndpointError(f"{where}: {name!r} is not a header's name")
        if (
            not isinstance(value, str)
            or not value.isascii()
            or not value.isprintable()
            or value != value.strip()
        ):
            raise EndpointError(
                f"{where}: the value of header {name!r} must be one line of ASCII text without spaces or line"
                " breaks around it"
            )
