"""A real HTTP endpoint on loopback that answers what a test tells it, and remembers how it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """One answer. ``hang`` gives none until the caller hangs up, ``drop`` ends the connection at once."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    drop: bool = False


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]


class Endpoint:
    """Answers with its replies in turn; the last one stays. ``on_request`` is called before each answer."""

    def __init__(self, *replies: Reply, on_request: Callable[[], object] = lambda: None) -> None:
        self.requests: list[Asked] = []
        self.asked = threading.Event()
        self.hung_up = threading.Event()
        self._replies = list(replies)
        self._on_request = on_request
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def reply(self, *replies: Reply) -> None:
        """From now on answer with these."""
        self._replies = list(replies)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                endpoint.requests.append(Asked(self.path, dict(self.headers)))
                endpoint._on_request()
                replies = endpoint._replies
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                endpoint.asked.set()
                if reply.hang or reply.drop:
                    self.close_connection = True
                    if reply.hang:
                        with suppress(ConnectionError):
                            self.connection.recv(1)
                        endpoint.hung_up.set()
                    return
                body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """The test says what is worth saying."""

        return Handler
