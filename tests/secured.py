"""A real cluster whose brokers speak TLS and SASL, with certificates and users made for one test run."""

import base64
import datetime
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from bench.data import certificates
from mirror.net.security import options
from mirror.net.security.options import SaslOptions, Secret, SecurityOptions, TlsOptions, TokenOptions
from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT

USER, PASSWORD = "mirror,=", "of a test run: 4711"
"""The name has what SCRAM has to escape."""
KEY_PASSWORD = "of a key: 4712"
TLS, MUTUAL, SASL_TLS, SASL_PLAIN = "TLSONLY", "MUTUAL", "SASLTLS", "SASLPLAIN"
"""Listeners: TLS; TLS that asks for a certificate; SASL over TLS; SASL without."""
LISTENERS = {TLS: "SSL", MUTUAL: "SSL", SASL_TLS: "SASL_SSL", SASL_PLAIN: "SASL_PLAINTEXT"}
BOTH = {"listener.name.sasltls.ssl.client.auth": "required"}
"""Brokers' properties: ``SASL_TLS`` asks for a certificate, too."""
MECHANISMS = tuple(mechanism for mechanism in options.MECHANISMS if mechanism != options.GSSAPI)
"""Those that a sandbox can offer: GSSAPI needs a Kerberos server."""
_PREFIX = "org.apache.kafka.common.security"
_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Files:
    """PEM files: the authority; a broker's key and chain; a client's certificate, and its key without and with a
    password; another authority, and a client's certificate from that. ``authority``: the first one itself."""

    ca: Path
    broker: Path
    client: Path
    key: Path
    locked_key: Path
    other_ca: Path
    stranger: Path
    authority: trustme.CA


def made(
    folder: Path, *, hosts: tuple[str, ...] = ("127.0.0.1", "localhost"), authority: trustme.CA | None = None,
    expired: bool = False,
) -> Files:  # fmt: skip
    """Makes them. ``authority``: instead of a new one. ``expired``: the broker's was valid until yesterday."""
    authority, other = authority or trustme.CA(), trustme.CA()
    found = Files(
        **{
            name: folder / f"{name}.pem"
            for name in ("ca", "broker", "client", "key", "locked_key", "other_ca", "stranger")
        },
        authority=authority,
    )
    authority.cert_pem.write_to_path(str(found.ca))
    other.cert_pem.write_to_path(str(found.other_ca))
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    before = yesterday - datetime.timedelta(days=1)
    broker = authority.issue_cert(*hosts, not_before=before, not_after=yesterday if expired else None)
    certificates.write_keystore(found.broker, broker)
    client = authority.issue_cert("client@example.org")
    found.client.write_bytes(b"".join(each.bytes() for each in client.cert_chain_pems))
    found.key.write_bytes(client.private_key_pem.bytes())
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    found.locked_key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
    )
    stranger = other.issue_cert("client@example.org")
    found.stranger.write_bytes(stranger.private_key_and_cert_chain_pem.bytes())
    return found


def server_context(files: Files) -> ssl.SSLContext:
    """What a fake broker speaks: TLS with the broker's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.broker)
    return context


def properties(files: Files, *, session_ms: int = 0) -> dict[str, str]:
    """The brokers' properties. ``session_ms``: clients have to authenticate again after this time; 0: never."""
    found: dict[str, str] = {}
    for name in (TLS, MUTUAL, SASL_TLS):
        at = f"listener.name.{name.lower()}"
        found |= certificates.served(name, files.broker)
        found |= {f"{at}.ssl.truststore.type": "PEM", f"{at}.ssl.truststore.location": str(files.ca)}
    found["listener.name.mutual.ssl.client.auth"] = "required"
    logins = {
        "plain": f'{_PREFIX}.plain.PlainLoginModule required user_{quoted(USER)}="{PASSWORD}";',
        "scram-sha-256": f"{_PREFIX}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_PREFIX}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_PREFIX}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";',
    }
    for name in (SASL_TLS, SASL_PLAIN):
        at = f"listener.name.{name.lower()}"
        found[f"{at}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for mechanism, login in logins.items():
            found[f"{at}.{mechanism}.sasl.jaas.config"] = login
            if session_ms:
                found[f"{at}.{mechanism}.connections.max.reauth.ms"] = str(session_ms)
    return found


def quoted(name: str) -> str:
    """A user's name as an option of a login module can have it."""
    return name.replace(",", "").replace("=", "")


@contextmanager
def cluster(
    files: Files, *, name: str = "secured", session_ms: int = 0, more: Mapping[str, str] | None = None, brokers: int = 1
) -> Iterator[SandboxCluster]:
    """A running cluster; its users are there."""
    settings = {**PATIENT, **properties(files, session_ms=session_ms), **(more or {})}
    with SandboxCluster(name=name, properties=settings, listeners=LISTENERS, quick=True, brokers=brokers) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([wanted], request_timeout=_TIMEOUT_S).values():
                future.result(_TIMEOUT_S)
        _await_user(running)
        yield running


def _await_user(running: SandboxCluster) -> None:
    """A broker knows a user a moment after the controller has it: librdkafka tries to log in until then."""
    for address in running.servers(SASL_PLAIN).split(","):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
            config = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "log_level": 0, **login}
            AdminClient(config).list_topics(timeout=_TIMEOUT_S)


def keys(files: Files) -> dict[str, str]:
    """A cluster's configuration keys for ``SASL_TLS``, with a certificate and SCRAM."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.client),
        "ssl.key.location": str(files.key),
    }


def token(life_s: float = 3_600, subject: str = "mirror") -> str:
    """A token that the brokers accept: unsigned, as Kafka's own examples use it."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": int(now), "exp": int(now + life_s)})
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."


def sasl(mechanism: str, password: str = PASSWORD) -> SaslOptions:
    """Of the user."""
    if mechanism == "OAUTHBEARER":
        return SaslOptions(mechanism=mechanism, tokens=TokenOptions(token=Secret(token())))
    user = quoted(USER) if mechanism == "PLAIN" else USER
    return SaslOptions(mechanism=mechanism, username=user, password=Secret(password))


def security(files: Files, listener: str, mechanism: str = "SCRAM-SHA-512") -> SecurityOptions:
    """What a listener asks for."""
    protocol = LISTENERS[listener]
    return SecurityOptions(
        tls=TlsOptions(ca_file=str(files.ca), certificate_file=str(files.client), key_file=str(files.key))
        if protocol.endswith("SSL")
        else None,
        sasl=sasl(mechanism) if protocol.startswith("SASL") else None,
    )
