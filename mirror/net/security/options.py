"""The settings of secured connections. They are plain data, and are passed to workers over a socket pair, never as
command-line arguments.

Secrets are never shown: neither ``repr`` nor a message contains one.
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
        value: the secret, as it was when the configuration was read.
        file: the file that it came from (``${file:…}``). It is read again at each use, so that the secret can be
            rotated while the mirror runs. Empty if it came from elsewhere.
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
        key_file: its private key (``ssl.key.location``); empty: the key is in ``certificate_file``.
        key_password: password of the key, if it has one (``ssl.key.password``).
        verify_hostname: True if the broker's certificate has to name the host that is connected to
            (``ssl.endpoint.identification.algorithm``).
        ciphers: cipher list for TLS 1.2 in OpenSSL's syntax (``ssl.cipher.suites``); empty: OpenSSL's default.
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
        provider: ``module:callable`` of a Python function without arguments that returns a token, or a token and its
            expiry in seconds since 1970 (``sasl.oauthbearer.token.provider``).
        endpoint: the URL that issues tokens for client credentials (``sasl.oauthbearer.token.endpoint.url``; OIDC).
        client_id, client_secret, scope: for ``endpoint``.
        ca_file: authorities that are trusted for ``endpoint`` (``https.ca.location``); empty: the system's.
        extensions: names and values that are sent to the broker with the token (``sasl.oauthbearer.extensions``).
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
    """The settings of SASL authentication.

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
    """The protection of a cluster's connections. ``tls``, ``sasl``: None if it is not used."""

    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None

    @property
    def protocol(self) -> str:
        """The value of ``security.protocol`` for these settings."""
        channel = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{channel}" if self.sasl else channel

    def for_other_machines(self) -> dict[str, Any]:
        """Returns ``dataclasses.asdict``, without the values of secrets that come from files. The other machine reads
        its own file of that name, so that the secret does not go over the network."""
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
    """Yields each secret (as a dict) in the result of ``asdict``."""
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
