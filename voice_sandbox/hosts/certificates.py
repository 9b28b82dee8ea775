"""Certificate authority of a rehearsal, which issues certificates for AWS, the registry and the store."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_CERTIFICATE_VALIDITY = timedelta(days=825)
_PEM_ENCODING = serialization.Encoding.PEM
_CA_KEY_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""Extensions that RFC 5280 requires for a certificate authority; Python 3.13 verifies them by default."""


class CertificateAuthority:
    """A certificate authority, whose key and certificate are created once and then loaded from a folder.

    Attributes:
        file: The authority's own certificate, which the machines and their containers trust.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        if not self._key_file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            key = ec.generate_private_key(ec.SECP256R1())
            name = _build_common_name("voice-serve rehearsal of hosts")
            builder = (
                _create_certificate_builder(name, key.public_key(), name)
                .add_extension(x509.BasicConstraints(True, 0), critical=True)
                .add_extension(_CA_KEY_USAGE, critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            )
            self.file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(_PEM_ENCODING))
            self._key_file.touch(mode=0o600)
            self._key_file.write_bytes(_encode_private_key(key))

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101  made above
        return key

    def issue(self, name: str, folder: Path, address: str | None = None) -> tuple[Path, Path]:
        """Issue a certificate for a DNS name and optionally an address, and return its file and its key file."""
        issuer = x509.load_pem_x509_certificate(self.file.read_bytes()).subject
        key = ec.generate_private_key(ec.SECP256R1())
        alternative_names: list[x509.GeneralName] = [x509.DNSName(name)]
        if address is not None:
            alternative_names.append(x509.IPAddress(ip_address(address)))
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _create_certificate_builder(_build_common_name(name[:64]), key.public_key(), issuer)
            .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
            .add_extension(authority, critical=False)
        )
        certificate, private = folder / f"{name}.pem", folder / f"{name}.key"
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM_ENCODING))
        private.touch(mode=0o600)
        private.write_bytes(_encode_private_key(key))
        return certificate, private

    def create_server_context(self, name: str, folder: Path) -> ssl.SSLContext:
        """Return the TLS context for a server with this name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name, folder))
        return context


def _build_common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _create_certificate_builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _CERTIFICATE_VALIDITY)
    )


def _encode_private_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM_ENCODING, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
