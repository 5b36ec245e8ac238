"""TLS as a Connection's extras ask for it, under the names that Airflow's Redis provider uses.

| extra | meaning |
|---|---|
| ``ssl`` | true: speak TLS; implied by a connection type that says so (``amqps``, ``mqtts``) |
| ``ssl_ca_certs`` | file of the authorities to trust; by default those of the system |
| ``ssl_certfile``, ``ssl_keyfile`` | our own certificate and its key |
| ``ssl_cert_reqs`` | ``required`` (default), or ``none``: take any certificate, for tests only |
| ``ssl_check_hostname`` | false: the certificate may be another host's; true by default |
"""

from __future__ import annotations

import asyncio
import ssl

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["tls_context"]


async def tls_context(connection: Connection, *, implied: bool = False) -> ssl.SSLContext | None:
    """How to speak TLS with the system, or None if it is not asked for; raises SourceError."""
    if not connection.flag("ssl", implied):
        return None
    try:
        return await asyncio.to_thread(_context, connection)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"connection {connection.conn_id!r}: its certificates cannot be read ({error}): check the extras "
            "ssl_ca_certs, ssl_certfile and ssl_keyfile"
        ) from error


def _context(connection: Connection) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=connection.get("ssl_ca_certs"))
    required = str(connection.get("ssl_cert_reqs", "required")).lower()
    if required not in ("required", "none"):
        raise ValueError(f"ssl_cert_reqs is {required!r}: write 'required' or 'none'")
    context.check_hostname = required == "required" and connection.flag("ssl_check_hostname", True)
    if required == "none":
        context.verify_mode = ssl.CERT_NONE
    if certificate := connection.get("ssl_certfile"):
        context.load_cert_chain(certificate, connection.get("ssl_keyfile"))
    return context
