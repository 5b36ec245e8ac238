"""The HTTP client of the sources that ask an endpoint: credentials, TLS, redirects, limits, clear errors.

**The Connection** (type ``http``, as Airflow's HTTP provider has it): host, with ``https://`` in front or the
scheme in *schema*; port; a login and password for basic authentication, or a password alone for
``Authorization: Bearer``. In the extra:

* ``headers`` and ``params``: objects of further headers and query parameters, such as an API key
* ``verify``: false to trust any certificate, or the path of a CA bundle; ``cert``: the path of a client
  certificate, or a list of certificate and key
* ``proxy``: the address of a proxy; ``trust_env``: false to ignore the environment's proxies
* any other text is a header, as in Airflow's own hook

Credentials go to the Connection's own host only: a redirect or a next page elsewhere is refused.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import datetime as dt
import email.utils
import functools
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["FAILURES", "Answer", "Closed", "HttpClient", "retry_after", "shown", "unless_closed"]

T = TypeVar("T")

FAILURES = (httpx.HTTPError, OSError)
"""What a request can raise: httpx lets some errors of TLS through as they are."""
_NOT_HEADERS = {
    *("headers", "params", "verify", "cert", "proxy", "proxies", "trust_env", "timeout", "stream"),
    *("allow_redirects", "max_redirects", "check_response"),
}
_REMEDIES = {
    401: "check the login and password, or the token, of Connection {conn_id!r}",
    403: "check what the credentials of Connection {conn_id!r} may do",
    404: "check the endpoint, and the host of Connection {conn_id!r}",
    405: "the endpoint must answer GET",
    406: "check the headers that are asked for",
    410: "check the endpoint, and the host of Connection {conn_id!r}",
}
_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 5
_TIMEOUT = 30.0
"""Seconds to connect, and between two pieces of an answer."""
_LONGEST_WAIT = 3600.0
"""A server may ask for an hour of patience at most: a wrong clock must not silence a watcher for days."""
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_asking: contextvars.ContextVar[bool] = contextvars.ContextVar("windsock_http_source_asking", default=False)


class _WithoutOurs(logging.Filter):
    """httpx and httpcore log whole addresses and headers, with the API keys in them; ours are left out."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _asking.get()


for _name in ("httpx", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_WithoutOurs())


class Closed(Exception):
    """The source was closed: there is nothing more to ask."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought; ``wait`` is how long the server wants to be left alone."""

    status: int
    headers: httpx.Headers
    body: bytes
    url: httpx.URL
    wait: float = 0.0


class HttpClient:
    """Asks one Connection's host. Every failure is a SourceError that says what to do, without a secret."""

    def __init__(
        self, connection: Connection, headers: Mapping[str, str], client: httpx.AsyncClient, base: httpx.URL
    ) -> None:
        self._conn_id = connection.conn_id
        self._params = _texts(connection, "params")
        self._headers = httpx.Headers(headers)
        self._headers.update(_headers(connection))
        self._secrets = [
            text
            for text in (connection.password, *self._params.values(), *_headers(connection).values())
            if text and len(text) > 3
        ]
        self._client = client
        self._base = base

    @classmethod
    async def open(cls, connection: Connection, headers: Mapping[str, str]) -> HttpClient:
        """A client for the Connection; nothing is asked yet."""
        base = _base(connection)
        try:
            context = await asyncio.to_thread(_tls, connection, base.scheme)
            client = httpx.AsyncClient(
                verify=context,
                timeout=_TIMEOUT,
                follow_redirects=False,
                proxy=connection.get("proxy"),
                trust_env=connection.flag("trust_env", True),
            )
        except (OSError, ssl.SSLError, ValueError, httpx.InvalidURL) as error:
            raise SourceError(
                f"connection {connection.conn_id!r}: its certificate, CA bundle or proxy cannot be used "
                f"({type(error).__name__}): check 'verify', 'cert' and 'proxy' in its extra"
            ) from None
        return cls(connection, headers, client, base)

    def url(self, endpoint: str, params: Mapping[str, str] | None = None) -> httpx.URL:
        """The address of an endpoint: a path, or a whole address on the Connection's own host."""
        try:
            if _ABSOLUTE.match(endpoint):
                url = self._own(httpx.URL(endpoint))
            else:
                base = str(self._base).rstrip("/")
                url = httpx.URL(f"{base}/{endpoint.lstrip('/')}" if endpoint else base)
        except httpx.InvalidURL:
            raise SourceError(f"endpoint {shown(endpoint)!r} is not an address: give a path") from None
        merged = {**self._params, **(params or {})}
        return url.copy_merge_params(merged) if merged else url

    def follow(self, url: httpx.URL, link: str, params: Mapping[str, str] | None = None) -> httpx.URL:
        """The address that a link in the answer of ``url`` leads to."""
        try:
            found = self._own(url.join(link))
        except httpx.InvalidURL:
            raise SourceError(f"{shown(url)} gave a link that is not an address: check the API") from None
        merged = {**self._params, **(params or {})}
        return found.copy_merge_params(merged) if merged else found

    async def get(
        self, url: httpx.URL, headers: Mapping[str, str] | None = None, *, max_bytes: int, within: float
    ) -> Answer:
        """The answer to a GET: 2xx, 304, or one that asks for patience; all else raises SourceError."""
        try:
            async with asyncio.timeout(within), self.stream(url, headers) as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > max_bytes:
                        raise SourceError(
                            f"{shown(url)} answered more than {max_bytes} bytes: ask for smaller pages, or "
                            "raise max_body"
                        )
                wait = retry_after(response.headers, response.status_code)
                return Answer(response.status_code, response.headers, bytes(body), url, wait)
        except TimeoutError:
            raise SourceError(
                f"{shown(url)} did not answer within {within:g} s: check that it is well, or raise timeout"
            ) from None

    @asynccontextmanager
    async def stream(
        self, url: httpx.URL, headers: Mapping[str, str] | None = None, *, read_timeout: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """The response to a GET, its body still to be read; redirects on the same host are followed."""
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                given = {**self._headers, **(headers or {})}
                raw = [(name.encode("ascii"), value.encode()) for name, value in given.items()]
                request = self._client.build_request("GET", url, headers=raw)
                if read_timeout is not None:
                    request.extensions["timeout"]["read"] = read_timeout
                response = await self._send(request)
                try:
                    if response.status_code in _REDIRECTS and "location" in response.headers:
                        url = self._redirected(url, response.headers["location"])
                        continue
                    self._judge(url, response)
                    yield response
                    return
                finally:
                    await response.aclose()
            raise SourceError(f"{shown(url)} redirects in a circle: check the endpoint")
        except FAILURES as error:
            raise self.unreadable(url, error) from None

    def unreadable(self, url: httpx.URL, error: Exception) -> SourceError:
        """What to say of an endpoint that cannot be reached, or broke off."""
        return SourceError(
            f"{shown(url)} cannot be read ({self._plain(error)}): check that it is there, and the host, "
            f"port and TLS of Connection {self._conn_id!r}"
        )

    async def aclose(self) -> None:
        """Let go of every connection."""
        await self._client.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        token = _asking.set(True)
        try:
            return await self._client.send(request, stream=True)
        finally:
            _asking.reset(token)

    def _judge(self, url: httpx.URL, response: httpx.Response) -> None:
        code = response.status_code
        patient = code == 429 or (code == 503 and "retry-after" in response.headers)
        if response.is_success or code == 304 or patient:
            return
        remedy = _REMEDIES.get(code, "the server's own log says why" if code >= 500 else "check the request")
        reason = f"HTTP {code} {response.reason_phrase}".rstrip()
        raise SourceError(f"{shown(url)} answered {reason}: {remedy.format(conn_id=self._conn_id)}")

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        try:
            return self._own(url.join(location))
        except httpx.InvalidURL:
            raise SourceError(f"{shown(url)} redirects to what is no address: check the endpoint") from None

    def _own(self, url: httpx.URL) -> httpx.URL:
        upgraded = (url.scheme, url.host, url.port) == ("https", self._base.host, None)
        if (url.scheme, url.host, url.port) == _origin(self._base) or (upgraded and self._base.port is None):
            return url
        raise SourceError(
            f"{shown(url)} is not on {shown(self._base)}, the host of Connection {self._conn_id!r}: its "
            "credentials are sent nowhere else; give that host in the Connection if it is the right one"
        )

    def _plain(self, error: Exception) -> str:
        """The error in one line; without its text if that quotes a secret."""
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        return type(error).__name__ if any(secret in text for secret in self._secrets) else text[:200]


async def unless_closed(closed: asyncio.Event, action: Coroutine[Any, Any, T]) -> T:
    """What the action brings; raises :class:`Closed`, and ends it, as soon as the source is closed."""
    doing, closing = asyncio.ensure_future(action), asyncio.ensure_future(closed.wait())
    try:
        await asyncio.wait({doing, closing}, return_when=asyncio.FIRST_COMPLETED)
        if closed.is_set():
            raise Closed
        return doing.result()
    finally:
        doing.cancel()
        closing.cancel()
        await asyncio.gather(doing, closing, return_exceptions=True)


def shown(url: httpx.URL | str) -> str:
    """An address as it may be shown: without login, password, query and fragment."""
    plain = re.split(r"[?#]", str(url), maxsplit=1)[0]
    return re.sub(r"^([^/?#]*://)?[^/?#]*@", r"\1", plain)


def retry_after(headers: Mapping[str, str], status: int, now: float | None = None) -> float:
    """Seconds for which the server wants no request, by any of the headers that servers say it with."""
    now = time.time() if now is None else now
    waits = [0.0]
    if status in (429, 503):
        waits.append(_delay(headers.get("retry-after", ""), now))
    waits += [
        _delay(headers.get(f"{prefix}-reset", ""), now)
        for prefix in ("x-ratelimit", "ratelimit", "x-rate-limit")
        if headers.get(f"{prefix}-remaining", "").strip() == "0"
    ]
    for policy in headers.get("ratelimit", "").split(","):
        parts = dict(part.strip().partition("=")[::2] for part in policy.split(";"))
        if parts.get("r") == "0" or parts.get("remaining") == "0":
            waits.append(_delay(parts.get("t") or parts.get("reset") or "", now))
    wait = max(waits)
    if status == 429 and wait == 0.0:
        wait = 1.0
    return min(wait, _LONGEST_WAIT)


def _delay(text: str, now: float) -> float:
    """Seconds from now, given as such, as Unix time in seconds or milliseconds, or as a date."""
    text = text.strip()
    try:
        value = float(text)
    except ValueError:
        return _until_date(text, now)
    if not 0 <= value < 1e15:
        return 0.0
    if value > 1e12:
        value /= 1000
    return max(0.0, value - now) if value > 1e9 else value


def _until_date(text: str, now: float) -> float:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp() - now)


def _base(connection: Connection) -> httpx.URL:
    host = (connection.host or "").rstrip("/")
    where = f"connection {connection.conn_id!r}"
    if not host:
        raise SourceError(
            f"{where} has no host: give the address of the server, such as https://api.example.com"
        )
    if not _ABSOLUTE.match(host):
        scheme = connection.schema or ("https" if connection.conn_type == "https" else "http")
        host = f"{scheme}://{host}"
    try:
        url = httpx.URL(host)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise SourceError(f"{where}: its host is no http:// or https:// address: mend host and schema")
    return url.copy_with(port=connection.port) if connection.port else url


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _headers(connection: Connection) -> dict[str, str]:
    extra = {n: v for n, v in connection.extra.items() if n not in _NOT_HEADERS and isinstance(v, str)}
    headers = {**extra, **_texts(connection, "headers")}
    if connection.password:
        if connection.login:
            pair = f"{connection.login}:{connection.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
        else:
            headers["Authorization"] = f"Bearer {connection.password}"
    for name, value in headers.items():
        # httpx would refuse it with the value in its message.
        if not _NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise SourceError(
                f"connection {connection.conn_id!r}: header {name!r} must be a header's name with one line "
                "of ASCII text: mend the extra, or the password"
            )
    return headers


def _texts(connection: Connection, name: str) -> dict[str, str]:
    found: Any = connection.get(name, {})
    if not isinstance(found, dict):
        raise SourceError(
            f"connection {connection.conn_id!r}: extra {name!r} must be an object, such as "
            '{"X-Api-Key": "…"}'
        )
    return {str(key): str(value) for key, value in found.items()}


def _tls(connection: Connection, scheme: str) -> ssl.SSLContext | bool:
    if scheme != "https":
        return False  # saves the reading of the CA bundle
    verify, cert = connection.get("verify", True), connection.get("cert")
    if isinstance(verify, str) and verify.strip().lower() in ("true", "false"):
        verify = verify.strip().lower() == "true"
    if verify is True and not cert:
        return _usual_tls()
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(*([cert] if isinstance(cert, str) else cert))
    return context


@functools.cache
def _usual_tls() -> ssl.SSLContext:
    """Reading the CA bundle takes longer than a request: one for all watchers."""
    return httpx.create_ssl_context()
