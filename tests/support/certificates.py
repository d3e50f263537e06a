"""Certificates for tests: an authority, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `file` is what clients must trust."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority of the tests")])
        self.file = directory / "authority.pem"
        certificate = (
            self._begun(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def _begun(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        days: float = 1,
        issuer: x509.Name | None = None,
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer or self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(days=days))
        )

    def sign(
        self, *names: str, password: bytes | None = None, days: float = 1, by_itself: bool = False
    ) -> Signed:
        """Return a certificate for names and addresses, valid for so many days; or a self-signed one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
        alternatives = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
            for name in names
        ]
        signing = key if by_itself else self._key
        # Python 3.13 takes no certificate that does not name its issuer's key.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
        certificate = (
            self._begun(subject, key.public_key(), days, subject if by_itself else None)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(issuer, critical=False)
            .sign(signing, hashes.SHA256())
        )
        signed = Signed(self._directory / f"{names[0]}.pem", self._directory / f"{names[0]}-key.pem")
        signed.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        sealed = BestAvailableEncryption(password) if password else NoEncryption()
        signed.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
        return signed

    def serving(
        self, *names: str, wants_certificate: bool = False, days: float = 1, by_itself: bool = False
    ) -> ssl.SSLContext:
        """Return the TLS context of a server with these names, which may require client certificates."""
        signed = self.sign(*names, days=days, by_itself=by_itself)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.file)
        context.load_cert_chain(signed.certificate, signed.key)
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def trusting(self) -> ssl.SSLContext:
        """Return the TLS context of a client of such a server."""
        return ssl.create_default_context(cafile=self.file)
