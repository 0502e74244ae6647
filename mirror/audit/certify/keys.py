"""Signs a certificate and verifies its signature: Ed25519, with keys in PEM files as ``openssl genpkey`` makes them."""

import base64
import binascii
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror.audit.errors import AuditError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ALGORITHM = "ed25519"
_MAKE = "openssl genpkey -algorithm ed25519 -out KEY.pem"
_PUBLIC = "openssl pkey -in KEY.pem -pubout -out KEY.pub.pem"


class SigningKey:
    """A private key that signs certificates."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> "SigningKey":
        """Reads the key from a PEM file.

        Raises:
            AuditError: the file cannot be read, or has no unencrypted Ed25519 private key.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        text = _read(path)
        try:
            key = load_pem_private_key(text, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise AuditError(
                f"{path} has no private key that can be used: it must be PEM, and not encrypted", f"make one: {_MAKE}"
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise AuditError(f"the private key in {path} is not an Ed25519 key", f"make one: {_MAKE}")
        return cls(key)

    def sign(self, message: bytes) -> dict[str, str]:
        """Returns the signature of a message as a certificate has it: ``algorithm``, ``key`` (fingerprint) and
        ``value`` (base64)."""
        return _as_written(self._key.public_key(), self._key.sign(message))


def fingerprint(key: "Ed25519PublicKey") -> str:
    """Returns the SHA-256 of the key's 32 bytes, in hex."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def read_public(path: Path) -> "Ed25519PublicKey":
    """Reads the PEM file of a public key.

    Raises:
        AuditError: the file cannot be read, or has no Ed25519 public key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise AuditError(f"{path} has no public key in PEM", f"take it from the private key: {_PUBLIC}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise AuditError(f"the public key in {path} is not an Ed25519 key", f"take it from the private key: {_PUBLIC}")
    return key


def is_signed(key: "Ed25519PublicKey", signature: Any, message: bytes) -> bool:
    """Returns True if ``signature`` is the key's signature of the message.

    Args:
        key: the public key.
        signature: the value in a certificate; it may be anything. There is only one valid way to write a signature.
        message: the signed bytes.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        value = base64.b64decode(str(signature["value"]), validate=True)
        key.verify(value, message)
    except (InvalidSignature, binascii.Error, ValueError, TypeError, KeyError):
        return False
    return bool(signature == _as_written(key, value))


def _as_written(key: "Ed25519PublicKey", value: bytes) -> dict[str, str]:
    return {"algorithm": ALGORITHM, "key": fingerprint(key), "value": base64.b64encode(value).decode()}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuditError(f"cannot read {path}: {error.strerror}", "name the file of the key") from error
