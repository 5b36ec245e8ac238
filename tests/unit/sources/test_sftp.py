"""The SFTP source without a server: its options and what a Connection's extras mean."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from windsock.connections import Connection
from windsock.events import SourceError, WindsockError
from windsock.sources import make_source, source_key
from windsock.sources._sftp import keys_of, known_hosts_of

OPTIONS: dict[str, Any] = {"conn_id": "sftp_default", "path": "/upload"}


@pytest.fixture
def key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


@pytest.mark.parametrize(
    "wrong", [{"pattern": "/etc/*"}, {"pattern": "../*"}, {"interval": 0}, {"settle": -1}, {"path": ""}]
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    """What makes no sense is refused where the watcher is defined."""
    with pytest.raises(WindsockError):
        make_source("sftp", {**OPTIONS, **wrong})


def test_the_interval_does_not_change_the_position() -> None:
    """Watchers that differ in tuning share a reader; those on other directories do not."""
    assert source_key("sftp", OPTIONS) == source_key("sftp", {**OPTIONS, "interval": 5, "settle": 1})
    assert source_key("sftp", OPTIONS) != source_key("sftp", {**OPTIONS, "path": "/other"})


def test_the_host_key_of_the_extra(key: asyncssh.SSHKey) -> None:
    """The key is taken as ssh-keyscan writes it; a bare one is RSA, as in Airflow's provider."""
    rsa = asyncssh.generate_private_key("ssh-rsa", key_size=2048)
    line, bare = key.export_public_key().decode(), rsa.export_public_key().decode().split()[1]
    for written, meant in ((line, key), (bare, rsa)):
        ((trusted,), _, _) = known_hosts_of(Connection(conn_id="c", extra={"host_key": written}))
        assert trusted.get_fingerprint() == meant.get_fingerprint()


def test_a_host_key_that_is_none() -> None:
    """What is no key says how to write one."""
    with pytest.raises(SourceError, match="is no public key: write it as ssh-keyscan does"):
        known_hosts_of(Connection(conn_id="c", extra={"host_key": "ssh-ed25519 nonsense"}))


def test_without_known_hosts_no_server_is_known(tmp_path: Path) -> None:
    """A known_hosts that is not there means that nobody is trusted, not everybody."""
    extra = {"known_hosts": str(tmp_path / "not-there")}
    assert known_hosts_of(Connection(conn_id="c", extra=extra)) == ([], [], [])


@pytest.mark.parametrize("value", [True, "true", "True"])
def test_the_check_is_left_out_by_name(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Only no_host_key_check leaves out the check, and warns."""
    with caplog.at_level(logging.WARNING):
        assert known_hosts_of(Connection(conn_id="c", extra={"no_host_key_check": value})) is None
    assert "windsock.sftp.unchecked" in caplog.text


def test_keys(key: asyncssh.SSHKey, tmp_path: Path) -> None:
    """A key comes as text or as a file; a password alone keeps other keys out."""
    text = key.export_private_key().decode()
    (tmp_path / "key").write_text(text)
    for extra in ({"private_key": text}, {"key_file": str(tmp_path / "key")}):
        assert keys_of(Connection(conn_id="c", extra=extra)) == {"client_keys": [key]}
    assert keys_of(Connection(conn_id="c", password="x")) == {"client_keys": None, "agent_path": None}
    assert keys_of(Connection(conn_id="c")) == {}
