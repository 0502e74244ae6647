"""Subjects and ends of certificates, held against ``cryptography``; files that change; bytes that are none."""

import datetime
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.security.certificates import Certificate, NoCertificate, certificates_of, read_certificate
from mirror.net.security.options import TlsOptions
from tests.secured import made

pytestmark = pytest.mark.filterwarnings("error")
KEY = ec.generate_private_key(ec.SECP256R1())
KINDS = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.LOCALITY_NAME, NameOID.DOMAIN_COMPONENT)


def certificate(name: x509.Name, ends: datetime.datetime) -> x509.Certificate:
    begins = min(ends, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)) - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 7, begins, ends)
    return builder.sign(KEY, hashes.SHA256())


def der(name: x509.Name, ends: datetime.datetime) -> bytes:
    return certificate(name, ends).public_bytes(Encoding.DER)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.text('abcÄö,+;<>\\" ', min_size=1, max_size=20)), max_size=4),
    st.datetimes(datetime.datetime(1960, 1, 1), datetime.datetime(2090, 1, 1)),
)
def test_what_cryptography_reads(parts: list[tuple[x509.ObjectIdentifier, str]], ends: datetime.datetime) -> None:
    """Both forms of times, and any name."""
    ends = ends.replace(microsecond=0, tzinfo=datetime.UTC)
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])
    found = read_certificate(der(name, ends))
    assert found.ends_at == ends.timestamp()
    shown = {NameOID.COMMON_NAME: "CN", NameOID.ORGANIZATION_NAME: "O", NameOID.LOCALITY_NAME: "L"}
    words = [f"{shown.get(kind, 'DC')}={_escaped(text)}" for kind, text in reversed(parts)]
    assert found.subject == ",".join(words)


def _escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in '\\,+"<>;' else each for each in text)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_what_is_none(garbage: bytes, at: int) -> None:
    """Refused, and nothing else happens."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    whole = der(name, datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))
    for data in (garbage, whole[:at], whole[:at] + garbage):
        try:
            read_certificate(data)
        except NoCertificate:
            continue
    with pytest.raises(NoCertificate):
        read_certificate(whole[:100])


def test_files(tmp_path: Path) -> None:
    """Our own certificate without its chain, and each authority; read again once a file has changed."""
    files = made(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(files.ca.read_bytes() + b"junk\n-----BEGIN CERTIFICATE-----\nAAAA\n" + files.other_ca.read_bytes())
    options = TlsOptions(ca_file=str(both), certificate_file=str(files.client), key_file=str(files.key))
    wanted = [
        Certificate(_subject(each), each.not_valid_after_utc.timestamp())
        for file in (files.client, files.ca, files.other_ca)
        for each in x509.load_pem_x509_certificates(file.read_bytes())[:1]
    ]
    assert certificates_of(options) == wanted
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "new, and longer")])
    ends = datetime.datetime(2031, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    new = certificate(name, ends)
    replaced = tmp_path / "replaced.pem"
    replaced.write_bytes(new.public_bytes(Encoding.PEM))
    os.replace(replaced, both)
    assert certificates_of(options)[1:] == [Certificate("CN=new\\, and longer", ends.timestamp())]
    both.unlink()
    assert certificates_of(options) == wanted[:1]
    assert certificates_of(TlsOptions()) == []


def _subject(found: x509.Certificate) -> str:
    return ",".join(
        f"{each.rfc4514_attribute_name}={_escaped(str(each.value))}" for each in reversed(list(found.subject))
    )
