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

__all__ = ["Certificates", "made"]


class Certificates(NamedTuple):
    """``keystore``: a broker's PEM file, a private key and its chain; ``ca``: a PEM file with the CA, for clients."""

    keystore: Path
    ca: Path


@contextmanager
def made() -> Iterator[Certificates]:
    """Make certificates for 127.0.0.1 and localhost; the files are removed at the end."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    # Kafka takes private keys as PKCS #8 only.
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with tempfile.TemporaryDirectory(prefix="mirror-certificates-") as folder:
        found = Certificates(Path(folder) / "broker.pem", Path(folder) / "ca.pem")
        found.keystore.touch(mode=0o600)
        found.keystore.write_bytes(pem + b"".join(each.bytes() for each in server.cert_chain_pems))
        authority.cert_pem.write_to_path(str(found.ca))
        yield found
