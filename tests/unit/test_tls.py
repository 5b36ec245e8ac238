"""TLS out of a Connection's extras."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.testing.certificates import Certificates
from windsock.tls import tls_context


def connection(**extra: Any) -> Connection:
    """A Connection with these extras."""
    return Connection(conn_id="shop", password="secret", extra=extra)


async def test_only_when_asked_for() -> None:
    """Without the extra there is no TLS, unless the connection type implies it."""
    assert await tls_context(connection()) is None
    assert await tls_context(connection(ssl="false"), implied=True) is None
    assert await tls_context(connection(), implied=True) is not None


async def test_checks_by_default(tmp_path: Path) -> None:
    """Certificate and host name are checked; each check can be given up by name."""
    own = Certificates(tmp_path)
    context = await tls_context(connection(ssl="true", ssl_ca_certs=str(own.authority)))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1
    any_host = await tls_context(connection(ssl=True, ssl_check_hostname="false"))
    assert any_host is not None
    assert (any_host.verify_mode, any_host.check_hostname) == (ssl.CERT_REQUIRED, False)
    anybody = await tls_context(connection(ssl=True, ssl_cert_reqs="none"))
    assert anybody is not None
    assert (anybody.verify_mode, anybody.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    "wrong", [{"ssl_ca_certs": "/not/there"}, {"ssl_certfile": "/not/there"}, {"ssl_cert_reqs": "maybe"}]
)
async def test_what_cannot_be_read(wrong: dict[str, str]) -> None:
    """A file that is not there or a word that is not known is an error that names the Connection."""
    with pytest.raises(SourceError, match="connection 'shop'") as refused:
        await tls_context(connection(ssl=True, **wrong))
    assert "secret" not in str(refused.value)
