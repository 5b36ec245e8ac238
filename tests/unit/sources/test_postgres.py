"""What the PostgreSQL sources share, and their options, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from windsock.connections import Connection
from windsock.events import SourceError, WindsockError
from windsock.sources import _postgres, make_source
from windsock.sources._postgres_triggers import install


def connection(**fields: Any) -> Connection:
    return Connection(conn_id="shop", conn_type="postgres", host="db", password="s3cret", **fields)


def test_parameters() -> None:
    """Fields and libpq's extras are handed on, what is Airflow's own is not, and an extra wins."""
    extra = {"sslmode": "verify-full", "sslrootcert": "/ca.pem", "cursor": "dictcursor", "connect_timeout": 3}
    found = _postgres.parameters(connection(port=5433, login="reader", schema="shop", extra=extra))
    assert {name: found[name] for name in ("host", "port", "user", "password", "dbname")} == {
        "host": "db",
        "port": 5433,
        "user": "reader",
        "password": "s3cret",
        "dbname": "shop",
    }
    assert (found["sslmode"], found["sslrootcert"], found["connect_timeout"]) == ("verify-full", "/ca.pem", 3)
    assert "cursor" not in found


def test_a_password_from_the_cloud() -> None:
    """With the extra 'iam' login, password and port come from Airflow's hook."""
    hook = SimpleNamespace(connection=None, get_iam_token=lambda _: ("me", "token", 5439))
    found = _postgres.parameters(connection(extra={"iam": True}, hook=lambda: hook))
    assert (found["user"], found["password"], found["port"]) == ("me", "token", 5439)


def test_a_password_from_the_cloud_outside_airflow() -> None:
    """Without Airflow's hook the extra 'iam' is refused with the remedy."""
    with pytest.raises(SourceError, match="inside Airflow"):
        _postgres.parameters(connection(extra={"iam": "true"}))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (psycopg.OperationalError("connection refused"), "check that the server is up"),
        (psycopg.OperationalError('password authentication failed for user "x"'), "check login and password"),
        (psycopg.errors.UndefinedTable("relation does not exist"), "create what is missing"),
        (psycopg.errors.InsufficientPrivilege("permission denied"), "grant the connection's login"),
        (psycopg.errors.TooManyConnections("sorry"), "out of a resource"),
        (psycopg.OperationalError("bad value s3cret"), r"bad value \*\*\*"),
    ],
)
def test_errors_have_a_remedy(error: Exception, remedy: str) -> None:
    """What PostgreSQL says is kept, without the password, and followed by what to do."""
    with pytest.raises(SourceError, match=remedy) as shown:
        raise _postgres.failure(error, connection(), "cannot be read")
    assert "s3cret" not in str(shown.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("postgres_cdc", {"conn_id": "shop"}),
        ("postgres_cdc", {"conn_id": "shop", "slot": "No Slot"}),
        ("postgres_cdc", {"conn_id": "shop", "slot": "s", "operations": ["upsert"]}),
        ("postgres_notify", {"conn_id": "shop", "poll": 0}),
        ("postgres_notify", {"conn_id": "shop", "outbox": ""}),
    ],
)
def test_options_are_checked(kind: str, options: dict[str, Any]) -> None:
    """Wrong options are refused when the watcher is made."""
    with pytest.raises(WindsockError):
        make_source(kind, options)


def test_unknown_operations() -> None:
    """The command refuses what no trigger can do before it connects anywhere."""
    with pytest.raises(SourceError, match="choose from insert"):
        install(connection(), "orders", operations=["upsert"])
