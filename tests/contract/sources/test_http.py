"""The HTTP source over the published contract suite, and each of its features, against a real server."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import logging
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from contract.sources.http_server import API_KEY, LOGIN, PASSWORD, TOKEN, Api, Reply
from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.testing.processes import free_port
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.sources.hooks import Reader
from windsock.testing.wire import Wire


@pytest.fixture
def api() -> Iterator[Api]:
    """A fresh API, and nothing of it after the test."""
    api = Api()
    yield api
    api.stop()


def shop(port: int, **fields: Any) -> Connection:
    return Connection(
        conn_id="shop",
        conn_type="http",
        host="127.0.0.1",
        port=port,
        **({"password": TOKEN} | fields),
    )


class Hooks:
    """What all HTTP contract tests share: the API behind a wire that can be cut."""

    api: Api
    wire: Wire
    more: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def system(self, api: Api) -> Iterator[None]:
        self.api = api
        with Wire("127.0.0.1", api.port) as wire:
            self.wire = wire
            yield

    def connections(self) -> Sequence[Connection]:
        return [shop(self.wire.port)]

    def options(self) -> dict[str, Any]:
        return {"conn_id": "shop", "interval": 0.1, "id": "id", **self.more}

    async def produce(self, count: int) -> list[str]:
        names = [uuid.uuid4().hex for _ in range(count)]
        self.api.add(*({"id": name, "total": 12} for name in names))
        return names

    def identity(self, event: Event) -> str:
        return event.id

    async def produce_malformed(self) -> bytes:
        self.api.add({"id": None, "total": "no-id-at-all"})
        return b"no-id-at-all"

    async def produce_large(self, size: int) -> str:
        name = uuid.uuid4().hex
        self.api.add({"id": name, "text": "x" * size})
        return name

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        names = [f"{key}-{uuid.uuid4().hex}" for key in keys]
        self.api.add(*({"id": name} for name in names))
        return names

    async def restart_server(self) -> None:
        self.api.stop()
        self.api.start()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [shop(free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [shop(self.wire.port, password="not-the-token")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "endpoint": "nowhere"}, list(self.connections())


class TestWatermark(
    Hooks, MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing
):
    """Items with a number that is passed back to the API, in pages by the Link header."""

    kind = "http"
    more = {"endpoint": "link", "paging": "link", "watermark": "n", "watermark_param": "since"}


class TestListing(Hooks, SourceContract):
    """All items in one answer with an ETag, remembered one by one."""

    kind = "http"
    more = {"endpoint": "list", "items": "data.items"}
    max_cursor = 120_000  # eight bytes for each item on the list, which is why watermarks are better


class TestFeed(Hooks, SourceContract):
    """A feed of changes whose cursor is kept."""

    kind = "http"
    more = {"endpoint": "feed", "items": "changes", "paging": "cursor", "next": "next", "resume": True}


@asynccontextmanager
async def reading(
    api: Api, cursor: dict[str, Any] | None = None, connection: Connection | None = None, **options: Any
) -> AsyncIterator[Reader]:
    """An HTTP source on the API, connected."""
    chosen = {"conn_id": "shop", "interval": 0.1, **options}
    source = make_source("http", chosen, fixed(connection or shop(api.port)))
    async with asyncio.timeout(30):
        await source.connect(cursor)
        try:
            yield Reader(source)
        finally:
            await source.close()


def orders(*ids: str) -> list[dict[str, Any]]:
    return [{"id": id, "total": 1} for id in ids]


async def polls(api: Api, path: str, count: int) -> None:
    """Wait until the path was asked so many times."""
    while len(api.asked(path)) < count:
        await asyncio.sleep(0.01)


async def test_an_unchanged_answer_is_not_sent_again(api: Api) -> None:
    """The ETag goes along with every further request, also after a restart, and 304 brings no event."""
    api.add(*orders("a"))
    async with reading(api, endpoint="list", items="data.items") as reader:
        await reader.read(1)
        waiting = asyncio.create_task(reader.next())
        await polls(api, "/list", 3)
        waiting.cancel()
    assert "if-none-match" not in api.requests[0].headers
    tags = {request.headers["if-none-match"] for request in api.requests[1:]}
    assert len(tags) == 1
    async with reading(api, reader.cursor(), endpoint="list", items="data.items") as again:
        assert api.requests[-1].headers["if-none-match"] in tags
        api.add(*orders("b"))
        assert [event.data["id"] for event in await again.read(1)] == ["b"]


async def test_the_validator_waits_for_the_last_delivery(api: Api) -> None:
    """A crash inside a long list does not make the rest look unchanged: the ETag is kept with the end."""
    api.add(*orders(*(str(n) for n in range(2500))))
    async with reading(api, endpoint="list", items="data.items", id="id") as reader:
        first = await reader.next()
        assert "validators" not in (first.cursor or {})
    async with reading(api, first.cursor, endpoint="list", items="data.items", id="id") as reader:
        rest = await reader.read(1500)
    assert [event.id for event in rest] == [str(n) for n in range(1000, 2500)]
    assert "validators" in (reader.cursor() or {})


@pytest.mark.parametrize(
    "paging",
    [
        {"endpoint": "link", "paging": "link"},
        {
            "endpoint": "cursor",
            "paging": "cursor",
            "next": "paging.next",
            "page_param": "after",
            "items": "data",
        },
        {"endpoint": "page", "paging": "page", "page_size": 700, "page_size_param": "per_page"},
        {"endpoint": "newest", "paging": "offset", "page_size": 900, "newest_first": True},
    ],
    ids=lambda paging: paging["paging"],
)
async def test_every_kind_of_paging(api: Api, paging: dict[str, Any]) -> None:
    """Links, cursors, page numbers and offsets all lead to the last page, oldest item first."""
    names = [str(n) for n in range(2100)]
    api.add(*orders(*names))
    async with reading(api, id="id", **paging) as reader:
        assert [event.id for event in await reader.read(2100)] == names
        cursor = reader.cursor()
        count = len(api.requests)
    assert count >= 3
    async with reading(api, cursor, id="id", **paging) as reader:
        api.add(*orders("new"))
        assert [event.id for event in await reader.read(1)] == ["new"]


async def test_pages_without_end_are_an_error(api: Api) -> None:
    """More pages than allowed are told, with the remedy."""
    api.add(*orders(*map(str, range(3000))))
    with pytest.raises(SourceError, match="more than 2 pages: narrow what is asked for"):
        async with reading(api, endpoint="link", paging="link", max_pages=2, watermark="n") as reader:
            await reader.next()


async def test_the_watermark_is_passed_back(api: Api) -> None:
    """The highest watermark is in the next request and in the cursor; equal ones are told apart by id."""
    api.items += [{"n": 7, "id": "a"}, {"n": 7, "id": "b"}]
    async with reading(
        api, endpoint="link", watermark="n", watermark_param="since", watermark_start=3, id="id"
    ) as reader:
        await reader.read(2)
        assert api.requests[0].query["since"] == "3"
        api.items += [{"n": 7, "id": "c"}, {"n": 6, "id": "late"}, {"n": 9, "id": "d"}]
        assert [event.id for event in await reader.read(4)] == ["a", "b", "c", "d"]
        waiting = asyncio.create_task(reader.next())
        await polls(api, "/link", len(api.requests) + 2)
        waiting.cancel()
    assert api.requests[-1].query["since"] == "9"
    assert (reader.cursor() or {})["mark"] == 9


async def test_only_what_comes_after(api: Api) -> None:
    """With start='latest' the first list is taken as known, also when the reader dies right after."""
    api.add(*orders("old"))
    async with reading(api, endpoint="list", items="data.items", id="id", start="latest") as reader:
        await reader.next()
        cursor = reader.cursor()
    api.add(*orders("new"))
    async with reading(api, cursor, endpoint="list", items="data.items", id="id", start="latest") as reader:
        assert [event.id for event in await reader.read(1)] == ["new"]


async def test_an_event_tells_where_it_came_from(api: Api) -> None:
    """Source, type, subject, id and time are those of the endpoint and the item; a content hash is an id."""
    api.add({"id": 5, "at": "2026-11-03T10:00:00Z"})
    async with reading(api, endpoint="list", items="data.items", id=["id", "n"], time="at") as reader:
        [event] = await reader.read(1)
    assert (event.source, event.type) == (f"{api.url}/list", "windsock.http.item")
    assert (event.id, event.subject) == ("5/1", "5/1")
    assert event.time is not None
    assert event.time.isoformat() == "2026-11-03T10:00:00+00:00"
    async with reading(api, endpoint="list", items="data.items", type="order") as reader:
        [event] = await reader.read(1)
    assert (event.type, event.subject, len(event.id)) == ("order", None, 32)


async def test_a_version_that_changes(api: Api) -> None:
    """Each new value is an event with the previous one; going back to an old value is one as well."""
    async with reading(api, endpoint="version", mode="version", value="app.version") as reader:
        await reader.read(1)
        for version in ("1.1", "1.0"):
            api.version = version
            await reader.read(len(reader.events) + 1)
        cursor = reader.cursor()
    told = [(event.data["previous"], event.data["value"]) for event in reader.events]
    assert told == [(None, "1.0"), ("1.0", "1.1"), ("1.1", "1.0")]
    assert {event.type for event in reader.events} == {"windsock.http.version"}
    assert len({event.id for event in reader.events}) == 3
    async with reading(api, cursor, endpoint="version", mode="version", value="app.version") as reader:
        api.version = "2.0"
        [event] = await reader.read(1)
    assert event.data["previous"] == "1.0"
    assert event.data["body"]["app"] == {"version": "2.0"}


async def test_a_document_that_changes(api: Api) -> None:
    """A body is an event when it changes, asked for by its time of modification; the first may be silent."""
    async with reading(api, endpoint="document", mode="change", start="latest") as reader:
        assert (await reader.next()).events == []
        api.version = "second"
        [event] = await reader.read(1)
        waiting = asyncio.create_task(reader.next())
        await polls(api, "/document", len(api.requests) + 2)
        waiting.cancel()
    assert (event.data, event.type) == ("second", "windsock.http.change")
    assert event.time is not None
    assert api.requests[-1].headers["if-modified-since"] == "Tue, 03 Nov 2026 10:00:06 GMT"


@pytest.mark.parametrize(
    "fields",
    [
        {"password": TOKEN},
        {"login": LOGIN, "password": PASSWORD},
        {"password": None, "extra": {"headers": {"X-Api-Key": API_KEY}}},
        {"password": None, "extra": {"X-Api-Key": API_KEY}},
        {"password": None, "extra": {"params": {"key": API_KEY}}},
    ],
    ids=["bearer", "basic", "header", "airflow-header", "query"],
)
async def test_every_kind_of_credential(
    api: Api, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Bearer, basic and API keys in header and query are sent with every page and appear in no log."""
    api.add(*orders(*map(str, range(1500))))
    with caplog.at_level(logging.DEBUG):
        async with reading(
            api, connection=shop(api.port, **fields), endpoint="link", paging="link"
        ) as reader:
            await reader.read(1500)
    assert not [secret for secret in (TOKEN, PASSWORD, API_KEY) if secret in caplog.text]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"Retry-After": "1"}),
        (503, {"Retry-After": "1"}),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "{soon}"}),
        (429, {}),
    ],
)
async def test_a_limit_is_waited_out(api: Api, status: int, headers: dict[str, str]) -> None:
    """A server that is asked too often is left alone until the time it names, and then read."""
    soon = str(int(time.time()) + 2)
    limit = Reply(b"slow down", status, {name: value.format(soon=soon) for name, value in headers.items()})
    api.once = [limit]
    api.add(*orders("a"))
    async with reading(api, endpoint="list", items="data.items", id="id") as reader:
        assert [event.id for event in await reader.read(1)] == ["a"]
    assert len(api.requests) == 2


async def test_a_limit_between_pages_loses_nothing(api: Api) -> None:
    """A page that is refused for now is asked for again, and the poll goes on where it was."""
    names = [str(n) for n in range(2500)]
    api.add(*orders(*names))
    async with reading(api, endpoint="link", paging="link", id="id") as reader:
        api.once = [Reply(b"", 429, {"Retry-After": "1"})]
        assert [event.id for event in await reader.read(2500)] == names


@pytest.mark.parametrize(
    "headers",
    [
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"},
        {"RateLimit-Remaining": "0", "RateLimit-Reset": "1"},
        {"RateLimit": '"default";r=0;t=1'},
    ],
)
async def test_the_last_allowed_request_is_noticed(
    api: Api, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that says it was the last one allowed delays the next poll, and the log tells."""
    api.once = [Reply.json({"data": {"items": orders("a")}}, **headers)]
    with caplog.at_level(logging.INFO, "windsock.sources.http"):
        async with reading(api, endpoint="list", items="data.items", id="id") as reader:
            await reader.read(1)
            api.add(*orders("b"))
            await reader.read(2)
    assert f"windsock.http.rate_limited url={api.url}/list wait=1s" in caplog.messages


async def test_redirects_stay_on_the_host(api: Api) -> None:
    """A redirect on the same host is followed with the credentials; one to another host is refused."""
    api.add(*orders("a"))
    api.once = [Reply(b"", 307, {"Location": "/list"})]
    async with reading(api, endpoint="old", items="data.items") as reader:
        await reader.read(1)
    other = Api()
    try:
        api.once = [Reply(b"", 307, {"Location": f"{other.url}/list"})]
        with pytest.raises(SourceError, match="credentials are sent nowhere else"):
            async with reading(api, endpoint="old", items="data.items"):
                pass
        assert other.requests == []
    finally:
        other.stop()


async def test_a_next_page_elsewhere_is_refused(api: Api) -> None:
    """A link to another host is not followed: the credentials belong to one host."""
    api.once = [Reply.json(orders("a"), Link='<http://127.0.0.2:1/list>; rel="next"')]
    with pytest.raises(SourceError, match="is not on http"):
        async with reading(api, endpoint="link", paging="link") as reader:
            await reader.read(2)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(b"<html>", 200, {"Content-Type": "text/html"}), "answered what is not JSON"),
        (Reply.json({"orders": []}), "has nothing at 'data.items': set items"),
        (Reply.json({"data": {"items": "none"}}), "has no list at 'data.items'"),
        (Reply.json([1] * 1000), "answered more than 500 bytes"),
        (Reply(b"", 500, {}), "answered HTTP 500 Internal Server Error: the server's own log"),
        (Reply(b"", 403, {}), "check what the credentials of Connection 'shop' may do"),
        (Reply(b"", 302, {"Location": "/list"}), "redirects in a circle"),
    ],
)
async def test_a_wrong_answer_is_told(api: Api, reply: Reply, message: str) -> None:
    """An answer that cannot be used is an error that says what it was and what to do."""
    api.once = [reply] * 10
    with pytest.raises(SourceError, match=message):
        async with reading(api, endpoint="list", items="data.items", max_body=500) as reader:
            await reader.next()


async def test_a_server_that_does_not_answer(api: Api) -> None:
    """A request that takes too long is given up, with the remedy."""
    with api.changed, pytest.raises(SourceError, match=r"did not answer within 0\.2 s"):
        async with reading(api, endpoint="list", timeout=0.2):
            pass


class Certificates:
    """A certificate authority of the test's own, and what it signed, as files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self._write("ca", self._key, self._certificate("ca", self._key, ca=True))
        self.server, self.client = self.issue("127.0.0.1"), self.issue("windsock")

    def issue(self, name: str) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, key, self._certificate(name, key))

    def _certificate(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, ca: bool = False
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Path:
        path = self.directory / f"{name}.pem"
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
        path.write_bytes(private + certificate.public_bytes(encoding))
        return path


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[Api, Certificates]]:
    """An API behind TLS that asks its clients for a certificate."""
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    context.load_cert_chain(certificates.server)
    context.verify_mode = ssl.CERT_REQUIRED
    api = Api(context)
    yield api, certificates
    api.stop()


async def test_tls_with_certificates_of_ones_own(secure: tuple[Api, Certificates]) -> None:
    """A CA bundle and a client certificate in the extra are used; without them the door is shut."""
    api, made = secure
    api.add(*orders("a"))
    good = {"verify": str(made.ca), "cert": str(made.client)}
    async with reading(
        api,
        connection=shop(api.port, schema="https", extra=good),
        endpoint="list",
        items="data.items",
        id="id",
    ) as reader:
        assert [event.id for event in await reader.read(1)] == ["a"]
    for extra in ({"cert": str(made.client)}, {"verify": str(made.ca)}):
        with pytest.raises(SourceError, match="port and TLS of Connection 'shop'"):
            async with reading(api, connection=shop(api.port, schema="https", extra=extra), endpoint="list"):
                pass
    trusting = shop(api.port, schema="https", extra={"verify": "false", "cert": [str(made.client)]})
    async with reading(api, connection=trusting, endpoint="list", items="data.items") as reader:
        await reader.read(1)


async def test_certificates_that_are_not_there(secure: tuple[Api, Certificates]) -> None:
    """A path that leads nowhere is told, with what to check."""
    api, made = secure
    for extra in ({"verify": "/no/such/ca.pem"}, {"verify": str(made.ca), "cert": "/no/such/cert.pem"}):
        with pytest.raises(SourceError, match="check 'verify', 'cert' and 'proxy' in its extra"):
            async with reading(api, connection=shop(api.port, schema="https", extra=extra), endpoint="list"):
                pass


async def test_an_empty_answer_is_no_news(api: Api) -> None:
    """204 and null are lists without items."""
    api.once = [Reply(b"", 204, {}), Reply.json({"data": {"items": None}})]
    async with reading(api, endpoint="list", items="data.items", id="id") as reader:
        waiting = asyncio.create_task(reader.read(1))
        await polls(api, "/list", 3)
        api.add(*orders("a"))
        assert [event.id for event in await waiting] == ["a"]
