"""The expiry times of the certificates in a cluster's settings: our own, and those of the authorities that we trust.

Python's ``ssl`` tells the expiry of a peer's certificate and of authorities, but not of one's own. So the few fields
that are needed are read here from the certificate itself (X.509, RFC 5280, in DER).
"""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from mirror.net.security.files import Stamp, stamp
from mirror.net.security.options import TlsOptions

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _SET, _OID, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0x31, 0x06, 0xA0, 0x17, 0x18
_UTF16_TEXT = 0x1E
_NAMES = {
    "550403": "CN", "550406": "C", "550407": "L", "550408": "ST", "55040a": "O", "55040b": "OU",
    "0992268993f22c640119": "DC", "2a864886f70d010901": "EMAILADDRESS",
}  # fmt: skip
"""Object identifiers of the parts of a name, in hexadecimal -> how RFC 2253 and Java write them."""


class Certificate(NamedTuple):
    """A certificate. ``ends_at``: when it expires, in seconds since 1970."""

    subject: str
    ends_at: float


class NoCertificate(ValueError):
    """The bytes are not a certificate."""


_read: dict[str, tuple[Stamp, list[Certificate]]] = {}
"""File -> its stamp when it was read, and its certificates."""


def certificates_of(options: TlsOptions) -> list[Certificate]:
    """Returns our certificate, without its chain, and those of the authorities, as their files are now. A file that
    cannot be read counts as empty: the errors of connections tell why. The system's authorities are not included.

    Args:
        options: the cluster's settings for TLS.
    """
    return [*_of_file(options.certificate_file)[:1], *_of_file(options.ca_file)]


def _of_file(file: str) -> list[Certificate]:
    now = stamp(file)
    if now is None:
        return []
    known = _read.get(file)
    if known is None or known[0] != now:
        try:
            with open(file, encoding="ascii", errors="replace") as stream:
                found = list(_in_pem(stream.read()))
        except OSError:
            return []
        known = _read[file] = now, found
    return known[1]


def _in_pem(text: str) -> Iterator[Certificate]:
    """Yields the certificates in a PEM text; everything else in it is skipped."""
    for part in text.split(_BEGIN)[1:]:
        try:
            yield read_certificate(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{part.partition(_END)[0]}{_END}\n"))
        except ValueError:
            continue


def read_certificate(der: bytes) -> Certificate:
    """Reads subject and expiry of a certificate.

    Raises:
        NoCertificate: the bytes are not a certificate.
    """
    signed, _ = _value(der, 0, _SEQUENCE)
    fields, _ = _value(signed, 0, _SEQUENCE)
    at = 0
    if fields[:1] == bytes([_VERSION]):
        _, at = _value(fields, at)
    for _ in ("serial number", "algorithm", "issuer"):
        _, at = _value(fields, at)
    validity, at = _value(fields, at, _SEQUENCE)
    subject, _ = _value(fields, at, _SEQUENCE)
    _, until = _value(validity, 0)
    return Certificate(_name(subject), _time(validity, until))


def _value(data: bytes, at: int, tag: int | None = None) -> tuple[bytes, int]:
    """Returns the content of the DER element at byte ``at``, and where the next one begins. ``tag``: the element must
    have it. Raises NoCertificate."""
    if at + 2 > len(data) or (tag is not None and data[at] != tag):
        raise NoCertificate(f"element at byte {at} of {len(data)}")
    size, start = data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(data[start : start + count]), start + count
    if start + size > len(data):
        raise NoCertificate(f"{size} bytes at byte {start} of {len(data)}")
    return data[start : start + size], start + size


def _time(data: bytes, at: int) -> float:
    tag = data[at] if at < len(data) else 0
    text, _ = _value(data, at)
    told = text.decode("ascii", errors="replace")
    if tag == _UTC_TIME:  # RFC 5280: two digits, of 1950 to 2049
        told = ("19" if told[:2] >= "50" else "20") + told
    elif tag != _GENERALIZED_TIME:
        raise NoCertificate(f"time with tag {tag}")
    try:
        return datetime.strptime(told, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise NoCertificate(str(error)) from error


def _name(data: bytes) -> str:
    """Returns a name as RFC 2253 and the ACLs of brokers write it: the last part first."""
    parts = []
    at = 0
    while at < len(data):
        several, at = _value(data, at, _SET)
        one, _ = _value(several, 0, _SEQUENCE)
        kind, start = _value(one, 0, _OID)
        tag = one[start] if start < len(one) else 0
        value, _ = _value(one, start)
        text = value.decode("utf-16-be" if tag == _UTF16_TEXT else "utf-8", errors="replace")
        for special in '\\,+"<>;':
            text = text.replace(special, f"\\{special}")
        parts.append(f"{_NAMES.get(kind.hex(), kind.hex())}={text}")
    return ",".join(reversed(parts))
