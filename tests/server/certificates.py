"""Certificates for tests: authorities, and what they sign."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coord_sim.tls import PeerFiles

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate and its key, PEM."""

    cert: bytes
    key: bytes
    serial: int

    def write(self, folder: Path, trusted: bytes, uri_prefix: str = "") -> PeerFiles:
        """Files of a peer that shows this certificate and trusts `trusted`; replaces former ones."""
        folder.mkdir(exist_ok=True)
        paths = [folder / name for name in ("cert.pem", "key.pem", "ca.pem")]
        for path, content in zip(paths, (self.cert, self.key, trusted), strict=True):
            path.write_bytes(content)
        cert, key, ca = map(str, paths)
        return PeerFiles(cert, key, ca, uri_prefix)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        built = _unsigned(self._name, self._name, self._key, 2).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def sign(self, *names: str, is_expired: bool = False) -> Leaf:
        """A certificate for host names, IP addresses and URIs."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")])
        built = _unsigned(subject, self._name, key, -1 if is_expired else 1).add_extension(
            x509.SubjectAlternativeName(map(_general_name, names)), critical=False
        )
        certificate = built.sign(self._key, hashes.SHA256())
        return Leaf(
            certificate.public_bytes(serialization.Encoding.PEM),
            key_pem(key, serialization.NoEncryption()),
            certificate.serial_number,
        )


def key_pem(
    key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption
) -> bytes:
    """A private key as it is in a file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now + days * _DAY)
    )


def _general_name(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
