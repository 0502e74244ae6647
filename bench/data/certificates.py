"""Makes certificates for brokers with TLS listeners on loopback, for one run."""

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
"""Name of a broker's TLS listener, which has one of these certificates: ``SandboxCluster(listeners={TLS: "SSL"})``."""


class Certificates(NamedTuple):
    """Paths of PEM files. ``keystore``: a broker's private key and certificate chain; ``ca``: the CA, for clients."""

    keystore: Path
    ca: Path


@contextmanager
def made() -> Iterator[Certificates]:
    """Yields certificates for 127.0.0.1 and localhost. The files are removed at the end."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory(prefix="mirror-certificates-") as folder:
        found = Certificates(Path(folder) / "broker.pem", Path(folder) / "ca.pem")
        write_keystore(found.keystore, authority.issue_cert("127.0.0.1", "localhost"))
        authority.cert_pem.write_to_path(str(found.ca))
        yield found


def write_keystore(path: Path, certificate: trustme.LeafCert) -> None:
    """Writes a broker's PEM file. Kafka accepts private keys only as PKCS #8."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.touch(mode=0o600)
    path.write_bytes(pem + b"".join(each.bytes() for each in certificate.cert_chain_pems))


def served(listener: str, keystore: Path) -> dict[str, str]:
    """Returns the broker properties that give a listener its keystore. ``listener``: name of the listener."""
    at = f"listener.name.{listener.lower()}.ssl.keystore"
    return {f"{at}.type": "PEM", f"{at}.location": str(keystore)}
