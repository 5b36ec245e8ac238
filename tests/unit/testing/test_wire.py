"""The wire: forwards, is cut, refuses, and is mended on the same port."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from windsock.testing.wire import Wire


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(client,), daemon=True).start()

        def answer(client: socket.socket) -> None:
            with client:
                try:
                    while chunk := client.recv(100):
                        client.sendall(chunk)
                except OSError:
                    pass  # the wire was cut

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def ask(client: socket.socket) -> bytes:
    """What comes back."""
    client.sendall(b"hello")
    return client.recv(100)


def ask_for_ever(client: socket.socket) -> None:
    """Ends with the connection."""
    while ask(client):
        pass


def test_a_cut_wire_resets_and_refuses_until_it_is_mended(echo: int) -> None:
    """Open connections are reset, new ones refused; after mending, the same port works again."""
    with Wire("127.0.0.1", echo) as wire:
        place = ("127.0.0.1", wire.port)
        with socket.create_connection(place, timeout=10) as client:
            assert ask(client) == b"hello"
            wire.cut()
            with pytest.raises(ConnectionError):
                ask_for_ever(client)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place, timeout=10)
        wire.mend()
        with socket.create_connection(place, timeout=10) as client:
            assert ask(client) == b"hello"


def test_a_server_that_is_away_closes_the_connection(echo: int) -> None:
    """With nobody behind the wire a client is cut off, not kept waiting."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with (
        Wire("127.0.0.1", port) as wire,
        socket.create_connection(("127.0.0.1", wire.port), timeout=10) as client,
    ):
        try:
            assert client.recv(100) == b""
        except ConnectionError:
            pass  # reset is as good as closed


def test_connections_that_come_while_it_is_cut_are_closed(echo: int) -> None:
    """Whoever connects in the moment of a cut is let in or turned away; no socket is left open."""
    done = threading.Event()

    def come(port: int) -> None:
        while not done.is_set():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
            except OSError:
                pass  # turned away

    with Wire("127.0.0.1", echo) as wire:
        comers = [threading.Thread(target=come, args=(wire.port,)) for _ in range(4)]
        for comer in comers:
            comer.start()
        for _ in range(100):
            wire.cut()
            wire.mend()
        done.set()
        for comer in comers:
            comer.join()
    gc.collect()  # warns of a socket that nobody closed, and warnings are errors
