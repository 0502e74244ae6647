"""Certificates for brokers that speak TLS on loopback, made for one run."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

__all__ = ["TLS", "Certificates", "made", "served", "write_keystore"]

TLS = "TLS"
"""Name of a listener that speaks TLS with one of these certificates: ``Cluster(listeners={TLS: "SSL"})``."""


class Certificates(NamedTuple):
    """``keystore``: a broker's PEM file, a private key and its chain; ``ca``: a PEM file with the CA, for clients."""

    keystore: Path
    ca: Path


@contextmanager
def made() -> Iterator[Certificates]:
    """Make certificates for 127.0.0.1 and localhost; the files are removed at the end."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory(prefix="mirror-certificates-") as folder:
        found = Certificates(Path(folder) / "broker.pem", Path(folder) / "ca.pem")
        write_keystore(found.keystore, authority.issue_cert("127.0.0.1", "localhost"))
        authority.cert_pem.write_to_path(str(found.ca))
        yield found


def write_keystore(path: Path, certificate: trustme.LeafCert) -> None:
    """Write a broker's PEM file. Kafka takes private keys as PKCS #8 only."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.touch(mode=0o600)
    path.write_bytes(pem + b"".join(each.bytes() for each in certificate.cert_chain_pems))


def served(listener: str, keystore: Path) -> dict[str, str]:
    """Returns the broker properties by which a listener (its name) speaks TLS with a keystore."""
    at = f"listener.name.{listener.lower()}.ssl.keystore"
    return {f"{at}.type": "PEM", f"{at}.location": str(keystore)}
