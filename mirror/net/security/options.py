"""The settings of protected connections. Plain data: they reach the workers over a socket pair, never in an argument.

Secrets are never shown: neither ``repr`` nor a message has one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from mirror.net.errors import AuthenticationFailed

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER, GSSAPI)


@dataclass(frozen=True, slots=True)
class Secret:
    """A password or a token.

    Attributes:
        value: as the configuration had it.
        file: the file that it came from (``${file:…}``), and from which it is read again at each use, so that it can be
            rotated while the mirror runs; empty if it came from elsewhere.
    """

    value: str = field(default="", repr=False)
    file: str = ""

    def read(self) -> str:
        """Returns the secret as it is now.

        Raises:
            AuthenticationFailed: the file cannot be read. The message names the file, and nothing of its content.
        """
        if not self.file:
            return self.value
        try:
            with open(self.file, encoding="utf-8") as stream:
                return stream.read().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise AuthenticationFailed(f"{self.file} cannot be read: {why}; it has to hold a secret") from None

    def __bool__(self) -> bool:
        return bool(self.value or self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS, at least 1.2. Files are PEM, and are read again when they have changed.

    Attributes:
        ca_file: the certificates of the authorities that are trusted (``ssl.ca.location``); empty: the system's.
        certificate_file: our own certificate and its chain (``ssl.certificate.location``); empty: none.
        key_file: its private key (``ssl.key.location``); empty: it is in ``certificate_file``.
        key_password: of the key, if it has one (``ssl.key.password``).
        verify_hostname: the broker's certificate has to name the host that is connected to
            (``ssl.endpoint.identification.algorithm``).
        ciphers: OpenSSL's list for TLS 1.2 (``ssl.cipher.suites``); empty: OpenSSL's own.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password: Secret = Secret()
    verify_hostname: bool = True
    ciphers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """The source of OAUTHBEARER tokens: one of ``token``, ``provider`` and ``endpoint``.

    Attributes:
        token: a token (``sasl.oauthbearer.token``).
        provider: ``module:callable`` of a Python function without arguments that returns a token, or a token and the
            time in seconds since 1970 when it ends (``sasl.oauthbearer.token.provider``).
        endpoint: the URL that gives tokens for client credentials (``sasl.oauthbearer.token.endpoint.url``; OIDC).
        client_id, client_secret, scope: for ``endpoint``.
        ca_file: authorities that are trusted for ``endpoint`` (``https.ca.location``); empty: the system's.
        extensions: names and values that the broker gets beside the token (``sasl.oauthbearer.extensions``).
    """

    token: Secret = Secret()
    provider: str = ""
    endpoint: str = ""
    client_id: str = ""
    client_secret: Secret = Secret()
    scope: str = ""
    ca_file: str = ""
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslOptions:
    """Authentication.

    Attributes:
        mechanism: one of ``MECHANISMS``.
        username, password: for PLAIN and SCRAM.
        tokens: for OAUTHBEARER.
        service: the brokers' Kerberos service name, for GSSAPI.
    """

    mechanism: str
    username: str = ""
    password: Secret = Secret()
    tokens: TokenOptions = TokenOptions()
    service: str = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """``tls`` and ``sasl``: None without it."""

    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name for it (``security.protocol``)."""
        channel = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{channel}" if self.sasl else channel

    def for_other_machines(self) -> dict[str, Any]:
        """Returns ``dataclasses.asdict``, but that a secret of a file is named by the file only. It is read there, so
        that it need not go over the network."""
        packed = asdict(self)
        for secret in _secrets_in(packed):
            if secret["file"]:
                secret["value"] = ""
        return packed

    @classmethod
    def unpack(cls, data: Mapping[str, Any]) -> Self:
        """Restores what ``dataclasses.asdict`` or ``for_other_machines`` returned, also through JSON."""
        tls, sasl = data["tls"], data["sasl"]
        return cls(
            tls=TlsOptions(**{**tls, "key_password": Secret(**tls["key_password"])}) if tls else None,
            sasl=_sasl(sasl) if sasl else None,
        )


def _secrets_in(packed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields each secret in what ``asdict`` returned."""
    for each in packed.values():
        if isinstance(each, dict) and each.keys() == {"value", "file"}:
            yield each
        elif isinstance(each, dict):
            yield from _secrets_in(each)


def _sasl(data: Mapping[str, Any]) -> SaslOptions:
    tokens = data["tokens"]
    return SaslOptions(
        **{
            **data,
            "password": Secret(**data["password"]),
            "tokens": TokenOptions(
                **{
                    **tokens,
                    "token": Secret(**tokens["token"]),
                    "client_secret": Secret(**tokens["client_secret"]),
                    "extensions": tuple((name, value) for name, value in tokens["extensions"]),
                }
            ),
        }
    )


PLAINTEXT = SecurityOptions()
