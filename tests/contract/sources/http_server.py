"""An honest HTTP API on loopback: items in every kind of paging, ETags, rate limits, a stream of events."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

TOKEN = "t0ken-of-the-shop"
LOGIN, PASSWORD = "shop", "pa55-of-the-shop"
API_KEY = "k3y-of-the-shop"
PAGE = 1000


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass
class Reply:
    """One answer."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    @classmethod
    def json(cls, value: Any, **headers: str) -> Reply:
        return cls(json.dumps(value).encode(), headers={"Content-Type": "application/json", **headers})


class Api:
    """The server. What it holds survives :meth:`stop` and :meth:`start`, as on a disk."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.items: list[dict[str, Any]] = []
        self.requests: list[Asked] = []
        self.version = "1.0"
        self.once: list[Reply] = []
        """Answers to give before anything else."""
        self.stream_tail: bytes | None = None
        """What to send before the stream is ended; None to keep it open."""
        self.port = 0
        self.changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        api = self

        class Handler(_Handler):
            owner = api

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Gone at once, with every connection reset."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
        with self.changed:
            self.changed.notify_all()

    def add(self, *items: dict[str, Any]) -> None:
        """Put items at the end; each gets its number."""
        with self.changed:
            for item in items:
                self.items.append({"n": len(self.items) + 1, **item})
            self.changed.notify_all()

    def asked(self, path: str) -> list[Asked]:
        return [request for request in self.requests if request.path == path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Api

    def setup(self) -> None:
        super().setup()
        self.owner._connections.add(self.connection)

    def finish(self) -> None:
        self.owner._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        self.owner.requests.append(Asked(parts.path, query, {k.lower(): v for k, v in self.headers.items()}))
        try:
            if parts.path == "/stream" and self._allowed(query):
                self._stream()
            else:
                self._answer(self._reply(parts.path, query))
        except (OSError, ValueError):
            self.close_connection = True

    def _reply(self, path: str, query: Mapping[str, str]) -> Reply:
        if not self._allowed(query):
            return Reply(b'{"detail": "who are you?"}', 401)
        if self.owner.once:
            return self.owner.once.pop(0)
        page: Callable[[Api, str, Mapping[str, str]], Reply] | None = PATHS.get(path)
        if page is None:
            return Reply(b'{"detail": "not here"}', 404)
        with self.owner.changed:
            return page(self.owner, path, query)

    def _allowed(self, query: Mapping[str, str]) -> bool:
        pair = base64.b64encode(f"{LOGIN}:{PASSWORD}".encode()).decode()
        given = self.headers.get("Authorization")
        return (
            given in (f"Bearer {TOKEN}", f"Basic {pair}")
            or self.headers.get("X-Api-Key") == API_KEY
            or query.get("key") == API_KEY
        )

    def _answer(self, reply: Reply) -> None:
        headers = dict(reply.headers)
        if reply.status == 200:
            etag = '"' + hashlib.sha256(reply.body).hexdigest()[:16] + '"'
            headers.setdefault("ETag", etag)
            if self.headers.get("If-None-Match") == headers["ETag"]:
                reply = Reply(b"", 304)
            since = self.headers.get("If-Modified-Since")
            if since is not None and since == headers.get("Last-Modified"):
                reply = Reply(b"", 304)
        self.send_response(reply.status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        if reply.status != 304:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def _stream(self) -> None:
        """Every item behind the Last-Event-ID, then what comes, then the tail if there is one."""
        if self.owner.once:
            self._answer(self.owner.once.pop(0))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        last = int(self.headers.get("Last-Event-ID") or 0)
        server = self.owner._server
        self.wfile.write(b": welcome\nretry: 50\n\n")
        while server is not None and self.owner._server is server:
            with self.owner.changed:
                new = self.owner.items[last:]
                tail = self.owner.stream_tail
            self.wfile.write(b"".join(map(_text, new)))
            last += len(new)
            if tail is not None:
                self.wfile.write(tail)
                return
            with self.owner.changed:
                if len(self.owner.items) == last:
                    self.owner.changed.wait(0.5)
            self.wfile.write(b": still here\n\n")

    def log_message(self, *_: Any) -> None:
        """The test says what is worth saying."""


def _text(item: Mapping[str, Any]) -> bytes:
    data = item["raw"] if "raw" in item else json.dumps(item)
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    name = f"event: {item['event']}\n" if "event" in item else ""
    return f"id: {item['n']}\n{name}{lines}\n".encode()


def _window(items: list[dict[str, Any]], start: int, size: int) -> list[dict[str, Any]]:
    return items[start : start + size]


def _list(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    return Reply.json({"data": {"items": api.items}})


def _newest(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    start, size = int(query.get("offset", 0)), int(query.get("limit", PAGE))
    return Reply.json(_window(api.items[::-1], start, size))


def _link(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    """Items from ``since`` on, page by page, with a Link header and no ETag."""
    since, start = int(query.get("since", 0)), int(query.get("from", 0))
    items = [item for item in api.items if item.get("n", 0) >= since]
    headers = {"ETag": ""}
    if start + PAGE < len(items):
        more = urlencode({**query, "from": start + PAGE})
        headers["Link"] = f'<{path}?{urlencode(query)}>; rel="first", <{path}?{more}>; rel="next"'
    return Reply.json(_window(items, start, PAGE), **headers)


def _cursor(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    start = int(query.get("after", "c0")[1:])
    end = start + PAGE
    more = f"c{end}" if end < len(api.items) else None
    return Reply.json({"data": _window(api.items, start, PAGE), "paging": {"next": more}})


def _feed(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    start = int(query.get("cursor", 0))
    items = _window(api.items, start, PAGE)
    return Reply.json({"changes": items, "next": f"/feed?cursor={start + len(items)}"})


def _page(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    size = int(query["per_page"])
    return Reply.json(_window(api.items, (int(query["page"]) - 1) * size, size))


def _version(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    return Reply.json({"app": {"version": api.version}, "served": len(api.requests)})


def _document(api: Api, path: str, query: Mapping[str, str]) -> Reply:
    modified = f"Tue, 03 Nov 2026 10:00:{len(api.version):02} GMT"
    return Reply(
        api.version.encode(), headers={"Content-Type": "text/plain", "ETag": "", "Last-Modified": modified}
    )


PATHS: dict[str, Callable[[Api, str, Mapping[str, str]], Reply]] = {
    "/list": _list,
    "/newest": _newest,
    "/link": _link,
    "/cursor": _cursor,
    "/feed": _feed,
    "/page": _page,
    "/version": _version,
    "/document": _document,
}
