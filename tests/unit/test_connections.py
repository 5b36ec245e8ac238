"""Connections: read from the environment in both of Airflow's forms, without showing a secret."""

from __future__ import annotations

import json

import pytest

from windsock.connections import Connection, fixed, from_environment, parse_connection
from windsock.events import SourceError


async def test_json_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON form gives every field, its extra as an object or as text."""
    fields = {"conn_type": "kafka", "host": "broker", "port": "9092", "login": "me", "password": "secret"}
    for extra in ({"group": "g"}, '{"group": "g"}'):
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({**fields, "extra": extra}))
        found = await from_environment("shop")
        assert (found.conn_type, found.host, found.port) == ("kafka", "broker", 9092)
        assert (found.login, found.password, found.get("group")) == ("me", "secret", "g")


async def test_uri_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URI form is decoded part by part, and its query is the extra."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "amqp://me:p%40ss@mq:5671/%2Fshop?ssl=true&empty=")
    found = await from_environment("shop")
    assert (found.login, found.password, found.host, found.port) == ("me", "p@ss", "mq", 5671)
    assert found.schema == "/shop"
    assert found.flag("ssl")
    assert not found.flag("other")
    assert found.get("empty", "default") == "default"


@pytest.mark.parametrize(
    ("uri", "host", "port"),
    [
        ("sqlite://%2Fdata%2FShop.db", "/data/Shop.db", None),
        ("kafka://u:p@Broker.Example.com:9092", "Broker.Example.com", 9092),
        ("http://[::1]:8080/x", "::1", 8080),
        ("aws://", None, None),
    ],
)
def test_hosts(uri: str, host: str | None, port: int | None) -> None:
    """A host is taken as it is written, also if it is a path."""
    found = parse_connection("x", uri)
    assert (found.host, found.port) == (host, port)


def test_packed_extra() -> None:
    """What Airflow packs into __extra__ is unpacked, with its types."""
    found = parse_connection("x", "http://host/?__extra__=%7B%22retries%22%3A+3%7D")
    assert found.extra == {"retries": 3}


async def test_a_missing_one_says_how_to_add_it() -> None:
    """An unknown id is a SourceError that names the variable."""
    with pytest.raises(SourceError, match="AIRFLOW_CONN_NOT_THERE"):
        await from_environment("not_there")
    with pytest.raises(SourceError, match="known are \\['a'\\]"):
        await fixed(Connection(conn_id="a"))("b")


@pytest.mark.parametrize("text", ["{", '{"port": "s3cr3t"}', "kafka://u:s3cr3t@host:port/"])
def test_a_broken_one_does_not_show_its_text(text: str) -> None:
    """The error of an unreadable Connection holds nothing of it."""
    with pytest.raises(SourceError, match="cannot be read") as refused:
        parse_connection("x", text)
    assert "s3cr3t" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_a_secret_is_not_shown() -> None:
    """Printing a Connection shows neither the password nor the extras."""
    shown = repr(Connection(conn_id="x", password="s3cr3t", extra={"token": "t0ken"}))
    assert "s3cr3t" not in shown
    assert "t0ken" not in shown
