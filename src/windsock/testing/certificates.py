"""An authority of a test's own, with a certificate for a server on loopback and one for a client.

::

    certificates = Certificates(tmp_path / "tls", client="windsock")
    certificates.authority, certificates.server, certificates.server_key    # paths of PEM files
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windsock.testing.processes import LOOPBACK

__all__ = ["Certificates"]


class Certificates:
    """PEM files in a directory, made when they are not there yet; ``client`` is the client's common name."""

    def __init__(self, directory: Path, *, client: str = "client") -> None:
        self.authority = directory / "authority.pem"
        self.server, self.server_key = directory / "server.pem", directory / "server.key"
        self.client, self.client_key = directory / "client.pem", directory / "client.key"
        if not self.authority.exists():
            directory.mkdir(parents=True, exist_ok=True)
            self._make(client)

    def _make(self, client: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Windsock test authority")
        root = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
        at = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
        signer = (root, key)
        _issue(self.server, self.server_key, "localhost", ExtendedKeyUsageOID.SERVER_AUTH, signer, at)
        _issue(self.client, self.client_key, client, ExtendedKeyUsageOID.CLIENT_AUTH, signer)


def _issue(
    path: Path,
    key_path: Path,
    common_name: str,
    purpose: x509.ObjectIdentifier,
    signer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    at: list[x509.GeneralName] | None = None,
) -> None:
    root, root_key = signer
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(common_name), root.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False
        )
    )
    if at:
        builder = builder.add_extension(x509.SubjectAlternativeName(at), critical=False)
    certificate = builder.sign(root_key, hashes.SHA256())
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.touch(mode=0o600)
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
